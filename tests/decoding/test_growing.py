"""A state whose places for steps are made as they fill."""

import numpy as np
import pytest
from keras import ops

from keras_attention.decoding import beam_search, greedy_search, sample
from tests.decoding.running import MODES, prepare

VOCABULARY, FEATURES, LONGEST = 7, 3, 11
SEARCHES = {
    "greedy": (greedy_search, {}),
    "beam": (beam_search, {"beam_size": 3, "n_best": 2}),
    "sample": (sample, {"n_best": 2, "seed": 3}),
}
RANDOM = np.random.default_rng(5)
EMBEDDINGS = RANDOM.normal(size=(VOCABULARY, FEATURES)).astype("float32")
OUTPUTS = RANDOM.normal(size=(FEATURES, VOCABULARY)).astype("float32")


def step(tokens, state, index):
    """Scores that depend on all tokens so far, each in its own place of a cache."""
    cache = state["caches"][0]["words"]
    words = ops.take(EMBEDDINGS, tokens, axis=0)[:, None]
    cache = ops.slice_update(cache, (0, index, 0), words)
    places = ops.arange(ops.shape(cache)[1], dtype="int32")
    decay = ops.where(places <= index, 1.0 / (1.0 + ops.cast(index - places, "float32")), 0.0)
    hidden = ops.sum(cache * decay[None, :, None], axis=1) + state["bias"]
    logits = ops.matmul(ops.tanh(hidden), OUTPUTS) * 3.0
    return logits, {**state, "caches": [{"words": cache}]}


def state(room, batch=2):
    bias = np.random.default_rng(8).normal(size=(batch, FEATURES)).astype("float32")
    return {"caches": [{"words": np.zeros((batch, room, FEATURES), "float32")}], "bias": bias}


def run(name, room, mode="eager", **options):
    search, more = SEARCHES[name]

    def found(start):
        common = {"start_id": 1, "end_id": 0, "max_length": LONGEST, "min_length": 8}
        result = search(step, start, **common, **more, **options)
        return result.tokens, result.scores

    given = ops.convert_to_tensor
    start = {"caches": [{"words": given(state(room)["caches"][0]["words"])}]}
    start["bias"] = given(state(room)["bias"])
    return [ops.convert_to_numpy(x) for x in prepare(found, mode)(start)]


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "xla"])
@pytest.mark.parametrize("name", SEARCHES)
def test_what_is_found_does_not_depend_on_the_room_at_first(name, mode):
    tokens, scores = run(name, LONGEST)
    assert (tokens != 0).sum(-1).min() >= 7 and len(np.unique(tokens)) > 1
    for room in (1, 3):
        grown = run(name, room, mode, growing_axes={"caches": 1})
        np.testing.assert_array_equal(grown[0], tokens)
        np.testing.assert_allclose(grown[1], scores, rtol=1e-4)


@pytest.mark.parametrize("axes", [{"cache": 1}, {"caches": 0}, {"caches": 3}, {"bias": 2}], ids=str)
def test_what_cannot_grow_is_refused(axes):
    with pytest.raises(ValueError, match="`growing_axes` should name entries.*Received: "):
        run("greedy", 2, growing_axes=axes)
    with pytest.raises(ValueError, match="`growing_axes` should name entries.*Received: "):
        run("beam", 2, growing_axes={"caches": 1}, constant_keys=["caches"])
