"""Translation: a Keras task over recurrent networks with attention, or the Transformer."""

from .config import (
    DataConfig,
    DecodingConfig,
    ModelConfig,
    TokenizerConfig,
    TrainingConfig,
    TranslationConfig,
)
from .data import load_corpus
from .documents import TranslatedDocument
from .models.base import TranslationModel
from .models.builder import build_model
from .models.ensemble import Ensemble
from .models.luong import Luong
from .models.rnnsearch import RNNEncDec, RNNSearch
from .models.transformer import Transformer
from .preprocessor import TranslationPreprocessor
from .results import Translation
from .shortlist import Shortlist
from .translator import Translator

__all__ = [
    "DataConfig",
    "DecodingConfig",
    "Ensemble",
    "Luong",
    "ModelConfig",
    "RNNEncDec",
    "RNNSearch",
    "Shortlist",
    "TokenizerConfig",
    "TrainingConfig",
    "Transformer",
    "TranslatedDocument",
    "Translation",
    "TranslationConfig",
    "TranslationModel",
    "TranslationPreprocessor",
    "Translator",
    "build_model",
    "load_corpus",
]
