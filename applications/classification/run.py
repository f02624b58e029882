"""What a run folder of the classification application holds, in memory."""

from dataclasses import dataclass
from pathlib import Path

from keras_attention.applications.classification.backbones import (
    FOLDER,
    BackboneTokenizer,
    Pretrained,
    load_pretrained,
)
from keras_attention.applications.classification.config import ClassificationConfig
from keras_attention.applications.classification.labels import Labels
from keras_attention.applications.classification.model import Classifier, build_model
from keras_attention.applications.classification.reading import Reader
from keras_attention.applications.common.config import load_config
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.resuming import load_weights
from keras_attention.applications.common.run_folder import RunFolder
from keras_attention.text import Tokenizer, load_tokenizer

TASK = "classification"


@dataclass(frozen=True)
class ClassificationRun:
    """A run folder and what is in it.

    Args:
        folder: the run folder.
        config: its configuration.
        reader: from texts to ids.
        labels: what the model answers with.
        model: the model; with its best weights where `load_run` was asked for them.
    """

    folder: RunFolder
    config: ClassificationConfig
    reader: Reader
    labels: Labels
    model: Classifier


def load_run(path: Path | str, weights: bool = True) -> ClassificationRun:
    """Load a run folder.

    Args:
        path: the run folder.
        weights: load the best weights; else the model has new ones.

    Raises:
        UserError: if there is no such run, it is not whole, or has no weights yet.
    """
    folder = RunFolder(path)
    if folder.task != TASK:
        raise UserError(f"{path} is a run of task '{folder.task}'. Expected: {TASK}.")
    config = load_config(ClassificationConfig, [folder.config])
    labels = Labels.load(folder.tokenizers)
    best = folder.require_weights() if weights else None
    pretrained = None
    if config.model.architecture == "backbone":
        # Its weights are among the best ones: they are read from there if these are wanted.
        pretrained = load_pretrained(folder.path / FOLDER, weights=not weights)
    tokenizer = pretrained.tokenizer if pretrained else load_tokenizer(folder.tokenizers)
    model = new_model(config, tokenizer, labels, pretrained)
    if best is not None:
        load_weights(model, best)
    return ClassificationRun(folder, config, make_reader(config, tokenizer), labels, model)


def new_model(
    config: ClassificationConfig,
    tokenizer: Tokenizer | BackboneTokenizer,
    labels: Labels,
    pretrained: Pretrained | None = None,
) -> Classifier:
    """Build the model that `config` describes for a vocabulary and labels."""
    return build_model(config.model, tokenizer.vocabulary_size, labels.outputs, pretrained)


def make_reader(config: ClassificationConfig, tokenizer: Tokenizer | BackboneTokenizer) -> Reader:
    """Return what turns texts into the ids that the model of `config` reads."""
    return Reader(tokenizer, config.tokenizer, config.model.architecture == "han")
