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
from .networks.base import TranslationModel
from .networks.builder import build_model
from .networks.ensemble import Ensemble
from .networks.luong import Luong
from .networks.rnnsearch import RNNEncDec, RNNSearch
from .networks.transformer import Transformer
from .preprocessor import TranslationPreprocessor
from .results import Translation
from .shortlist import Shortlist
from .task import Translator

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
