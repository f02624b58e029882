"""Run folders of version 0.1: tokenizers as files, the weights of the network alone."""

from pathlib import Path

from keras_attention.applications.common.weights import load_weights as read_weights
from keras_attention.applications.training.config import load_config
from keras_attention.applications.translation.config import TranslationConfig
from keras_attention.applications.translation.preprocessor import TranslationPreprocessor
from keras_attention.text import load_tokenizer


def load_run_0_1(task_class, folder: Path, load_weights: bool):
    """Return the translator of a run folder."""
    config = load_config(TranslationConfig, [folder / "config.yaml"])
    preprocessor = load_preprocessor_0_1(folder, config)
    task = task_class.configured(config, preprocessor, config.decoding.precision)
    if load_weights:
        read_weights(task.backbone, folder / "best.weights.h5")
    return task


def load_preprocessor_0_1(folder: Path, config=None) -> TranslationPreprocessor:
    """Return the preprocessor of a run folder."""
    config = config or load_config(TranslationConfig, [folder / "config.yaml"])
    tokenizers = (load_tokenizer(folder / "tokenizers", side) for side in ("source", "target"))
    return TranslationPreprocessor(*tokenizers, config.tokenizer.replace_unknown)
