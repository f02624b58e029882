"""Run folders of version 0.1: the tokenizer as a file, the weights of the network alone."""

from pathlib import Path

from keras_attention.applications.common.weights import load_weights as read_weights
from keras_attention.applications.summarization.config import (
    SummarizationConfig,
    preprocessing_of,
)
from keras_attention.applications.summarization.preprocessor import SummarizationPreprocessor
from keras_attention.applications.training.config import load_config
from keras_attention.text import load_tokenizer


def load_run_0_1(task_class, folder: Path, load_weights: bool):
    """Return the summariser of a run folder."""
    config = load_config(SummarizationConfig, [folder / "config.yaml"])
    task = task_class.configured(config, load_preprocessor_0_1(folder), "float32")
    if load_weights:
        read_weights(task.backbone, folder / "best.weights.h5")
    return task


def load_preprocessor_0_1(folder: Path) -> SummarizationPreprocessor:
    """Return the preprocessor of a run folder."""
    config = load_config(SummarizationConfig, [folder / "config.yaml"])
    tokenizer = load_tokenizer(folder / "tokenizers", "words")
    return SummarizationPreprocessor(tokenizer, **preprocessing_of(config))
