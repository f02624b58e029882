"""What a run folder of the translation application holds, in memory."""

from dataclasses import dataclass
from pathlib import Path

from keras_attention.applications.common.config import load_config
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.resuming import load_weights
from keras_attention.applications.common.run_folder import RunFolder
from keras_attention.applications.translation.config import TranslationConfig
from keras_attention.applications.translation.model import TranslationModel, build_model
from keras_attention.text import Tokenizer, load_tokenizer

TASK = "translation"
SOURCE, TARGET = "source", "target"
"""The names of the tokenizers in `RUN/tokenizers`; a shared one is there under both."""


@dataclass(frozen=True)
class TranslationRun:
    """A run folder and what is in it.

    Args:
        folder: the run folder.
        config: its configuration.
        source_tokenizer: of the source side.
        target_tokenizer: of the target side; another object with the same ids where it is shared.
        model: the model; with its best weights where `load_run` was asked for them.
    """

    folder: RunFolder
    config: TranslationConfig
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    model: TranslationModel


def load_run(
    path: Path | str, weights: bool = True, precision: str | None = None
) -> TranslationRun:
    """Load a run folder.

    Args:
        path: the run folder.
        weights: load the best weights; else the model has new ones, to train.
        precision: what to compute in; None for what the configuration says: its
            `decoding.precision` with the best weights, its `training.precision` with new ones.

    Raises:
        UserError: if there is no such run, it is not whole, or has no weights yet.
    """
    folder = RunFolder(path)
    if folder.task != TASK:
        raise UserError(f"{path} is a run of task '{folder.task}'. Expected: {TASK}.")
    config = load_config(TranslationConfig, [folder.config])
    tokenizers = [load_tokenizer(folder.tokenizers, name) for name in (SOURCE, TARGET)]
    best = folder.require_weights() if weights else None
    # What other verbs compute, they compute in a precision of theirs, whatever trained it.
    precision = precision or (config.decoding if weights else config.training).precision
    model = new_model(config, *tokenizers, precision=precision)
    if best is not None:
        load_weights(model, best)
    return TranslationRun(folder, config, *tokenizers, model)


def new_model(
    config: TranslationConfig, source: Tokenizer, target: Tokenizer, precision: str | None = None
) -> TranslationModel:
    """Build the model that `config` describes for the vocabularies of two tokenizers.

    Args:
        config: the configuration.
        source: the tokenizer of the source side.
        target: the same of the target.
        precision: the dtype policy to compute with; None for Keras' global one.
    """
    model = build_model(
        config.model,
        source.vocabulary_size,
        target.vocabulary_size,
        max_source_length=config.data.max_length,
        share_embeddings=config.tokenizer.shared,
        dtype=precision,
    )
    if config.model.architecture == "transformer":
        model.show_attention(config.decoding.attention_layer, config.decoding.attention_head)
    return model


def choose_attention(run: TranslationRun, layer: int | None, head: int | None) -> None:
    """Show the attention of another decoder layer and head than the run's configuration says.

    Args:
        run: a run, of which no call has been made yet.
        layer: the layer; None for the configuration's.
        head: the head; None for the mean of all of the layer given.

    Raises:
        UserError: where the model has no such layer or head, or no choice.
    """
    if layer is None and head is None:
        return
    own = run.config.decoding
    if run.config.model.architecture != "transformer":
        raise UserError(
            f"architecture {run.config.model.architecture} has no attention layers and heads to "
            "choose from: leave --attention-layer and --attention-head out."
        )
    layer = own.attention_layer if layer is None else layer
    try:
        run.model.show_attention(layer, head)
    except ValueError as error:
        raise UserError(str(error)) from None
