"""Classification: Keras tasks that label texts, and pairs of texts."""

from keras_attention.applications.classification.backbones import (
    BackboneEncoder,
    Pretrained,
    load_pretrained,
)
from keras_attention.applications.classification.classifier import (
    ClassificationTask,
    PairClassifier,
    TextClassifier,
)
from keras_attention.applications.classification.config import (
    ClassificationConfig,
    DataConfig,
    ModelConfig,
    TokenizerConfig,
    TrainingConfig,
)
from keras_attention.applications.classification.data import load_examples, read_examples
from keras_attention.applications.classification.encoders import (
    CrossEncoder,
    FlatEncoder,
    HierarchicalEncoder,
    InnerEncoder,
    TextEncoder,
)
from keras_attention.applications.classification.layers import Contextual, Pool, WordVectors
from keras_attention.applications.classification.model import Classifier, build_model
from keras_attention.applications.classification.preprocessor import (
    ClassificationPreprocessor,
    Labels,
)
from keras_attention.applications.classification.results import (
    Prediction,
    Weights,
    draw_confusion,
)

__all__ = [
    "BackboneEncoder",
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
    "Weights",
    "WordVectors",
    "build_model",
    "draw_confusion",
    "load_examples",
    "load_pretrained",
    "read_examples",
]
