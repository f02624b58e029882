"""The classification application: what the verbs of the command do, as functions."""

from keras_attention.applications.classification.classifier import (
    Prediction,
    TextClassifier,
    Weights,
)
from keras_attention.applications.classification.config import (
    ClassificationConfig,
    DataConfig,
    ModelConfig,
    TokenizerConfig,
    TrainingConfig,
)
from keras_attention.applications.classification.confusion_picture import draw_confusion
from keras_attention.applications.classification.data import load_examples, read_examples
from keras_attention.applications.classification.evaluation import evaluate
from keras_attention.applications.classification.export import export_saved_model
from keras_attention.applications.classification.model import Classifier, build_model
from keras_attention.applications.classification.picture import draw
from keras_attention.applications.classification.run import load_run
from keras_attention.applications.classification.training import (
    resume_classification,
    train_classification,
)

__all__ = [
    "ClassificationConfig",
    "Classifier",
    "DataConfig",
    "ModelConfig",
    "Prediction",
    "TextClassifier",
    "TokenizerConfig",
    "TrainingConfig",
    "Weights",
    "build_model",
    "draw",
    "draw_confusion",
    "evaluate",
    "export_saved_model",
    "load_examples",
    "load_run",
    "read_examples",
    "resume_classification",
    "train_classification",
]
