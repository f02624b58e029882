"""Gradients by hand: of what is not read, and what they leave behind."""

import gc
import weakref

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.ops.vjp import pullback, with_gradient
from tests.contracts.backend import random, to_numpy


@pytest.mark.parametrize("read", [(True, False), (False, True), (False, False)])
def test_the_gradient_of_what_a_function_does_not_read_is_zero(read):
    x, y, upstream = random(1, 3, 5), random(2, 5), random(3, 3, 5)

    def function(x, y):
        return (x**3 if read[0] else ops.ones((3, 5))) + (7 * y if read[1] else 0.0)

    tensors = [ops.convert_to_tensor(each) for each in (x, y)]
    result, gradients = pullback(function, tensors)
    np.testing.assert_allclose(to_numpy(result), to_numpy(function(*tensors)), rtol=1e-5)
    found = [to_numpy(each) for each in gradients(ops.convert_to_tensor(upstream))]
    np.testing.assert_allclose(found[0], read[0] * 3 * x**2 * upstream, rtol=1e-5)
    np.testing.assert_allclose(found[1], read[1] * 7 * upstream.sum(axis=0), rtol=1e-5)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="only TensorFlow keeps graphs")
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
