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


@pytest.mark.parametrize("order", [0, 1, 2])
def test_a_graph_is_freed_once_its_function_is_gone(order):
    import tensorflow as tf

    def value_and_gradient(x):
        return x**3, lambda upstream: (3 * x**2 * upstream,)

    cube = with_gradient(value_and_gradient, lambda x: x**3)

    def derivative(x, order):
        if not order:
            return ops.sum(cube(x))
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = derivative(x, order - 1)
        return tape.gradient(result, x)

    traced = tf.function(lambda x: derivative(x, order))
    found = traced(tf.constant([1.0, 2.0]))
    assert ops.convert_to_numpy(found).tolist() == [9.0, [3.0, 12.0], [6.0, 12.0]][order]
    graph = weakref.ref(traced.get_concrete_function(tf.constant([1.0, 2.0])).graph)
    del traced, found
    gc.collect()
    assert graph() is None
