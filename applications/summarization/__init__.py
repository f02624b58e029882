"""Summarisation: a Keras task over a recurrent decoder that attends, copies and remembers."""

from keras_attention.applications.summarization.config import (
    DataConfig,
    DecodingConfig,
    ModelConfig,
    SummarizationConfig,
    TokenizerConfig,
    TrainingConfig,
)
from keras_attention.applications.summarization.data import load_corpus, read_corpus
from keras_attention.applications.summarization.encoders import (
    FlatEncoder,
    HierarchicalEncoder,
    TransformerReader,
)
from keras_attention.applications.summarization.model import SummarizationModel, build_model
from keras_attention.applications.summarization.preprocessor import (
    SummarizationPreprocessor,
    split_sentences,
)
from keras_attention.applications.summarization.results import Summary
from keras_attention.applications.summarization.summarizer import Summarizer

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
