"""Tagging: a Keras task that gives each word of a sentence a tag."""

from .config import (
    DataConfig,
    ModelConfig,
    TaggingConfig,
    TokenizerConfig,
    TrainingConfig,
    VectorsConfig,
)
from .data import Sentence, load_corpus, read_corpus
from .metrics import measure, spans_of
from .networks import Tagger
from .preprocessor import TaggingPreprocessor
from .results import Span, Tagged
from .task import TokenClassifier

__all__ = [
    "DataConfig",
    "ModelConfig",
    "Sentence",
    "Span",
    "Tagged",
    "Tagger",
    "TaggingConfig",
    "TaggingPreprocessor",
    "TokenClassifier",
    "TokenizerConfig",
    "TrainingConfig",
    "VectorsConfig",
    "measure",
    "load_corpus",
    "read_corpus",
    "spans_of",
]
