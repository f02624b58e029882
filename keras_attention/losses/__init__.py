"""Losses over padded sequences."""

from ..ops.masks import token_weights
from ..ops.penalties import coverage_loss, occam_penalty
from .crf import CRFLoss
from .crossentropy import (
    MaskedNegativeLogLikelihood,
    MaskedSparseCategoricalCrossentropy,
    masked_linear_crossentropy,
    masked_negative_log_likelihood,
    masked_sparse_categorical_crossentropy,
)

__all__ = [
    "CRFLoss",
    "MaskedNegativeLogLikelihood",
    "MaskedSparseCategoricalCrossentropy",
    "coverage_loss",
    "masked_linear_crossentropy",
    "masked_negative_log_likelihood",
    "masked_sparse_categorical_crossentropy",
    "occam_penalty",
    "token_weights",
]
