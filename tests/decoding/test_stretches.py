"""Sizes that change on the way change no result: finished sentences leave, caches grow."""

import numpy as np
import pytest
from keras import ops

from keras_attention.decoding import beam_search, greedy_search, mask_of_origins, sample
from tests.decoding.chains import END, START, Chain
from tests.decoding.running import BACKEND, MODES, in_python, prepare

BATCH, LIMITS = 11, np.array([2, 9, 3, 1, 13, 4, 9, 5, 2, 7, 3])
SEARCHES = {
    "greedy": (greedy_search, {"no_repeat_ngram": 3}),
    "beam": (beam_search, {"beam_size": 3, "n_best": 2, "length_penalty": 0.6, "min_length": 2}),
    "covered": (beam_search, {"beam_size": 3, "coverage_penalty": 0.3, "length_penalty": 1.0}),
    "sample": (sample, {"n_best": 2, "seed": 3}),
}


def found(
    name,
    mode="eager",
    shrink_batch=True,
    room=None,
    rows=None,
    attention=True,
    shared=False,
    steps=None,
):
    """What a search finds over a chain with a cache of all tokens and a constant that is None."""
    chain, (search, options) = Chain(BATCH, memory=5, seed=70), SEARCHES[name]
    # The end is as likely as all else together: sentences finish at different steps.
    chain.table[:, :, END] += 1.0
    if name == "covered":
        options = {**options, "attention_mask": chain.mask}

    def step(tokens, state, index):
        if rows is not None:
            rows.append(int(ops.shape(tokens)[0]))
        given = {key: state[key] for key in ("trace", "attention_scores", "memory")}
        logits, after = chain.step(tokens, given, index)
        cache = state["caches"][0]["tokens"]
        places = ops.arange(ops.shape(cache)[2], dtype="int32")
        written, seen, of_row = tokens[:, None], places <= index, 1
        assert ("origins" in state) == (shared and "beam_size" in options)
        if "origins" in state:  # a row of the cache, three places of a step, for three hypotheses
            of_row, steps = 3, ops.shape(places)[0] // 3
            places = places // 3
            written = ops.tile(ops.reshape(tokens, (-1, 3)), (1, steps))
            seen = mask_of_origins(state["origins"], index, steps)
        written = ops.cast(written, "float32")[:, None]
        cache = ops.where(places == index, written, cache)
        # Each token counts after its place.
        decay = ops.where(seen, 0.1 / (1.0 + ops.cast(index - places, "float32")), 0.0)
        waves = ops.sin(ops.arange(chain.vocabulary, dtype="float32"))
        read = ops.sum(ops.repeat(cache, of_row, axis=0), axis=1)
        logits = logits + ops.sum(read * decay, axis=1)[:, None] * waves
        return logits, {**after, "caches": [{"tokens": cache}], "nothing": state["nothing"]}

    def run(state):
        result = search(
            step,
            {**state, "nothing": None},
            start_id=START,
            end_id=END,
            max_length=LIMITS,
            attention_key="attention_scores" if attention else None,
            constant_keys=["nothing", "memory"],
            growing_axes={"caches": 2} if room else None,
            shrink_batch=shrink_batch,
            **({"room": steps} if steps else {}),
            **({"sentence_keys": ["caches"]} if shared and "beam_size" in options else {}),
            **options,
        )
        parts = (*result[:4], result.token_log_probabilities, result.attention)
        return [x for x in parts if x is not None]

    cache = ops.zeros((BATCH, 2, room or LIMITS.max()))
    start = {**chain.state(), "caches": [{"tokens": cache}]}
    return [ops.convert_to_numpy(x) for x in prepare(run, mode)(start)]


@pytest.mark.by_default("greedy-eager", "covered-tf.function")
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "xla"])
@pytest.mark.parametrize("name", SEARCHES)
def test_nothing_that_is_found_changes(name, mode):
    expected = found(name, shrink_batch=False)
    assert len(np.unique(expected[1])) > 3  # lengths
    for room, shrink_batch in ((None, True), (1, True), (3, False)):
        attention = name == "covered" or room is None
        results = found(name, mode, shrink_batch, room, attention=attention)
        assert len(results) == 5 + attention
        for ours, theirs in zip(results, expected, strict=False):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.by_default("covered-eager")
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "xla"])
@pytest.mark.parametrize("name", [name for name in SEARCHES if "beam_size" in SEARCHES[name][1]])
def test_hypotheses_that_share_a_cache_find_the_same(name, mode):
    expected = found(name, shrink_batch=False)
    for attention in (True, False):
        attention |= name == "covered"
        results = found(name, mode, attention != (name == "beam"), 1, None, attention, shared=True)
        assert len(results) == 5 + attention
        for ours, theirs in zip(results, expected, strict=False):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.by_default("greedy-eager", "covered-eager")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [name for name in SEARCHES if name != "sample"])
def test_a_search_with_room_for_so_many_steps_marks_what_needs_more(name, mode):
    expected = found(name, shrink_batch=False)
    for room in (LIMITS.max(), 2):
        results = found(name, mode, False, room, shared=name == "beam", steps=room)
        finished = ~np.isnan(results[2]).any(axis=1)
        assert results[0].shape[2] == room
        assert finished.any() and finished.all() == (room == LIMITS.max())
        assert not finished[expected[1].max(axis=1) > room].any()
        for ours, theirs in zip(results, expected, strict=True):
            theirs = theirs[tuple(map(slice, ours.shape))]
            np.testing.assert_allclose(ours[finished], theirs[finished], rtol=1e-4, atol=1e-6)


@pytest.mark.by_default("greedy", "covered")
@pytest.mark.skipif(BACKEND == "jax", reason="sizes cannot change there")
@pytest.mark.parametrize("name", SEARCHES)
def test_what_is_finished_costs_no_more(name):
    rows, all_rows = [], []
    with in_python():
        lengths = found(name, rows=rows)[1]
        found(name, shrink_batch=False, rows=all_rows)
    copies = all_rows[0] // BATCH
    assert set(all_rows) == {copies * BATCH} and len(rows) == len(all_rows)
    assert rows == sorted(rows, reverse=True) and rows[-1] <= 2 * copies
    if name == "greedy":
        still_open = [(lengths[:, 0] > index).sum() for index in range(len(rows))]
        assert all(have * 3 < 4 * need + 4 for have, need in zip(rows, still_open, strict=True))
