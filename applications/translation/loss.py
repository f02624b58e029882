"""The loss of training, which takes the word scores itself."""

import keras
from keras import ops

from keras_attention.applications.translation.models import TranslationModel
from keras_attention.losses import (
    MaskedSparseCategoricalCrossentropy,
    masked_linear_crossentropy,
    token_weights,
)


@keras.saving.register_keras_serializable("keras_attention.translation")
class WordCrossentropy(MaskedSparseCategoricalCrossentropy):
    """The masked cross-entropy of a model's words, whose logits never exist as a whole.

    It serves `fit`, in which a loss gets what a model returns, and `GlobalMean`. A model that was
    saved with it comes back with the loss of logits, which is the same number.

    Args:
        model: The model, whose output matrix the loss reads.
        label_smoothing: As of the class above.

    Call arguments:
        y_true: Token ids `(B, T)`.
        y_pred: The model's features `(B, T, D)`, as in training, or its logits `(B, T, V)`.
        sample_weight: Optional weights, of shape `(B,)`, `(B, 1)` or `(B, T)`.
    """

    def __init__(self, model: TranslationModel, label_smoothing: float = 0.0):
        super().__init__(label_smoothing)
        self._model = model

    def __call__(self, y_true, y_pred, sample_weight=None):
        if self._are_logits(y_pred):
            return super().__call__(y_true, y_pred, sample_weight)
        return masked_linear_crossentropy(
            y_true,
            y_pred,
            *self._model.output_matrix(),
            label_smoothing=self.label_smoothing,
            sample_weight=sample_weight,
        )

    def total_and_weight(self, y_true, y_pred, sample_weight=None):
        """Return the sum over the tokens and their weight, which replicas add up (`GlobalMean`)."""
        weights = token_weights(y_true, self.ignore_index, sample_weight)
        weight = ops.sum(weights)
        if self._are_logits(y_pred):  # whose mean Keras divides by the number of replicas
            return ops.sum(self.call(y_true, y_pred) * weights), weight
        return self(y_true, y_pred, sample_weight) * weight, weight

    @classmethod
    def from_config(cls, config):
        # A loss is read back before its model is there, whose calls then give logits again.
        return MaskedSparseCategoricalCrossentropy(**config)

    def _are_logits(self, y_pred):
        return y_pred.shape[-1] == self._model.target_vocabulary_size
