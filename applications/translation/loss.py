"""The loss of training, which takes the word scores itself."""

import keras
from keras import ops

from keras_attention.applications.translation.base import TranslationModel
from keras_attention.losses import MaskedSparseCategoricalCrossentropy
from keras_attention.ops.crossentropy import linear_crossentropy
from keras_attention.ops.tokens import real_tokens, token_weights


def training_loss(model: TranslationModel, label_smoothing: float = 0.0) -> keras.losses.Loss:
    """Return the loss to train a model with, and tell the model.

    From then on the model's calls with `training=True` give what the word scores are taken from.
    """
    if model.feature_size == model.target_vocabulary_size:  # what a loss is given must be clear
        return MaskedSparseCategoricalCrossentropy(label_smoothing)
    model.leaves_logits_to_loss = True
    return WordCrossentropy(model, label_smoothing)


class WordCrossentropy(MaskedSparseCategoricalCrossentropy):
    """The masked cross-entropy of a model's words, computed in parts of the batch.

    The logits of a batch are by far its largest tensor, and their gradient is as large. Here a part
    of them exists at a time. The value is that of `MaskedSparseCategoricalCrossentropy`.

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
        target = ops.cast(ops.convert_to_tensor(y_true), "int32")
        weights = ops.cast(real_tokens(target, self.ignore_index), "float32")
        if sample_weight is not None:
            weights = weights * token_weights(sample_weight, target)
        total = linear_crossentropy(
            ops.reshape(y_pred, (-1, self._model.feature_size)),
            *self._model.output_matrix(),
            ops.reshape(target, (-1,)),
            ops.reshape(weights, (-1,)),
            self.label_smoothing,
        )
        return ops.divide_no_nan(total, ops.sum(weights))

    def call(self, y_true, y_pred):
        """Return the value of each token, which replicas add up (`GlobalMean`)."""
        logits = y_pred if self._are_logits(y_pred) else self._model.logits(y_pred)
        return super().call(y_true, logits)

    def _are_logits(self, y_pred):
        return y_pred.shape[-1] == self._model.target_vocabulary_size
