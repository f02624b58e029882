"""What a run folder of the summarisation application holds, in memory."""

from dataclasses import dataclass
from pathlib import Path

from keras_attention.applications.common.config import load_config
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.resuming import load_weights
from keras_attention.applications.common.run_folder import RunFolder
from keras_attention.applications.summarization.config import SummarizationConfig
from keras_attention.applications.summarization.encoding import DocumentEncoder
from keras_attention.applications.summarization.model import SummarizationModel
from keras_attention.text import Tokenizer, load_tokenizer

TASK = "summarization"
WORDS = "words"
"""The name of the tokenizer in `RUN/tokenizers`, one for documents and summaries."""


@dataclass(frozen=True)
class SummarizationRun:
    """A run folder and what is in it.

    Args:
        folder: the run folder.
        config: its configuration.
        encoder: makes ids of documents and summaries.
        model: the model; with its best weights where `load_run` was asked for them.
    """

    folder: RunFolder
    config: SummarizationConfig
    encoder: DocumentEncoder
    model: SummarizationModel


def load_run(path: Path | str, weights: bool = True) -> SummarizationRun:
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
    config = load_config(SummarizationConfig, [folder.config])
    tokenizer = load_tokenizer(folder.tokenizers, WORDS)
    best = folder.require_weights() if weights else None
    model = new_model(config, tokenizer)
    if best is not None:
        load_weights(model, best)
    return SummarizationRun(folder, config, DocumentEncoder(tokenizer, config), model)


def new_model(config: SummarizationConfig, tokenizer: Tokenizer) -> SummarizationModel:
    """Build the model that `config` describes for the vocabulary of a tokenizer."""
    return SummarizationModel(
        config.model,
        tokenizer.vocabulary_size,
        config.tokenizer.extra_words,
        config.data.max_sentences,
    )
