"""From the `data` section of a configuration to sentence pairs, ids and batches."""

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import read_lines
from keras_attention.applications.common.preprocessor import as_texts, check_equally_many
from keras_attention.applications.translation import dates, multi30k
from keras_attention.applications.translation.config import SPLITS, DataConfig
from keras_attention.text import END_ID, START_ID, BucketedBatches, Tokenizer


@dataclasses.dataclass(frozen=True)
class Report:
    """How many pairs a corpus has, and what became of the others.

    Args:
        name: where they come from.
        pairs: pairs that are there.
        empty: pairs left out because a side had no words.
        too_long: pairs left out because a side had too many tokens.
        truncated: pairs that are there, cut to the longest length allowed.
    """

    name: str
    pairs: int
    empty: int = 0
    too_long: int = 0
    truncated: int = 0

    def __str__(self) -> str:
        parts = [f"{self.name}: {self.pairs:,} sentence pairs"]
        if self.empty:
            parts.append(f"{self.empty:,} empty ones left out")
        if self.too_long:
            parts.append(f"{self.too_long:,} too long ones left out")
        if self.truncated:
            parts.append(f"{self.truncated:,} of them cut short")
        return ", ".join(parts)


@dataclasses.dataclass(frozen=True)
class ParallelCorpus:
    """Sentences and their translations.

    Args:
        source: sentences.
        target: their translations.
        names: where the two sides come from, for messages.
        lines: the line of each pair there, from 1.
        report: how many, and what was left out.
        data: what to do with sentences that are too long or empty; None keeps all that have words.
        weights: a weight for each pair, or None.
    """

    source: list[str]
    target: list[str]
    names: tuple[str, str]
    lines: Sequence[int]
    report: Report
    data: DataConfig | None = None
    weights: Sequence[float] | None = None

    def __len__(self) -> int:
        return len(self.source)

    def split(self, fraction: float) -> tuple["ParallelCorpus", "ParallelCorpus"]:
        """Return the first pairs, and the last ones, which are `fraction` of all."""
        first = len(self) - max(1, round(fraction * len(self)))
        if first < 1:
            raise ValueError(
                f"Too few pairs to hold {fraction:g} of them out. Received: {len(self)}"
            )
        return self.part(range(first)), self.part(range(first, len(self)))

    def part(self, rows: Sequence[int]) -> "ParallelCorpus":
        """Return the corpus of some of the pairs."""
        columns = {
            name: None if column is None else [column[row] for row in rows]
            for name, column in (
                ("source", self.source),
                ("target", self.target),
                ("lines", self.lines),
                ("weights", self.weights),
            )
        }
        report = dataclasses.replace(self.report, pairs=len(rows))
        return dataclasses.replace(self, **columns, report=report)


@dataclasses.dataclass(frozen=True)
class EncodedCorpus:
    """A corpus as ids, without start and end.

    Args:
        source: ids of each source sentence.
        target: ids of each target sentence.
        report: how many, and what was left out.
        weights: a weight for each pair, or None.
    """

    source: list[list[int]]
    target: list[list[int]]
    report: Report
    weights: list[float] | None = None


def has_split(data: DataConfig, split: str) -> bool:
    """Return whether the configuration names data for `split`."""
    if split == "dev" and data.dev_fraction and has_split(data, "train"):
        return True
    return bool(data.dataset or getattr(data, f"{split}_source") or getattr(data, f"{split}_tsv"))


def check_splits(data: DataConfig) -> None:
    """Refuse a configuration that names no training data or no development set."""
    if not has_split(data, "train"):
        raise UserError(
            "name the training data: --data.train_source F --data.train_target F, "
            "--data.train_tsv F, or --data.dataset dates."
        )
    if not has_split(data, "dev"):
        raise UserError(
            "name a development set, which training is judged by: --data.dev_source F "
            "--data.dev_target F, --data.dev_tsv F, or a part of the training data, "
            "--data.dev_fraction 0.05."
        )


def load_corpus(data: DataConfig, split: str) -> ParallelCorpus:
    """Return the sentence pairs of a split.

    Files that the configuration names for the split go before those of a known data set.

    Args:
        data: the `data` section.
        split: `"train"`, `"dev"` or `"test"`.

    Raises:
        UserError: where there is no such split, or its files are missing, empty, of unequal
            length, not UTF-8, or hold an empty line while `on_empty` is `"error"`.
    """
    if split not in SPLITS:
        raise UserError(f"`split` must be one of {list(SPLITS)}. Received: {split!r}")
    if not has_split(data, split):
        raise UserError(
            f"There is no {split} data: give data.{split}_source and data.{split}_target, or "
            f"data.{split}_tsv."
        )
    held_out = data.dev_fraction and not (data.dev_source or data.dev_tsv or data.dataset)
    source, target, names = _read(data, "train" if held_out and split == "dev" else split)
    if len(source) != len(target):
        raise UserError(
            f"Parallel files must have equally many lines: {names[0]} has {len(source)}, "
            f"{names[1]} has {len(target)}."
        )
    corpus = _without_empty(source, target, names, data)
    if not held_out or split == "test":
        return corpus
    order = np.random.default_rng(len(corpus)).permutation(len(corpus))
    count = max(1, round(data.dev_fraction * len(corpus)))
    return corpus.part(np.sort(order[:count] if split == "dev" else order[count:]))


def in_memory(x: Any, y: Any = None, weights: Sequence[float] | None = None) -> ParallelCorpus:
    """Return the corpus of sentences that are at hand.

    Args:
        x: sentences, or pairs of them and their translations.
        y: the translations, where `x` does not hold them.
        weights: a weight for each pair.

    Raises:
        ValueError: where there are none, one is empty or no string, or columns differ in length.
    """
    if y is None:
        pairs = list(x) if hasattr(x, "__iter__") else [x]
        if any(isinstance(pair, str) or np.shape(pair) != (2,) for pair in pairs):
            raise ValueError(
                "Give sources and targets, as `fit(x, y)`, or pairs of strings as `x`. "
                f"Received: x={pairs[:1]}"
            )
        x, y = ([pair[side] for pair in pairs] for side in (0, 1))
    sources, targets = as_texts(x, "x"), as_texts(y, "y")
    weighted = {} if weights is None else {"sample_weight": weights}
    check_equally_many(x=sources, y=targets, **weighted)
    names, lines = ("x", "y"), range(1, len(sources) + 1)
    for line, pair in enumerate(zip(sources, targets, strict=True)):
        for name, text in zip(names, pair, strict=True):
            if not text.strip():
                raise ValueError(
                    f"A sentence to train with should have words. Received: {name}[{line}]={text!r}"
                )
    if not sources:
        raise ValueError("Training needs at least one pair of sentences. Received: none")
    report = Report("the pairs given", len(sources))
    return ParallelCorpus(sources, targets, names, lines, report, weights=weights)


def encode_corpus(
    corpus: ParallelCorpus, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer
) -> EncodedCorpus:
    """Return the ids of a corpus; too long sentences as its `data` says.

    Raises:
        UserError: where a sentence is too long or has no tokens and the configuration makes
            that an error, or no pair is left.
    """
    counts = {"empty": corpus.report.empty, "too_long": 0, "truncated": 0}
    source, target, weights = [], [], []
    limit = corpus.data and corpus.data.max_length
    pairs = zip(
        corpus.lines,
        source_tokenizer.encode(corpus.source),
        target_tokenizer.encode(corpus.target),
        strict=True,
    )
    for place, (line, *pair) in enumerate(pairs):
        fault = _fault(pair, corpus, line)
        if fault:
            counts[fault] += 1
        if fault in (None, "truncated"):
            source.append(pair[0][:limit])
            target.append(pair[1][:limit])
            if corpus.weights is not None:
                weights.append(float(corpus.weights[place]))
    name = corpus.report.name
    if not source:
        raise UserError(
            f"{name}: no sentence pair is left ({counts['too_long']} longer than "
            f"data.max_length {limit}, {counts['empty']} empty)."
        )
    report = Report(name, len(source), **counts)
    return EncodedCorpus(source, target, report, weights or None)


def make_batches(
    corpus: EncodedCorpus,
    batch_size: int | None = None,
    tokens_per_batch: int | None = None,
    seed: int = 0,
    shuffle: bool = True,
    number_of_buckets: int = 8,
    lengths: Sequence[tuple[int, int, int]] | None = None,
) -> BucketedBatches:
    """Return batches `({"source", "target"}, labels)` of a few fixed shapes.

    `source` (B, S) are the source's ids, `target` (B, T) start and the target's, `labels` (B, T)
    the target's and end; all int32 and padded with 0.

    Args:
        corpus: ids.
        batch_size: sentences of a batch. Give this or `tokens_per_batch`.
        tokens_per_batch: tokens of a batch, padding included, on its longer side.
        seed: the seed of the order.
        shuffle: draw a new order in each epoch.
        number_of_buckets: how many shapes to choose at most.
        lengths: the bucket lengths to use, those of the training batches (`batches.lengths`), so
            that no new shapes are compiled; one more comes in where none holds the longest
            sentences of this corpus.
    """
    inputs = [[START_ID, *ids] for ids in corpus.target]
    labels = [[*ids, END_ID] for ids in corpus.target]
    columns = [corpus.source, inputs, labels]
    assemble = _assemble
    if corpus.weights is not None:
        # The number of each row, from 1: 0 is a row of padding.
        columns.append([[row] for row in range(1, len(inputs) + 1)])
        weights = np.array([0.0, *corpus.weights], "float32")

        def assemble(*arrays):
            return *_assemble(*arrays[:3]), weights[arrays[3][:, 0]]

    if lengths is not None:
        lengths = list(lengths)
        longest = tuple(max(map(len, column)) for column in columns)
        if not any(all(map(operator.ge, bucket, longest)) for bucket in lengths):
            lengths.append(longest)
    return BucketedBatches(
        tuple(columns),
        batch_size=batch_size,
        tokens_per_batch=tokens_per_batch,
        lengths=lengths,
        number_of_buckets=number_of_buckets,
        seed=seed,
        shuffle=shuffle,
        assemble=assemble,
    )


def _assemble(source: np.ndarray, inputs: np.ndarray, labels: np.ndarray):
    return {"source": source, "target": inputs}, labels


def _read(data: DataConfig, split: str) -> tuple[list[str], list[str], tuple[str, str]]:
    """Return the lines of the two sides as they are, and the names of the files."""
    tsv = getattr(data, f"{split}_tsv")
    if tsv:
        return *_columns(tsv), (str(tsv), str(tsv))
    files = getattr(data, f"{split}_source"), getattr(data, f"{split}_target")
    if not files[0] and data.dataset == "dates":
        name = f"dates ({split})"
        return *dates.generate(split), (name, name)
    if not files[0]:
        languages = (data.source_language, data.target_language)
        files = tuple(multi30k.file_of(split, code, data.folder) for code in languages)
    source, target = map(read_lines, files)
    return source, target, (str(files[0]), str(files[1]))


def _columns(path: str) -> tuple[list[str], list[str]]:
    rows = [line.split("\t") for line in read_lines(path)]
    for number, row in enumerate(rows, 1):
        if len(row) != 2 and row != [""]:
            raise UserError(
                f"{path}, line {number}: expected source, tab, target. Received: {len(row)} "
                "columns; cut -f1,2 takes the first two of a wider file."
            )
    return [row[0] for row in rows], [row[-1] for row in rows]


def _without_empty(source, target, names, data: DataConfig) -> ParallelCorpus:
    total, kept = len(source), []
    for line, pair in enumerate(zip(source, target, strict=True), 1):
        if pair[0].strip() and pair[1].strip():
            kept.append((line, *pair))
        else:
            _refuse_empty(names[0 if not pair[0].strip() else 1], line, data.on_empty)
    name = names[0] if names[0] == names[1] else f"{names[0]}, {names[1]}"
    if not kept:
        raise UserError(f"{name}: every line is empty.")
    lines, source, target = map(list, zip(*kept, strict=True))
    report = Report(name, len(kept), empty=total - len(kept))
    return ParallelCorpus(source, target, names, lines, report, data)


def _fault(pair, corpus: ParallelCorpus, line: int) -> str | None:
    """Return which count of the report a pair of id lists belongs to, None for a good one."""
    data, names = corpus.data, corpus.names
    if not all(pair):
        _refuse_empty(names[0 if not pair[0] else 1], line, data.on_empty if data else "error")
        return "empty"
    longest = max(map(len, pair))
    if data is None or longest <= data.max_length:
        return None
    if data.on_too_long == "error":
        raise UserError(
            f"{names[0 if len(pair[0]) == longest else 1]}, line {line}: {longest} tokens, more "
            f"than data.max_length {data.max_length}; raise it, or set data.on_too_long to skip "
            "or truncate."
        )
    return "too_long" if data.on_too_long == "skip" else "truncated"


def _refuse_empty(name: str, line: int, on_empty: str) -> None:
    if on_empty == "error":
        raise UserError(
            f"{name}, line {line}: empty, where a sentence is expected; correct the file, or set "
            "data.on_empty to skip."
        )
