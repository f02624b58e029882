"""Tagging: a Keras task that gives each word of a sentence a tag."""

from .config import (
    DataConfig,
    ModelConfig,
    TaggingConfig,
    TokenizerConfig,
    TrainingConfig,
    VectorsConfig,
)
from .metrics import measure, spans_of
from .networks import Tagger
from .preprocessor import Sentence, Sentences, TaggingPreprocessor, read_sentences
from .results import Span, Tagged
from .task import TokenClassifier

__all__ = [
    "DataConfig",
    "ModelConfig",
    "Sentence",
    "Sentences",
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
    "read_sentences",
    "spans_of",
]
