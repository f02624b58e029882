"""F1, confusion and calibration against their definitions, counted in plain Python."""

import numpy as np
import pytest

from keras_attention.applications.classification.metrics import (
    calibration,
    confusion_matrix,
    f1_scores,
)


def counted(truth, predicted):
    """F1 of each label that occurs, and of all decisions, by counting."""
    each, sums = [], [0, 0, 0]
    for label in range(truth.shape[1]):
        pairs = list(zip(truth[:, label], predicted[:, label], strict=True))
        hits = sum(t and p for t, p in pairs)
        wrong = sum(p and not t for t, p in pairs)
        missed = sum(t and not p for t, p in pairs)
        sums = [sums[0] + hits, sums[1] + wrong, sums[2] + missed]
        if hits + wrong + missed:
            each.append(2 * hits / (2 * hits + wrong + missed))
    return sum(each) / len(each), 2 * sums[0] / (2 * sums[0] + sums[1] + sums[2])


@pytest.mark.parametrize("seed", range(5))
def test_f1_is_what_counting_gives(seed):
    draw = np.random.default_rng(seed)
    truth, predicted = draw.random((2, 23, 5)) < 0.3
    truth[:, 4] = predicted[:, 4] = False  # a label that never comes
    scores = f1_scores(truth, predicted)
    assert (scores.macro, scores.micro) == pytest.approx(counted(truth, predicted))
    assert scores.by_label.f1[4] == scores.by_label.recall[4] == 0
    assert scores.by_label.examples == truth.sum(axis=0).tolist()


def test_known_values():
    truth, predicted = np.array([0, 1, 2, 0, 1, 2]), np.array([0, 2, 1, 0, 0, 1])
    matrix = confusion_matrix(truth, predicted, 3)
    np.testing.assert_array_equal(matrix, [[2, 0, 0], [1, 0, 1], [0, 2, 0]])
    one_hot = np.eye(3, dtype=bool)
    scores = f1_scores(one_hot[truth], one_hot[predicted])
    assert scores.macro == pytest.approx(0.8 / 3)
    assert scores.micro == pytest.approx(2 / 6)
    assert scores.by_label.precision == pytest.approx([2 / 3, 0, 0])
    assert scores.by_label.recall == pytest.approx([1, 0, 0])


def test_calibration_error():
    result = calibration([0.9, 0.9, 0.6, 1.0, 0.1], [True, False, True, True, False], bins=10)
    # bins (0, 0.1], (0.5, 0.6], (0.8, 0.9], (0.9, 1]
    expected = (0.1 + 0.4 + 2 * abs(0.5 - 0.9) + 0.0) / 5
    assert result.error == pytest.approx(expected)
    assert [row["examples"] for row in result.bins] == [1, 0, 0, 0, 0, 1, 0, 0, 2, 1]
    assert result.bins[1]["accuracy"] is None and result.bins[8]["accuracy"] == 0.5


def test_perfect_confidence_is_calibrated():
    draw = np.random.default_rng(3)
    confidence = draw.random(40_000)
    correct = draw.random(40_000) < confidence
    assert calibration(confidence, correct).error < 0.02
    assert calibration(np.minimum(1, confidence + 0.3), correct).error > 0.2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: confusion_matrix([0, 1], [0], 2), "lists of one length"),
        (lambda: confusion_matrix([0, 2], [0, 1], 2), "Labels must be from 0 to 1"),
        (lambda: f1_scores(np.zeros((2, 3)), np.zeros((2, 2))), "must have one shape"),
        (lambda: calibration([], []), "non-empty lists"),
        (lambda: calibration([1.2], [True]), "from 0 to 1"),
        (lambda: calibration([0.5, -0.1], [True, False]), "from 0 to 1"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("labels", [1, 2, 5])
def test_nothing_is_counted_of_no_examples(labels):
    matrix = confusion_matrix([], [], labels)
    assert matrix.shape == (labels, labels) and not matrix.any()
    assert matrix.dtype == confusion_matrix([0, 1], [0, 1], 2).dtype
