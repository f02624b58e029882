"""Losses over padded sequences."""

from keras_attention.losses.crossentropy import (
    MaskedSparseCategoricalCrossentropy,
    masked_linear_crossentropy,
    masked_sparse_categorical_crossentropy,
)
from keras_attention.losses.likelihood import (
    MaskedNegativeLogLikelihood,
    masked_negative_log_likelihood,
)
from keras_attention.ops.coverage import coverage_loss
from keras_attention.ops.masks import token_weights
from keras_attention.ops.occam import occam_penalty

__all__ = [
    "MaskedNegativeLogLikelihood",
    "MaskedSparseCategoricalCrossentropy",
    "coverage_loss",
    "masked_linear_crossentropy",
    "masked_negative_log_likelihood",
    "masked_sparse_categorical_crossentropy",
    "occam_penalty",
    "token_weights",
]
