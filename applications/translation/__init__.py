"""Translation: a Keras task over recurrent networks with attention, or the Transformer."""

from keras_attention.applications.translation.config import (
    DataConfig,
    DecodingConfig,
    ModelConfig,
    TokenizerConfig,
    TrainingConfig,
    TranslationConfig,
)
from keras_attention.applications.translation.data import load_corpus
from keras_attention.applications.translation.models import (
    Luong,
    RNNEncDec,
    RNNSearch,
    Transformer,
    TranslationModel,
)
from keras_attention.applications.translation.models.builder import build_model
from keras_attention.applications.translation.preprocessor import TranslationPreprocessor
from keras_attention.applications.translation.results import Translation
from keras_attention.applications.translation.translator import Translator

__all__ = [
    "DataConfig",
    "DecodingConfig",
    "Luong",
    "ModelConfig",
    "RNNEncDec",
    "RNNSearch",
    "TokenizerConfig",
    "TrainingConfig",
    "Transformer",
    "Translation",
    "TranslationConfig",
    "TranslationModel",
    "TranslationPreprocessor",
    "Translator",
    "build_model",
    "load_corpus",
]
