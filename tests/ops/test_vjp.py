"""Gradients by hand: what they leave behind."""

import gc
import weakref

import keras
import pytest
from keras import ops

from keras_attention.ops.vjp import with_gradient

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="only TensorFlow keeps graphs"
)


@pytest.mark.parametrize("differentiated", [False, True])
def test_a_graph_is_freed_once_its_function_is_gone(differentiated):
    import tensorflow as tf

    @with_gradient
    def cube(x):
        return x**3, lambda upstream: (3 * x**2 * upstream,)

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = ops.sum(cube(x))
        return tape.gradient(result, x) if differentiated else result

    traced = tf.function(gradient)
    found = traced(tf.constant([1.0, 2.0]))
    assert ops.convert_to_numpy(found).tolist() == ([3.0, 12.0] if differentiated else 9.0)
    graph = weakref.ref(traced.get_concrete_function(tf.constant([1.0, 2.0])).graph)
    del traced, found
    gc.collect()
    assert graph() is None
