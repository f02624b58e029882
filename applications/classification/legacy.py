"""Run folders of version 0.1: tokenizer and labels as files, the weights of the network alone."""

import json
from pathlib import Path

from keras_attention.applications.classification.backbones import load_pretrained
from keras_attention.applications.classification.config import ClassificationConfig
from keras_attention.applications.classification.preprocessor import (
    ClassificationPreprocessor,
    Labels,
    preprocessor_of,
)
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.weights import load_weights as load_weights_of
from keras_attention.applications.training.config import load_config
from keras_attention.text import load_tokenizer


def load_run_0_1(task_class, folder: Path, load_weights: bool):
    """Return the task of a run folder."""
    config = load_config(ClassificationConfig, [folder / "config.yaml"])
    task = task_class.configured(config, load_preprocessor_0_1(folder, config), "float32")
    if load_weights:
        load_weights_of(task.backbone, folder / "best.weights.h5")
    return task


def load_preprocessor_0_1(
    folder: Path, config: ClassificationConfig | None = None
) -> ClassificationPreprocessor:
    """Return the preprocessor of a run folder."""
    config = config or load_config(ClassificationConfig, [folder / "config.yaml"])
    path = folder / "tokenizers" / "labels.json"
    try:
        labels = Labels(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        raise UserError(f"{path} is missing or damaged: train again.") from None
    if config.model.architecture == "backbone":
        tokenizer = load_pretrained(folder / "backbone", weights=False).tokenizer
    else:
        tokenizer = load_tokenizer(folder / "tokenizers")
    preprocessor = preprocessor_of(config, tokenizer, labels)
    preprocessor.read_start(folder)
    return preprocessor
