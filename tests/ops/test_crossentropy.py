"""The cross-entropy of features and a matrix, in parts, against the whole of it in float64."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.ops import crossentropy
from keras_attention.ops.crossentropy import linear_crossentropy, smoothed_crossentropy
from tests.contracts.backend import input_gradients, random, to_numpy

N, D, V = 13, 5, 11


def oracle(features, kernel, bias, index, weights, smoothing):
    """Return the sum, and its gradients by features, kernel and bias."""
    logits = features @ kernel + bias
    logits = logits - logits.max(-1, keepdims=True)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    labels = (1 - smoothing) * np.eye(V)[index] + smoothing / V
    slope = weights[:, None] * (p - labels)
    value = -(weights[:, None] * labels * np.log(p)).sum()
    return value, slope @ kernel.T, features.T @ slope, slope.sum(0)


@pytest.fixture
def problem():
    rng = np.random.default_rng(5)
    weights = rng.uniform(0.3, 2.0, N).astype("float32")
    weights[[2, 7, 12]] = 0.0
    index = rng.integers(0, V, N).astype("int32")
    return random(1, N, D), random(2, D, V), random(3, V), index, weights


@pytest.mark.parametrize("rows", [1, 4, 13, 100])  # of a part; 4 leaves a part of one row
@pytest.mark.parametrize("smoothing", [0.0, 0.13])
def test_value_and_gradients_are_those_of_the_whole(problem, rows, smoothing, monkeypatch):
    monkeypatch.setattr(crossentropy, "LOGITS_AT_ONCE", rows * V)
    *inputs, index, weights = problem
    scale = 1.7  # what comes from above

    def loss(*arrays):
        return scale * linear_crossentropy(*arrays, index, weights, smoothing)

    value, *expected = oracle(*inputs, index, weights, smoothing)
    received = to_numpy(linear_crossentropy(*map(ops.convert_to_tensor, inputs), *problem[3:], 0.0))
    assert received == pytest.approx(oracle(*problem, 0.0)[0], rel=1e-5)
    assert to_numpy(loss(*map(ops.convert_to_tensor, inputs))) == pytest.approx(scale * value, 1e-5)
    for gradient, wanted in zip(input_gradients(loss, *inputs), expected, strict=True):
        np.testing.assert_allclose(gradient, scale * wanted, rtol=1e-4, atol=1e-5)
    by_features = input_gradients(loss, *inputs)[0]
    assert np.all(by_features[weights == 0] == 0.0)


def test_no_rows_give_no_loss(problem):
    """As where a replica has no row of a batch."""
    features, kernel, bias, *others = problem
    index, weights = (each[:0] for each in others)

    def loss(features, kernel, bias):
        return linear_crossentropy(features, kernel, bias, index, weights, 0.1)

    def each(logits):
        return ops.sum(smoothed_crossentropy(index[:, None], logits, 0.1))

    for function, *inputs in ((loss, features[:0], kernel, bias), (each, np.zeros((0, V), "f"))):
        value = function(*map(ops.convert_to_tensor, inputs))
        gradients = input_gradients(function, *inputs)
        assert to_numpy(value) == 0.0
        for gradient, wanted in zip(gradients, inputs, strict=True):
            np.testing.assert_array_equal(gradient, np.zeros_like(wanted))


def test_logits_too_large_for_exp_do_not_overflow(problem):
    features, kernel, bias, index, weights = problem
    features, kernel = 100 * features[1:], 100 * kernel

    def loss(*arrays):
        return linear_crossentropy(*arrays, index[1:], weights[1:], 0.1)

    assert np.isfinite(to_numpy(loss(features, kernel, bias)))
    gradients = input_gradients(loss, features, kernel, bias)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_features_of_low_precision_give_a_float32_loss(problem, dtype):
    features, kernel, bias, *others = problem
    low = ops.cast(features, dtype)
    value = linear_crossentropy(low, kernel, bias, *others)
    assert keras.backend.standardize_dtype(value.dtype) == "float32"
    expected = oracle(*problem, 0.0)[0]
    assert to_numpy(value) == pytest.approx(expected, rel=3e-2)
