"""What a run folder of the answer selection application holds, in memory."""

import dataclasses
from pathlib import Path

import numpy as np

from keras_attention.applications.answer_selection.config import AnswerSelectionConfig
from keras_attention.applications.answer_selection.model import AnswerSelector
from keras_attention.applications.answer_selection.text import WordIds
from keras_attention.applications.common.config import load_config
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.resuming import load_weights
from keras_attention.applications.common.run_folder import RunFolder
from keras_attention.text import load_tokenizer

TASK = "answer-selection"
WORDS = "words"
"""The name of the vocabulary in `RUN/tokenizers`."""
VECTORS = "vectors.npy"
"""The vectors that training starts from, in `RUN/tokenizers`."""


@dataclasses.dataclass(frozen=True)
class AnswerSelectionRun:
    """A run folder and what is in it.

    Args:
        folder: the run folder.
        config: its configuration.
        words: its vocabulary.
        model: the model; with its best weights where `load_run` was asked for them.
    """

    folder: RunFolder
    config: AnswerSelectionConfig
    words: WordIds
    model: AnswerSelector


def load_run(path: Path | str, weights: bool = True) -> AnswerSelectionRun:
    """Load a run folder.

    Args:
        path: the run folder.
        weights: load the best weights; else the model has those that training starts from.

    Raises:
        UserError: if there is no such run, it is not whole, or has no weights yet.
    """
    folder = RunFolder(path)
    if folder.task != TASK:
        raise UserError(f"{path} is a run of task '{folder.task}'. Expected: {TASK}.")
    config = load_config(AnswerSelectionConfig, [folder.config])
    words = word_ids(config, load_tokenizer(folder.tokenizers, WORDS))
    best = folder.require_weights() if weights else None
    model = new_model(config, words)
    if best is not None:
        load_weights(model, best)
    else:
        model.set_vectors(np.load(folder.tokenizers / VECTORS))
    return AnswerSelectionRun(folder, config, words, model)


def word_ids(config: AnswerSelectionConfig, tokenizer) -> WordIds:
    """Return what turns text into ids as `config` describes it."""
    return WordIds(tokenizer, config.vocabulary.unknown_buckets, config.data.max_length)


def new_model(config: AnswerSelectionConfig, words: WordIds) -> AnswerSelector:
    """Build the model that `config` describes for a vocabulary."""
    model = AnswerSelector(
        words.size,
        dataclasses.asdict(config.model),
        log_odds=config.training.loss == "log",
        trainable_vectors=config.vectors.trainable,
    )
    model.build()
    return model
