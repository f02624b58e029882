"""The translation application: what the verbs of the command do, as functions."""

from keras_attention.applications.translation.config import (
    DataConfig,
    DecodingConfig,
    ModelConfig,
    TokenizerConfig,
    TrainingConfig,
    TranslationConfig,
)
from keras_attention.applications.translation.data import load_corpus
from keras_attention.applications.translation.evaluation import evaluate
from keras_attention.applications.translation.export import export_keras, export_saved_model
from keras_attention.applications.translation.model import (
    Luong,
    RNNEncDec,
    RNNSearch,
    Transformer,
    TranslationModel,
    build_model,
)
from keras_attention.applications.translation.picture import draw
from keras_attention.applications.translation.run import load_run
from keras_attention.applications.translation.training import (
    resume_translation,
    train_translation,
)
from keras_attention.applications.translation.translation import Translation
from keras_attention.applications.translation.translator import Translator

__all__ = [
    "DataConfig",
    "DecodingConfig",
    "Luong",
    "ModelConfig",
    "RNNEncDec",
    "RNNSearch",
    "TokenizerConfig",
    "TrainingConfig",
    "Transformer",
    "Translation",
    "TranslationConfig",
    "TranslationModel",
    "Translator",
    "build_model",
    "draw",
    "evaluate",
    "export_keras",
    "export_saved_model",
    "load_corpus",
    "load_run",
    "resume_translation",
    "train_translation",
]
