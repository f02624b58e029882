"""The translation networks, one file each."""

from keras_attention.applications.translation.models.base import TranslationModel
from keras_attention.applications.translation.models.luong import Luong, luong_attention
from keras_attention.applications.translation.models.rnnencdec import RNNEncDec
from keras_attention.applications.translation.models.rnnsearch import RNNSearch
from keras_attention.applications.translation.models.transformer import Transformer

__all__ = [
    "Luong",
    "RNNEncDec",
    "RNNSearch",
    "Transformer",
    "TranslationModel",
    "luong_attention",
]
