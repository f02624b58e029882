"""Losses over padded sequences."""

from keras_attention.losses.coverage import coverage_loss
from keras_attention.losses.crossentropy import (
    MaskedSparseCategoricalCrossentropy,
    masked_sparse_categorical_crossentropy,
)
from keras_attention.losses.likelihood import (
    MaskedNegativeLogLikelihood,
    masked_negative_log_likelihood,
)
from keras_attention.losses.linear import masked_linear_crossentropy
from keras_attention.ops.occam import occam_penalty
from keras_attention.ops.tokens import token_weights

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
