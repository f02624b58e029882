"""The loss of a model that gives the log probabilities of its labels itself."""

import keras

from keras_attention.losses import token_weights
from keras_attention.text import PAD_ID


@keras.saving.register_keras_serializable("keras_attention")
class NegativeLogLikelihood(keras.losses.Loss):
    """The mean over real labels of minus their log probability.

    Call arguments:
        y_true: Labels `(B, T)`, padded with 0.
        y_pred: Their log probabilities `(B, T)`.
    """

    def __init__(self, name="negative_log_likelihood"):
        super().__init__(name=name, reduction="mean_with_sample_weight", dtype="float32")

    def __call__(self, y_true, y_pred, sample_weight=None):
        weight = token_weights(y_true, PAD_ID, sample_weight)
        return super().__call__(y_true, y_pred, sample_weight=weight)

    def call(self, y_true, y_pred):
        return -y_pred
