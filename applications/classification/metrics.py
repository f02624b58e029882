"""How good predicted labels are, and how far their probabilities can be trusted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

Ints = Sequence[int] | np.ndarray
Floats = Sequence[float] | np.ndarray


class LabelScores(NamedTuple):
    """Figures of each label.

    Attributes:
        precision, recall, f1: The part of its predictions that are right, the part of its examples
            that are found, and their harmonic mean; 0 where there is nothing to divide by.
        examples: How many examples have it.

    Example:

    >>> truth = np.array([[1, 0], [0, 1], [0, 1]], bool)
    >>> figures = f1_scores(truth, np.array([[1, 0], [1, 0], [0, 1]], bool)).by_label
    >>> figures.precision, figures.recall, figures.examples
    ([0.5, 1.0], [1.0, 0.5], [1, 2])
    """

    precision: list[float]
    recall: list[float]
    f1: list[float]
    examples: list[int]


@dataclass(frozen=True)
class F1Scores:
    """F1 over all labels.

    Attributes:
        macro: The mean F1 of the labels that occur in truth or prediction, rare or frequent.
        micro: F1 of all decisions; the accuracy, where examples have one label and one prediction.
        by_label: The figures of each label.

    Example:

    >>> truth = np.array([[1, 0], [0, 1]], bool)
    >>> scores = f1_scores(truth, truth)
    >>> scores.macro, scores.micro, scores.by_label.f1
    (1.0, 1.0, [1.0, 1.0])
    """

    macro: float
    micro: float
    by_label: LabelScores


@dataclass(frozen=True)
class Calibration:
    """How far probabilities are from how often they come true.

    Attributes:
        error: The expected calibration error, from 0 to 1.
        bins: For each bin its limits (`low`, `high`), its `examples`, their mean `confidence` and
            the part that is right, `accuracy` (both `None` in an empty one).

    Example:

    >>> result = calibration([0.75, 0.75], [True, False])
    >>> result.error, [each["examples"] for each in result.bins if each["examples"]]
    (0.25, [2])
    """

    error: float
    bins: list[dict[str, float | int | None]]


def confusion_matrix(truth: Ints, predicted: Ints, labels: int) -> np.ndarray:
    """Count which label was taken for which.

    Args:
        truth, predicted: The right and the predicted label of each example, from 0.
        labels: How many labels there are.

    Returns:
        `(labels, labels)`: in row `i`, column `j`, how often `j` was predicted where `i` is right.

    Raises:
        ValueError: Where the two differ in length, or a label is out of range.

    Example:

    >>> confusion_matrix([0, 0, 1], [0, 1, 1], labels=2).tolist()
    [[1, 1], [0, 1]]
    """
    truth, predicted = np.asarray(truth, "int64"), np.asarray(predicted, "int64")
    if truth.shape != predicted.shape or truth.ndim != 1:
        raise ValueError(
            "`truth` and `predicted` must be lists of one length. "
            f"Received: shapes {truth.shape} and {predicted.shape}"
        )
    both = np.concatenate([truth, predicted])
    if both.size and not 0 <= both.min() <= both.max() < labels:
        raise ValueError(
            f"Labels must be from 0 to {labels - 1}. Received: {both.min()} to {both.max()}"
        )
    if not both.size:  # which scikit-learn refuses
        return np.zeros((labels, labels), "int64")
    from sklearn import metrics

    return metrics.confusion_matrix(truth, predicted, labels=range(labels))


def f1_scores(truth: np.ndarray, predicted: np.ndarray) -> F1Scores:
    """Precision, recall and `F1 = 2 TP / (2 TP + FP + FN)` of each label, and F1 over all.

    Micro F1 takes the sums of true positives, false positives and false negatives over all labels.

    Args:
        truth, predicted: Boolean `(examples, labels)`: which labels, one or any number, each
            example has, and which are predicted.

    Raises:
        ValueError: Where shapes differ or are not of two axes.

    Example:

    >>> truth = np.array([[1, 0], [0, 1], [0, 1]], bool)
    >>> scores = f1_scores(truth, np.array([[1, 0], [1, 0], [0, 1]], bool))
    >>> round(scores.micro, 3), round(scores.macro, 3)
    (0.667, 0.667)
    """
    truth, predicted = np.asarray(truth, bool), np.asarray(predicted, bool)
    if truth.shape != predicted.shape or truth.ndim != 2:
        raise ValueError(
            "`truth` and `predicted` must have one shape (examples, labels). "
            f"Received: shapes {truth.shape} and {predicted.shape}"
        )
    if not truth.size:
        nothing = [0] * truth.shape[1]
        return F1Scores(0.0, 0.0, LabelScores([*nothing], [*nothing], [*nothing], nothing))
    from sklearn.metrics import precision_recall_fscore_support

    # One more label, which never comes: scikit-learn takes a single column for labels by number.
    both = [np.pad(each, ((0, 0), (0, 1))) for each in (truth, predicted)]
    by_label = precision_recall_fscore_support(*both, average=None, zero_division=0.0)
    micro = precision_recall_fscore_support(*both, average="micro", zero_division=0.0)[2]
    precision, recall, f1, examples = (each[:-1] for each in by_label)
    occurs = (truth | predicted).any(axis=0)
    return F1Scores(
        macro=float(f1[occurs].mean()) if occurs.any() else 0.0,
        micro=float(micro),
        by_label=LabelScores(*(each.tolist() for each in (precision, recall, f1, examples))),
    )


def calibration(confidence: Floats, correct: Floats, bins: int = 10) -> Calibration:
    """Expected calibration error: how far confidence is from accuracy.

    With `n_b` of `n` predictions in bin `b` of `M`, those of confidence `(b-1)/M < p ≤ b/M`,
    `ECE = Σ_b n_b/n |accuracy_b - confidence_b|`.

    Args:
        confidence, correct: Of each prediction its probability, and whether it is right.
        bins: How many bins `M` of equal width.

    Raises:
        ValueError: Where the two differ in length, are empty, or a probability is out of range.

    Reference:
        Guo et al. 2017, "On calibration of modern neural networks", section 2, equation 3.

    Example:

    >>> round(calibration([0.9, 0.9, 0.6], [True, False, True]).error, 3)  # (2 * 0.4 + 0.4) / 3
    0.4
    """
    confidence, correct = np.asarray(confidence, "float64"), np.asarray(correct, "float64")
    if confidence.shape != correct.shape or confidence.ndim != 1 or not confidence.size:
        raise ValueError(
            "`confidence` and `correct` must be non-empty lists of one length. "
            f"Received: shapes {confidence.shape} and {correct.shape}"
        )
    if not (confidence.min() >= 0 and confidence.max() <= 1 + 1e-9):
        raise ValueError(
            f"`confidence` must be from 0 to 1. Received: {confidence.min()} to {confidence.max()}"
        )
    from sklearn.calibration import calibration_curve

    confidence = np.minimum(confidence, 1.0)
    edges = np.linspace(0, 1, bins + 1)
    counts = np.bincount(np.searchsorted(edges[1:-1], confidence), minlength=bins)
    there = counts > 0
    right, mean = calibration_curve(correct, confidence, n_bins=bins, pos_label=1)
    rows: list[dict[str, float | int | None]] = [
        {"low": float(low), "high": float(high), "examples": int(n)}
        | {"confidence": None, "accuracy": None}
        for low, high, n in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
    for place, of_mean, of_right in zip(np.flatnonzero(there), mean, right, strict=True):
        rows[place] |= {"confidence": float(of_mean), "accuracy": float(of_right)}
    return Calibration(float(counts[there] @ np.abs(right - mean) / len(confidence)), rows)
