"""What is measured of a model's scores on a set with labels."""

import numpy as np

from keras_attention.applications.classification.labels import Labels
from keras_attention.metrics import calibration, confusion_matrix, f1_scores


def measure(scores: np.ndarray, targets: np.ndarray, labels: Labels) -> dict:
    """Return the figures of a set, as JSON types.

    Args:
        scores: what the model gave, `(examples, outputs)`.
        targets: what is right, `(examples, outputs)`.
        labels: the labels of the run.
    """
    scores, targets = np.asarray(scores, "float64"), np.asarray(targets, "float64")
    return {"one": _one, "many": _many, "number": _number}[labels.kind](scores, targets, labels)


def _one(scores, targets, labels):
    logs = scores - _logsumexp(scores)
    found, right = scores.argmax(axis=1), targets.argmax(axis=1)
    hit = found == right
    confidence = np.exp(logs.max(axis=1))
    return {
        "loss": float(-logs[np.arange(len(right)), right].mean()),
        "accuracy": float(hit.mean()),
        **_f1(np.eye(labels.outputs, dtype=bool)[found], targets > 0.5, labels),
        **_calibration(confidence, hit),
        "confusion": confusion_matrix(right, found, labels.outputs).tolist(),
    }


def _many(scores, targets, labels):
    truth, found = targets > 0.5, scores >= 0
    # log(1 + exp(-s)) for a label that is there, log(1 + exp(s)) for one that is not
    loss = np.logaddexp(0, np.where(truth, -scores, scores)).mean()
    confidence = 1 / (1 + np.exp(-np.abs(scores)))
    return {
        "loss": float(loss),
        "accuracy": float((truth == found).all(axis=1).mean()),
        **_f1(found, truth, labels),
        **_calibration(confidence.ravel(), (truth == found).ravel()),
    }


def _number(scores, targets, labels):
    found, right = scores[:, 0] * labels.scale + labels.mean, targets[:, 0] * labels.scale
    right = right + labels.mean
    errors = found - right
    return {
        "loss": float(np.mean((scores - targets) ** 2)),
        "mean_squared_error": float(np.mean(errors**2)),
        "mean_absolute_error": float(np.abs(errors).mean()),
        "pearson": _correlation(found, right),
        "spearman": _correlation(_ranks(found), _ranks(right)),
    }


def _f1(found, truth, labels):
    scores = f1_scores(truth, found)
    return {
        "macro_f1": scores.macro,
        "micro_f1": scores.micro,
        "labels": [
            {"label": name, "precision": p, "recall": r, "f1": f, "examples": n}
            for name, p, r, f, n in zip(labels.names, *scores.by_label, strict=True)
        ],
    }


def _calibration(confidence, hit):
    result = calibration(confidence, hit)
    return {"expected_calibration_error": result.error, "calibration": result.bins}


def _logsumexp(scores):
    highest = scores.max(axis=1, keepdims=True)
    return highest + np.log(np.exp(scores - highest).sum(axis=1, keepdims=True))


def _correlation(first, second):
    """Return Pearson's correlation, 0 where one of both does not vary."""
    first, second = first - first.mean(), second - second.mean()
    scale = np.sqrt((first**2).sum() * (second**2).sum())
    return float((first * second).sum() / scale) if scale else 0.0


def _ranks(values):
    """Return the rank of each value, the mean rank for equal ones."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]
