"""Classification: Keras tasks that label texts, and pairs of texts."""

from ..base.backbones import BackboneReader, Pretrained, load_pretrained
from .config import (
    ClassificationConfig,
    DataConfig,
    ModelConfig,
    TokenizerConfig,
    TrainingConfig,
    VectorsConfig,
)
from .data import load_corpus, read_corpus
from .networks.encoders import (
    BackboneEncoder,
    CrossEncoder,
    FlatEncoder,
    HierarchicalEncoder,
    InnerEncoder,
    TextEncoder,
)
from .networks.layers import Contextual, Pool, WordVectors
from .networks.model import Classifier, build_model
from .preprocessor import ClassificationPreprocessor, Labels
from .results import Prediction, Weights, draw_confusion
from .task import ClassificationTask, PairClassifier, TextClassifier

__all__ = [
    "BackboneEncoder",
    "BackboneReader",
    "ClassificationConfig",
    "ClassificationPreprocessor",
    "ClassificationTask",
    "Classifier",
    "Contextual",
    "CrossEncoder",
    "DataConfig",
    "FlatEncoder",
    "HierarchicalEncoder",
    "InnerEncoder",
    "Labels",
    "ModelConfig",
    "PairClassifier",
    "Pool",
    "Prediction",
    "Pretrained",
    "TextClassifier",
    "TextEncoder",
    "TokenizerConfig",
    "TrainingConfig",
    "VectorsConfig",
    "Weights",
    "WordVectors",
    "build_model",
    "draw_confusion",
    "load_corpus",
    "load_pretrained",
    "read_corpus",
]
