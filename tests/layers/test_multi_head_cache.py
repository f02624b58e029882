"""A cache of multi-head attention whose length only the graph knows."""

import numpy as np
import pytest
from keras import ops

from keras_attention.layers import MultiHeadAttention
from tests.contracts.backend import BACKEND, random, to_numpy
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
