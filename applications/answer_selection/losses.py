"""What a model learns from: right candidates above wrong ones, or each pair by itself."""

import keras
import numpy as np
from keras import ops

from keras_attention.applications.answer_selection.config import TrainingConfig


@keras.saving.register_keras_serializable("keras_attention")
class HardestHinge(keras.losses.Loss):
    """`max(0, m - s₊ + max_k s₋ₖ)`: a right candidate exceeds the hardest wrong one by a margin.

    Labels and scores are `(B, N)`; the first candidate of each row is the right one.

    Args:
        margin: m.
    """

    def __init__(self, margin=0.2, name="hardest_hinge", **kwargs):
        super().__init__(name=name, **kwargs)
        self.margin = margin

    def call(self, y_true, y_pred):
        return ops.relu(self.margin - y_pred[:, 0] + ops.max(y_pred[:, 1:], axis=1))

    def get_config(self):
        return {**super().get_config(), "margin": self.margin}


def training_loss(config: TrainingConfig) -> keras.losses.Loss:
    """Return the loss of a batch `(B, N)` that `config` describes."""
    if config.loss == "hinge":
        return HardestHinge(config.margin)
    return keras.losses.BinaryCrossentropy(from_logits=True)


def question_loss(config: TrainingConfig, scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the loss of one question with all its candidates, of which some are right.

    Args:
        config: the training section.
        scores: (N,) scores.
        labels: (N,) 1 for right, 0 for wrong.
    """
    scores = np.asarray(scores, "float64")
    labels = np.asarray(labels, bool)
    if config.loss == "log":
        return float(np.mean(np.logaddexp(0.0, np.where(labels, -scores, scores))))
    if labels.all():
        return 0.0
    hardest = scores[~labels].max()
    return float(np.mean(np.maximum(0.0, config.margin - scores[labels] + hardest)))
