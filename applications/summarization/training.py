"""Training a summarisation model: from a configuration to a run folder with weights."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from keras_attention.applications.common.backend import compiled
from keras_attention.applications.common.config import load_config, save_config
from keras_attention.applications.common.distribute_config import on_all_replicas
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.messages import say
from keras_attention.applications.common.run_folder import RunFolder
from keras_attention.applications.common.starting import resume_run, start_run
from keras_attention.applications.common.training import (
    Outcome,
    model_scope,
    start_from_seed,
    train,
)
from keras_attention.applications.summarization.config import SPLITS, SummarizationConfig
from keras_attention.applications.summarization.documents import Corpus, has_split, load_corpus
from keras_attention.applications.summarization.encoding import (
    DocumentEncoder,
    encode_corpus,
    make_batches,
)
from keras_attention.applications.summarization.losses import NegativeLogLikelihood
from keras_attention.applications.summarization.run import TASK, WORDS, load_run
from keras_attention.text import PAD_ID, WordTokenizer


def train_summarization(config: SummarizationConfig, output: Path | str) -> Outcome:
    """Train a model into the new run folder `output`.

    Raises:
        UserError: if the folder exists, or data or configuration are wrong; nothing is left then.
    """
    return start_run(with_absolute_paths(config), output, _prepare, _fit)


def _prepare(config: SummarizationConfig, output: Path | str) -> None:
    """Make the run folder."""
    for split, what in (("train", "training data"), ("dev", "development set")):
        if not has_split(config.data, split):
            raise UserError(f"name the {what}: --data.{split}_file F, or --data.dataset reports.")
    corpus = load_corpus(config.data, "train")
    tokenizer = train_tokenizer(config, corpus)
    # What is refused must not leave a run folder: it could not be resumed with other data.
    encoder = DocumentEncoder(tokenizer, config)
    encode_corpus(corpus, encoder)
    encode_corpus(load_corpus(config.data, "dev"), encoder, skip=False)
    with RunFolder.prepare(output, TASK) as folder:
        save_config(config, folder / "config.yaml")
        tokenizer.save(folder / "tokenizers", WORDS)


def resume_summarization(output: Path | str, config: SummarizationConfig) -> Outcome:
    """Continue a run as if it had never stopped.

    Args:
        output: the run folder.
        config: the run's own configuration, in which `epochs` (but with schedule cosine),
            `max_minutes` and `patience` may have been changed.

    Raises:
        UserError: if another key was changed, or another process trains this run.
    """
    return resume_run(with_absolute_paths(config), output, _fit)


def _fit(output: Path | str, prepared: None) -> Outcome:
    config = on_all_replicas(load_config(SummarizationConfig, [RunFolder(output).config]))
    start_from_seed(config.training)
    with model_scope(config) as workers:
        run = load_run(output, weights=False)
    encoded = encode_corpus(load_corpus(config.data, "train"), run.encoder)
    say(encoded.report)
    sizes = {
        "batch_size": config.training.batch_size,
        "hierarchical": run.model.is_hierarchical,
    }
    batches = make_batches(encoded, seed=config.training.seed, **sizes)
    development = encode_corpus(load_corpus(config.data, "dev"), run.encoder, skip=False)
    say(development.report)
    dev_batches = make_batches(development, shuffle=False, lengths=batches.lengths, **sizes)
    say(
        f"{config.model.architecture}: {run.model.count_params():,} weights; {len(batches)} "
        f"batches of {config.training.batch_size} in {len(batches.lengths)} shapes"
    )
    return train(
        run.folder,
        config.training,
        run.model,
        NegativeLogLikelihood(),
        batches.to_dataset,
        len(batches),
        Development(run.model, dev_batches.to_dataset(epochs=1)),
        workers=workers,
    )


class Development:
    """The development set: called, it gives `val_loss`, the mean loss of a word.

    Args:
        model: the model, measured as it is when called.
        dataset: its batches.
    """

    def __init__(self, model, dataset: Iterable):
        self._dataset = dataset
        ranks = {"source": 3, "target": 2, "labels": 2}
        self._log_likelihood = compiled(lambda batch: model(batch, training=False), model, ranks)

    def __call__(self) -> dict[str, float]:
        total, words = 0.0, 0
        for inputs, labels in self._dataset:
            real = np.asarray(labels) != PAD_ID
            total -= float(np.sum(np.asarray(self._log_likelihood(inputs)) * real))
            words += int(real.sum())
        return {"val_loss": total / words}


def train_tokenizer(config: SummarizationConfig, corpus: Corpus) -> WordTokenizer:
    """Choose the vocabulary, from documents and summaries alike."""
    section = config.tokenizer
    lines = [line for each in corpus.documents for line in (*each.sentences, *each.summaries)]
    try:
        return WordTokenizer.train(
            lines,
            vocabulary_size=section.vocabulary_size,
            min_count=section.min_count,
            lowercase=section.lowercase,
        )
    except ValueError as error:
        raise UserError(f"{corpus.name}: {error}.") from None


def with_absolute_paths(config: SummarizationConfig) -> SummarizationConfig:
    """Return `config` with absolute paths, so that a run can be used from any folder."""
    names = ["folder", *(f"{split}_file" for split in SPLITS)]
    given = {name: getattr(config.data, name) for name in names}
    paths = {name: str(Path(path).expanduser().absolute()) for name, path in given.items() if path}
    return dataclasses.replace(config, data=dataclasses.replace(config.data, **paths))
