"""Scores against open sums in float64, over whole memories and windows, and their gradients."""

import numpy as np
import pytest
from keras import ops

from keras_attention.ops import scores as scores_module
from keras_attention.ops.scores import additive_score, dot_score
from tests.contracts.backend import input_gradients, random, to_numpy, weighted_sum

B, T, S, D, W = 3, 5, 7, 11, 2


def additive_oracle(query, key, vector):
    """Scores (B,T,S), or (B,T,W) of windows, one pair of positions at a time."""
    query, key, vector = np.float64(query), np.float64(key), np.float64(vector)
    windows = key.ndim == 4
    length = key.shape[2] if windows else key.shape[1]
    scores = np.zeros(query.shape[:2] + (length,))
    for b, t, s in np.ndindex(scores.shape):
        row = key[b, t, s] if windows else key[b, s]
        scores[b, t, s] = np.tanh(query[b, t] + row) @ vector
    return scores


def additive_gradients(query, key, vector, upstream):
    """d sum(upstream * scores) by the chain rule, one pair of positions at a time."""
    query, key, vector = np.float64(query), np.float64(key), np.float64(vector)
    gradients = np.zeros_like(query), np.zeros_like(key), np.zeros_like(vector)
    for b, t, s in np.ndindex(upstream.shape):
        place = (b, t, s) if key.ndim == 4 else (b, s)
        hidden = np.tanh(query[b, t] + key[place])
        inner = upstream[b, t, s] * vector * (1 - hidden**2)
        gradients[0][b, t] += inner
        gradients[1][place] += inner
        gradients[2][:] += upstream[b, t, s] * hidden
    return gradients


def test_dot_score():
    query, key, windows = random(1, B, T, D), random(2, B, S, D), random(3, B, T, W, D)
    scores = to_numpy(dot_score(ops.convert_to_tensor(query), ops.convert_to_tensor(key)))
    by_window = to_numpy(dot_score(ops.convert_to_tensor(query), ops.convert_to_tensor(windows)))
    assert scores.shape == (B, T, S) and by_window.shape == (B, T, W)
    for b, t in np.ndindex(B, T):
        np.testing.assert_allclose(scores[b, t], key[b] @ query[b, t], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(by_window[b, t], windows[b, t] @ query[b, t], 1e-4, 1e-5)


@pytest.mark.parametrize(
    "key_shape", [(B, S, D), (B, T, W, D), (B, 1, D)], ids=["memory", "windows", "one"]
)
def test_additive_score_and_its_gradients(key_shape):
    query, key, vector = random(4, B, T, D), random(5, *key_shape), random(6, D)
    tensors = [ops.convert_to_tensor(array) for array in (query, key, vector)]
    scores = to_numpy(additive_score(*tensors))
    np.testing.assert_allclose(scores, additive_oracle(query, key, vector), rtol=1e-5, atol=1e-5)
    upstream = random(7, *scores.shape)
    gradients = input_gradients(
        lambda *a: weighted_sum(additive_score(*a), upstream), query, key, vector
    )
    expected = additive_gradients(query, key, vector, upstream)
    for gradient, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("steps", [1, 2, 31, 67])
def test_additive_score_in_blocks_of_any_number_of_queries(steps, monkeypatch):
    """Lengths below, at and beyond a block of 31 queries, and that no block divides."""
    monkeypatch.setattr(scores_module, "BLOCK_NUMBERS", 31 * 2 * 53 * 3)
    query, key, vector = random(8, 2, steps, 3), random(9, 2, 53, 3), random(10, 3)
    upstream = random(11, 2, steps, 53)
    scores = additive_score(*(ops.convert_to_tensor(array) for array in (query, key, vector)))
    np.testing.assert_allclose(
        to_numpy(scores), additive_oracle(query, key, vector), rtol=1e-4, atol=1e-5
    )
    gradients = input_gradients(
        lambda *a: weighted_sum(additive_score(*a), upstream), query, key, vector
    )
    expected = additive_gradients(query, key, vector, upstream)
    for gradient, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_additive_score_and_gradients_in_half_precision(dtype):
    """Types come back as they went in; saturated tanh has a zero gradient, not NaN."""
    query, key, vector = random(12, B, T, D), random(13, B, S, D), random(14, D)
    key[1] = 1e4
    upstream = random(15, B, T, S)

    def loss(*arrays):
        scores = additive_score(*(ops.cast(array, dtype) for array in arrays))
        return weighted_sum(scores, upstream)

    scores = additive_score(*(ops.cast(array, dtype) for array in (query, key, vector)))
    tolerance = 2e-2 if dtype == "float16" else 1.5e-1
    np.testing.assert_allclose(
        to_numpy(scores), additive_oracle(query, key, vector), atol=tolerance
    )
    gradients = input_gradients(loss, query, key, vector)
    expected = additive_gradients(query, key, vector, upstream)
    for gradient, wanted in zip(gradients, expected, strict=True):
        assert np.all(np.isfinite(gradient))
        np.testing.assert_allclose(gradient, wanted, atol=10 * tolerance)
    assert np.all(gradients[1][1] == 0.0)
