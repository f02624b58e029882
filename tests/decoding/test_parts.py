"""The parts of the searches: penalties, top-k, n-gram blocking."""

import numpy as np
import pytest
from keras import ops

from keras_attention.decoding import CoveragePenalty, LengthPenalty
from keras_attention.decoding.constraints import Constraints, block_repeated_ngrams, withhold_end
from keras_attention.decoding.top_k import chunked_top_k, ordered_top_k


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.5])
def test_length_penalty(alpha):
    lengths = np.array([1, 2, 7, 100])
    penalty = ops.convert_to_numpy(LengthPenalty(alpha)(ops.convert_to_tensor(lengths)))
    np.testing.assert_allclose(penalty, ((5 + lengths) / 6) ** alpha, rtol=1e-5)
    assert (np.diff(penalty) >= 0).all()


def test_coverage_penalty():
    coverage = np.random.default_rng(0).uniform(0.05, 2, size=(2, 3, 7)).astype("float32")
    mask = np.arange(7) < np.array([7, 4])[:, None, None]
    penalty = CoveragePenalty(0.3)
    expected = 0.3 * np.where(mask, np.log(np.minimum(coverage, 1)), 0).sum(axis=-1)
    np.testing.assert_allclose(ops.convert_to_numpy(penalty(coverage, mask)), expected, rtol=1e-4)
    unmasked = 0.3 * np.log(np.minimum(coverage, 1)).sum(axis=-1)
    np.testing.assert_allclose(ops.convert_to_numpy(penalty(coverage)), unmasked, rtol=1e-4)


def test_coverage_of_nothing_is_finite():
    penalty = ops.convert_to_numpy(CoveragePenalty(1.0, floor=1e-3)(np.array([[0.0, 1.0, 5.0]])))
    np.testing.assert_allclose(penalty, [np.log(1e-3)], rtol=1e-5)


@pytest.mark.parametrize("size", [7, 320, 641, 1009, 8000])
@pytest.mark.parametrize("kind", ["distinct", "ties", "all alike", "mostly impossible"])
def test_top_k_is_a_stable_sort(size, kind):
    random = np.random.default_rng(size)
    x = {
        "distinct": random.normal(size=(3, size)),
        "ties": random.integers(0, 4, size=(3, size)),
        "all alike": np.zeros((3, size)),
        "mostly impossible": np.where(random.random((3, size)) < 0.999, -np.inf, 1.0),
    }[kind].astype("float32")
    for k in (1, 2, 5):
        order = np.argsort(-x, axis=-1, kind="stable")[:, :k]
        for top_k in (ordered_top_k, chunked_top_k):
            values, places = (ops.convert_to_numpy(y) for y in top_k(ops.convert_to_tensor(x), k))
            np.testing.assert_array_equal(places, order)
            np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis=-1))


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_ngram_blocking(size):
    random = np.random.default_rng(size)
    rows, length, vocabulary, end = 23, 13, 4, 3
    prefix = random.integers(0, vocabulary, size=(rows, length)).astype("int32")
    logits = random.normal(size=(rows, vocabulary)).astype("float32")
    for index in range(length + 1):
        blocked = block_repeated_ngrams(
            ops.convert_to_tensor(logits),
            ops.convert_to_tensor(prefix),
            ops.convert_to_tensor(index, dtype="int32"),
            size,
            end,
        )
        expected = logits.copy()
        for row, tokens in enumerate(prefix[:, :index].tolist()):
            seen = [tokens[i : i + size] for i in range(len(tokens) - size + 1)]
            for token in range(end):  # the end itself is never blocked
                if len(tokens) >= size - 1 and [*tokens[index - size + 1 :], token] in seen:
                    expected[row, token] = -np.inf
        np.testing.assert_array_equal(ops.convert_to_numpy(blocked), expected)


def test_withholding_the_end():
    no = -np.inf
    logits = np.array([[1.0, 2, 3], [1, no, no], [no, 1, no], [no, no, no]], "float32")
    withheld = ops.convert_to_numpy(withhold_end(ops.convert_to_tensor(logits), 0))
    expected = [[no, 2, 3], [1, no, no], [no, 1, no], [no, no, no]]
    np.testing.assert_array_equal(withheld, np.array(expected, "float32"))


@pytest.mark.parametrize("min_length", [0, 1, 2, 4])
def test_the_end_counts_towards_the_minimum(min_length):
    constraints = Constraints(end_id=0, min_length=min_length)
    for index in range(6):
        logits = constraints(
            ops.zeros((1, 3)),
            ops.zeros((1, 6), dtype="int32"),
            ops.convert_to_tensor(index, dtype="int32"),
        )
        may_end = bool(np.isfinite(ops.convert_to_numpy(logits)[0, 0]))
        assert may_end == (index + 1 >= min_length)
