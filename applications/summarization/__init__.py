"""Summarisation: a Keras task over a recurrent decoder that attends, copies and remembers."""

from .config import (
    DataConfig,
    DecodingConfig,
    ModelConfig,
    SummarizationConfig,
    TokenizerConfig,
    TrainingConfig,
)
from .data import load_corpus, read_corpus
from .networks.encoders import FlatEncoder, HierarchicalEncoder, TransformerReader
from .networks.model import SummarizationModel, build_model
from .preprocessor import SummarizationPreprocessor, split_sentences
from .results import Summary
from .task import Summarizer

__all__ = [
    "DataConfig",
    "DecodingConfig",
    "FlatEncoder",
    "HierarchicalEncoder",
    "ModelConfig",
    "SummarizationConfig",
    "SummarizationModel",
    "SummarizationPreprocessor",
    "Summarizer",
    "Summary",
    "TokenizerConfig",
    "TrainingConfig",
    "TransformerReader",
    "build_model",
    "load_corpus",
    "read_corpus",
    "split_sentences",
]
