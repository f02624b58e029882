"""Answer selection: a Keras task that ranks the candidate answers of a question."""

from .config import (
    AnswerSelectionConfig,
    DataConfig,
    ModelConfig,
    TokenizerConfig,
    TrainingConfig,
    VectorsConfig,
)
from .data import load_corpus, read_corpus
from .networks.compare_aggregate import CompareAggregate
from .networks.selector import AnswerSelector, HardestHinge, Reader, build_model
from .preprocessor import AnswerPreprocessor
from .results import Answer, Ranking
from .task import AnswerRanker, Ranker
from .vectors import read_vectors, train_vectors, write_vectors

__all__ = [
    "Answer",
    "AnswerPreprocessor",
    "AnswerRanker",
    "AnswerSelectionConfig",
    "AnswerSelector",
    "CompareAggregate",
    "DataConfig",
    "HardestHinge",
    "ModelConfig",
    "Ranker",
    "Ranking",
    "Reader",
    "TrainingConfig",
    "VectorsConfig",
    "TokenizerConfig",
    "build_model",
    "load_corpus",
    "read_corpus",
    "read_vectors",
    "train_vectors",
    "write_vectors",
]
