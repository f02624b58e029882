"""Caches of multi-head attention: of open length, and rolling ones."""

import numpy as np
import pytest
from keras import ops

from keras_attention import mods
from keras_attention.layers import MultiHeadAttention
from tests.contracts.backend import BACKEND, at_once, random, to_numpy
from tests.contracts.kinds import randomise


@pytest.mark.skipif(BACKEND != "tensorflow", reason="only TensorFlow leaves lengths open")
def test_a_step_at_a_known_index_writes_a_cache_of_open_length():
    import tensorflow as tf

    layer = MultiHeadAttention(3, 5)
    layer.build((None, None, 7))
    randomise(layer)
    state = layer.initial_state(2, 4)
    x = ops.convert_to_tensor(random(1, 2, 7))
    open_lengths = {k: tf.TensorSpec([None, 3, None, v.shape[3]]) for k, v in state.items()}

    @tf.function(input_signature=[tf.TensorSpec([None, 7]), open_lengths])
    def step(x, state):
        return layer.step(x, None, state, 1)

    found, expected = step(x, state), layer.step(x, None, state, 1)
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-6)


ROLLING = {
    "plain": {"window": 3},
    "sinks": {"window": 3, "num_sinks": 2, "num_key_value_heads": 1},
    "one": {"window": 1},
    "rotary": {"window": 4, "num_sinks": 1, "positions": "rotary", "sink_logits": True},
    "alibi": {"window": 3, "num_sinks": 2, "positions": "alibi", "normalizer": "softmax1"},
    "relative": {"window": 5, "positions": "relative", "num_buckets": 8, "max_distance": 9},
    "mods": {"window": 4, "num_sinks": 1, "score_mod": mods.alibi(2), "mask_mod": mods.sinks(9)},
}


@pytest.mark.parametrize("name", ROLLING)
@pytest.mark.parametrize("traced", [False, True])
def test_a_rolling_cache_gives_what_the_whole_sequence_gives(name, traced):
    options, steps = ROLLING[name], 11
    layer = MultiHeadAttention(2, 6, **options)
    layer.build((None, None, 7))
    randomise(layer)
    x = random(1, 3, steps, 7)
    expected, weights = layer(x, use_causal_mask=True, return_attention_scores=True)
    expected, weights = to_numpy(expected), to_numpy(weights)
    state = layer.initial_state(3)
    sinks, size = options.get("num_sinks", 0), options["window"] + options.get("num_sinks", 0)
    assert state["key"].shape[2] == size
    step = at_once(lambda given: layer.step(given["x"], None, given["state"], given["index"]))
    for t in range(steps):
        if traced:
            index = ops.convert_to_tensor(t, dtype="int32")
            found = step({"x": ops.convert_to_tensor(x[:, t]), "state": state, "index": index})
        else:
            found = layer.step(x[:, t], None, state, t)
        output, scores, state = found
        np.testing.assert_allclose(to_numpy(output), expected[:, t], atol=1e-5)
        near = range(max(sinks, t - options["window"] + 1), t + 1)
        wanted = np.zeros((3, 2, size))
        for position in {*range(min(sinks, t + 1)), *near}:
            rolled = sinks + (position - sinks) % options["window"]
            place = position if position < sinks else rolled
            wanted[:, :, place] = weights[:, :, t, position]
        np.testing.assert_allclose(to_numpy(scores), wanted, atol=1e-6)


def test_a_cache_without_a_size_needs_a_window():
    with pytest.raises(ValueError, match="`max_length`.*Received: max_length=None, window=None"):
        MultiHeadAttention(2, 3).initial_state(2)
    layer = MultiHeadAttention(2, 3, window=3)
    layer.build((None, None, 7))
    state = layer.initial_state(2)
    with pytest.raises(ValueError, match="`index` must lie in"):
        layer.step(random(1, 2, 7), None, state, -1)
    far = ops.convert_to_tensor(-1, dtype="int32")
    assert np.all(np.isnan(to_numpy(layer.step(random(1, 2, 7), None, state, far)[0])))


@pytest.mark.skipif(BACKEND != "tensorflow", reason="only TensorFlow leaves lengths open")
@pytest.mark.parametrize("name", ["sinks", "alibi"])
@pytest.mark.parametrize("rolls", [True, False])
def test_a_graph_tells_whether_a_cache_of_open_length_rolls(name, rolls):
    import tensorflow as tf

    layer, steps = MultiHeadAttention(2, 6, **ROLLING[name]), 9
    layer.build((None, None, 7))
    randomise(layer)
    x = random(1, 3, steps, 7)
    expected = to_numpy(layer(x, use_causal_mask=True))
    state = layer.initial_state(3, None if rolls else steps)
    shapes = {k: tf.TensorSpec([None, v.shape[1], None, 6]) for k, v in state.items()}

    @tf.function(input_signature=[tf.TensorSpec([None, 7]), shapes, tf.TensorSpec([], tf.int32)])
    def step(x, state, index):
        return layer.step(x, None, state, index, return_attention_scores=False)

    for t in range(steps):
        output, _, state = step(x[:, t], state, t)
        np.testing.assert_allclose(to_numpy(output), expected[:, t], atol=1e-5)
