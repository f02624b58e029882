"""Run folders of version 0.1: the vocabulary as a file, the weights of the network alone."""

from pathlib import Path

import numpy as np

from keras_attention.applications.answer_selection.config import AnswerSelectionConfig
from keras_attention.applications.answer_selection.preprocessor import AnswerPreprocessor
from keras_attention.applications.common.weights import load_weights as read_weights
from keras_attention.applications.training.config import load_config
from keras_attention.text import load_tokenizer


def load_run_0_1(task_class, folder: Path, load_weights: bool):
    """Return the ranker of a run folder."""
    config = load_config(AnswerSelectionConfig, [folder / "config.yaml"])
    task = task_class.configured(config, load_preprocessor_0_1(folder, config), "float32")
    if load_weights:
        read_weights(task.backbone, folder / "best.weights.h5")
    return task


def load_preprocessor_0_1(folder: Path, config=None) -> AnswerPreprocessor:
    """Return the preprocessor of a run folder, with the vectors that its training starts from."""
    config = config or load_config(AnswerSelectionConfig, [folder / "config.yaml"])
    tokenizers = folder / "tokenizers"
    preprocessor = AnswerPreprocessor(
        load_tokenizer(tokenizers, "words"),
        config.vocabulary.unknown_buckets,
        config.data.max_length,
    )
    preprocessor.vectors = np.load(tokenizers / "vectors.npy")
    return preprocessor
