"""Normalisers: known answers, empty rows, extremes of each float type, gradients."""

import numpy as np
import pytest
from keras import backend, ops

from keras_attention.ops.normalizers import entmax15, masked_softmax, sparsemax
from tests import attention_oracle
from tests.contracts.backend import input_gradients, random, to_numpy, weighted_sum
from tests.contracts.oracles import softmax

DTYPES = ["float16", "bfloat16", "float32"]


def rows_of(scores, mask):
    """The oracle row by row along the last axis."""
    flat = np.float64(scores).reshape(-1, scores.shape[-1])
    masks = np.broadcast_to(mask, scores.shape).reshape(flat.shape)
    return np.reshape([softmax(*row) for row in zip(flat, masks, strict=True)], scores.shape)


def test_known_answer():
    weights = masked_softmax(
        ops.convert_to_tensor(np.float32([1, 2, 5])),
        ops.convert_to_tensor(np.array([True, False, True])),
    )
    np.testing.assert_allclose(to_numpy(weights), [0.01798621, 0.0, 0.98201382], atol=1e-7)


def test_random_masks_against_the_oracle():
    scores = random(1, 3, 5, 7, scale=4.0)
    mask = np.random.default_rng(2).random((3, 5, 7)) < 0.5
    mask[1, 2] = False
    weights = to_numpy(masked_softmax(ops.convert_to_tensor(scores), ops.convert_to_tensor(mask)))
    np.testing.assert_allclose(weights, rows_of(scores, mask), atol=1e-6)
    assert np.all(weights[~mask] == 0.0)  # exactly: not merely small
    assert np.all(weights[1, 2] == 0.0)


def test_without_a_mask():
    scores = random(3, 3, 2, 7)
    weights = to_numpy(masked_softmax(ops.convert_to_tensor(scores)))
    np.testing.assert_allclose(weights, rows_of(scores, np.ones(7, bool)), atol=1e-6)


def test_a_mask_broadcasts_over_queries():
    scores = random(5, 3, 5, 7)
    mask = np.arange(7) < np.array([7, 3, 0])[:, None]
    weights = masked_softmax(ops.convert_to_tensor(scores), ops.convert_to_tensor(mask[:, None]))
    np.testing.assert_allclose(to_numpy(weights), rows_of(scores, mask[:, None]), atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_extremes_of_each_type(dtype):
    """The largest scores, and infinities and NaN where masked, leave finite weights."""
    largest = 60000.0 if dtype == "float16" else 1e29
    scores = np.float32(
        [
            [largest, -largest, 0.0, 5.0],
            [-largest, -largest, largest, 5.0],
            [np.inf, 1.0, -np.inf, 1.0],
            [np.nan, -largest, np.nan, np.inf],
        ]
    )
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1], [0, 1, 0, 0]], bool)
    weights = masked_softmax(ops.cast(scores, dtype), ops.convert_to_tensor(mask))
    assert backend.standardize_dtype(weights.dtype) == dtype
    expected = [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0.5, 0, 0.5], [0, 1, 0, 0]]
    np.testing.assert_array_equal(to_numpy(weights), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_is_taken_in_float32_or_wider(dtype):
    """In float16, the sum of 100,000 equal exponentials would overflow: weights are 1e-5 still."""
    weights = masked_softmax(ops.zeros((1, 100_000), dtype), ops.ones((1, 100_000), "bool"))
    np.testing.assert_allclose(to_numpy(weights), 1e-5, rtol=5e-3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_masked_rows_are_zero_and_finite(dtype):
    scores = random(6, 3, 7)
    mask = np.arange(7) < np.array([5, 0, 1])[:, None]
    scores[0, 5:] = 1e4
    upstream = random(7, 3, 7)

    def loss(scores):
        weights = masked_softmax(ops.cast(scores, dtype), ops.convert_to_tensor(mask))
        return weighted_sum(weights, upstream)

    (gradient,) = input_gradients(loss, scores)
    weights = rows_of(scores, mask)
    mean = np.sum(weights * upstream, axis=1, keepdims=True)
    tolerance = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 5e-2}[dtype]
    np.testing.assert_allclose(gradient, weights * (upstream - mean), atol=tolerance)
    assert np.all(gradient[~mask] == 0.0)


SPARSE = {"sparsemax": sparsemax, "entmax15": entmax15}


def sparse_rows_of(name, scores, mask):
    """The oracle of a sparse normaliser along the last axis."""
    weights, mask = np.zeros(scores.shape), np.broadcast_to(mask, scores.shape)
    for place in np.ndindex(scores.shape[:-1]):
        seen = mask[place]
        if seen.any():
            row = np.float64(scores[place][seen])
            weights[place][seen] = attention_oracle.NORMALIZERS[name](row)
    return weights


def test_known_answers_of_sparse_normalizers():
    scores = ops.convert_to_tensor(np.float32([[1.0, 0.5, -1.0], [0.0, 0.0, -3.0]]))
    np.testing.assert_allclose(
        to_numpy(sparsemax(scores)), [[0.75, 0.25, 0.0], [0.5, 0.5, 0.0]], atol=1e-6
    )
    np.testing.assert_allclose(to_numpy(entmax15(scores))[1], [0.5, 0.5, 0.0], atol=1e-6)


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_sparse_normalizers_against_the_oracle(name, scale):
    scores = random(1, 3, 5, 11, scale=scale)
    scores[0, 0] = 2.5  # ties
    mask = np.random.default_rng(2).random((3, 5, 11)) < 0.6
    mask[1, 2] = False
    for given in (mask, mask[:, :1], np.ones(11, bool)):
        expected = sparse_rows_of(name, scores, given)
        weights = to_numpy(SPARSE[name](ops.convert_to_tensor(scores), given))
        np.testing.assert_allclose(weights, expected, atol=2e-6 * max(scale, 1))
        assert np.all(weights[~np.broadcast_to(given, weights.shape)] == 0.0)
    without = to_numpy(SPARSE[name](ops.convert_to_tensor(scores)))
    np.testing.assert_allclose(without, expected, atol=2e-6 * max(scale, 1))


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sparse_normalizers_of_each_type(name, dtype):
    """The largest scores, and infinities and NaN where masked, leave finite weights."""
    largest = 60000.0 if dtype == "float16" else 1e29
    scores = np.float32([[largest, -largest, 0.0], [np.inf, 1.0, np.nan], [np.nan, 1.0, 1.0]])
    mask = np.array([[1, 1, 1], [0, 1, 0], [0, 0, 0]], bool)
    weights = SPARSE[name](ops.cast(scores, dtype), ops.convert_to_tensor(mask))
    assert backend.standardize_dtype(weights.dtype) == dtype
    np.testing.assert_array_equal(to_numpy(weights), [[1, 0, 0], [0, 1, 0], [0, 0, 0]])


@pytest.mark.parametrize("name", SPARSE)
def test_gradients_of_sparse_normalizers_are_slopes(name):
    scores = random(3, 2, 4, 7, scale=1.5)
    mask = np.random.default_rng(4).random((2, 4, 7)) < 0.8
    mask[1, 3] = False
    upstream = random(5, 2, 4, 7)

    def loss(scores):
        return weighted_sum(SPARSE[name](scores, ops.convert_to_tensor(mask)), upstream)

    (gradient,) = input_gradients(loss, scores)
    assert np.all(gradient[~mask] == 0.0) and np.any(gradient != 0.0)
    for seed in range(3):
        direction = random(10 + seed, *scores.shape)
        sides = [
            np.sum(upstream * sparse_rows_of(name, scores + side * direction, mask))
            for side in (1e-5, -1e-5)
        ]
        slope = (sides[0] - sides[1]) / 2e-5
        np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=1e-2, atol=1e-2)
