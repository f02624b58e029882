"""Training a translation model: from a configuration to a run folder with weights."""

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from keras_attention.applications.common.backend import compiled
from keras_attention.applications.common.config import load_config, save_config
from keras_attention.applications.common.distribute_config import on_all_replicas
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.messages import say
from keras_attention.applications.common.reporting import TokenCount
from keras_attention.applications.common.run_folder import RunFolder
from keras_attention.applications.common.starting import resume_run, start_run
from keras_attention.applications.common.training import (
    Outcome,
    model_scope,
    start_from_seed,
    train,
)
from keras_attention.applications.translation.config import (
    SPLITS,
    TrainingConfig,
    TranslationConfig,
)
from keras_attention.applications.translation.corpus import EncodedCorpus, ParallelCorpus
from keras_attention.applications.translation.data import (
    encode_corpus,
    has_split,
    load_corpus,
    make_batches,
)
from keras_attention.applications.translation.loss import training_loss
from keras_attention.applications.translation.run import SOURCE, TARGET, TASK, load_run, new_model
from keras_attention.applications.translation.search import without_unwritable
from keras_attention.losses import masked_sparse_categorical_crossentropy
from keras_attention.metrics import bleu
from keras_attention.text import SentencePieceTokenizer, Tokenizer, WordTokenizer


def train_translation(config: TranslationConfig, output: Path | str) -> Outcome:
    """Train a model into the new run folder `output`.

    Args:
        config: what to train, and on which data.
        output: the folder to make.

    Returns:
        How the training ended.

    Raises:
        UserError: if the folder exists, or data or configuration are wrong; nothing is left then.
    """
    return start_run(with_absolute_paths(config), output, _prepare, _fit)


def _prepare(config: TranslationConfig, output: Path | str) -> EncodedCorpus:
    """Make the run folder; return the encoded training corpus."""
    _check_data(config)
    train_corpus = load_corpus(config.data, "train")
    tokenizers = train_tokenizers(config, train_corpus)
    new_model(config, *tokenizers)  # a model that cannot be must not leave a run folder
    # Nor must sentences that are refused: a run cannot be resumed with another data section.
    encoded = encode_corpus(train_corpus, *tokenizers, config.data)
    encode_corpus(load_corpus(config.data, "dev"), *tokenizers, config.data)
    with RunFolder.prepare(output, TASK) as folder:
        save_config(config, folder / "config.yaml")
        for tokenizer, name in zip(tokenizers, (SOURCE, TARGET), strict=True):
            tokenizer.save(folder / "tokenizers", name)
    return encoded


def resume_translation(output: Path | str, config: TranslationConfig) -> Outcome:
    """Continue a run as if it had never stopped.

    Args:
        output: the run folder.
        config: the run's own configuration, in which `epochs` (but with schedule cosine),
            `max_minutes` and `patience` may have been changed.

    Returns:
        How the training ended.

    Raises:
        UserError: if another key was changed, or another process trains this run.
    """
    return resume_run(with_absolute_paths(config), output, _fit)


def _fit(output: Path | str, encoded: EncodedCorpus | None) -> Outcome:
    config = on_all_replicas(load_config(TranslationConfig, [RunFolder(output).config]))
    start_from_seed(config.training)
    with model_scope(config) as workers:
        run = load_run(output, weights=False)
        metrics = [TokenCount()]
    if encoded is None:
        corpus = load_corpus(config.data, "train")
        encoded = encode_corpus(corpus, run.source_tokenizer, run.target_tokenizer, config.data)
    say(str(encoded.report))
    batches = make_batches(encoded, seed=config.training.seed, **batch_sizes(config.training))
    development = Development(run, batches.lengths)
    say(str(development.report))
    say(
        f"{config.model.architecture}: {run.model.count_params():,} weights; "
        f"{len(batches)} batches {_batch_words(config.training)} in "
        f"{len(batches.lengths)} shapes, {batches.padding_fraction:.0%} padding"
    )
    return train(
        run.folder,
        config.training,
        run.model,
        training_loss(run.model, config.training.label_smoothing),
        batches.to_dataset,
        len(batches),
        development,
        metrics=metrics,
        workers=workers,
    )


class Development:
    """The development set: called, it gives the figures of an epoch.

    `val_loss` is the mean negative log-likelihood of a token, without label smoothing, and
    `val_perplexity` its exponential; `val_bleu`, of greedy search, comes in where training is
    stopped by it.

    Args:
        run: the run; its model is measured as it is when called.
        lengths: the bucket lengths of the training batches.
    """

    def __init__(self, run, lengths):
        config = run.config
        self.corpus = load_corpus(config.data, "dev")
        encoded = encode_corpus(
            self.corpus, run.source_tokenizer, run.target_tokenizer, config.data
        )
        self.report = encoded.report
        sizes = batch_sizes(config.training)
        batches = make_batches(encoded, shuffle=False, lengths=lengths, **sizes)
        self._perplexity = perplexity_of(run.model)
        self._dataset = batches.to_dataset(epochs=1)
        self._translator = None
        if config.training.early_stopping == "bleu":
            from keras_attention.applications.translation.translator import Translator

            self._translator = Translator(run)

    def __call__(self) -> dict[str, float]:
        perplexity = self._perplexity(self._dataset)
        figures = {"val_loss": math.log(perplexity), "val_perplexity": perplexity}
        if self._translator is not None:
            results = self._translator.translate(self.corpus.source, beam_size=1)
            texts = [result.text for result in results]
            figures["val_bleu"] = bleu(texts, self.corpus.target).value
        return figures


def batch_sizes(config: TrainingConfig) -> dict[str, int | None]:
    """Return the size of a batch as `make_batches` takes it."""
    if config.batch_tokens:
        return {"batch_size": None, "tokens_per_batch": config.batch_tokens}
    return {"batch_size": config.batch_size}


def _batch_words(config: TrainingConfig) -> str:
    words = f"of {config.batch_tokens:,} tokens" if config.batch_tokens else ""
    words = words or f"of {config.batch_size}"
    return words + (f" ({config.accumulate} an update)" if config.accumulate > 1 else "")


def perplexity_of(model) -> Callable[[Iterable], float]:
    """Return a function from batches to the perplexity of `model` on them.

    Probabilities are those of search and of `Translator.align`: of tokens that can be written.
    """

    def likelihood(inputs, labels):
        logits = without_unwritable(model(inputs, training=False))
        return masked_sparse_categorical_crossentropy(labels, logits)

    losses = compiled(likelihood, model, {"source": 2, "target": 2}, 2)

    def measure(batches):
        total, tokens = 0.0, 0
        for inputs, labels in batches:
            total += np.sum(np.asarray(losses(inputs, labels)), dtype="float64")
            tokens += np.count_nonzero(labels)
        with np.errstate(over="ignore"):  # inf, which ends the training
            return float(np.exp(total / tokens))

    return measure


def train_tokenizers(config: TranslationConfig, corpus: ParallelCorpus) -> list[Tokenizer]:
    """Train the tokenizers of both sides on the training text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tokenizers = _train_both(config, corpus)
    for warning in dict.fromkeys(str(each.message) for each in caught):
        say(f"note: {warning}")
    return tokenizers


def _train_both(config: TranslationConfig, corpus: ParallelCorpus) -> list[Tokenizer]:
    if config.tokenizer.shared:
        tokenizer = _train_tokenizer(config, corpus.source + corpus.target)
        return [tokenizer, tokenizer]
    return [_train_tokenizer(config, side) for side in (corpus.source, corpus.target)]


def _train_tokenizer(config: TranslationConfig, lines: list[str]) -> Tokenizer:
    section = config.tokenizer
    common = {"vocabulary_size": section.vocabulary_size, "lowercase": section.lowercase}
    if section.kind == "words":
        return WordTokenizer.train(lines, min_count=section.min_count, **common)
    return SentencePieceTokenizer.train(lines, model_type=section.model_type, **common)


def with_absolute_paths(config: TranslationConfig) -> TranslationConfig:
    """Return `config` with absolute paths, so that a run can be used from any folder."""
    names = ["folder", *(f"{split}_{side}" for split in SPLITS for side in (SOURCE, TARGET, "tsv"))]
    given = {name: getattr(config.data, name) for name in names}
    paths = {name: str(Path(path).expanduser().absolute()) for name, path in given.items() if path}
    return dataclasses.replace(config, data=dataclasses.replace(config.data, **paths))


def _check_data(config: TranslationConfig) -> None:
    if not has_split(config.data, "train"):
        raise UserError(
            "name the training data: --data.train_source F --data.train_target F, "
            "--data.train_tsv F, or --data.dataset dates."
        )
    if not has_split(config.data, "dev"):
        raise UserError(
            "name a development set, which training is judged by: --data.dev_source F "
            "--data.dev_target F, or --data.dev_tsv F."
        )
