"""From the `data` section of a configuration to sentence pairs, ids and batches."""

import operator
from collections.abc import Sequence

import numpy as np

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.text_files import read_lines
from keras_attention.applications.translation import dates, multi30k
from keras_attention.applications.translation.config import SPLITS, DataConfig
from keras_attention.applications.translation.corpus import (
    EncodedCorpus,
    ParallelCorpus,
    Report,
)
from keras_attention.text import END_ID, START_ID, BucketedBatches, Tokenizer


def has_split(data: DataConfig, split: str) -> bool:
    """Return whether the configuration names data for `split`."""
    return bool(data.dataset or getattr(data, f"{split}_source") or getattr(data, f"{split}_tsv"))


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
    source, target, names = _read(data, split)
    if len(source) != len(target):
        raise UserError(
            f"Parallel files must have equally many lines: {names[0]} has {len(source)}, "
            f"{names[1]} has {len(target)}."
        )
    return _without_empty(source, target, names, data.on_empty)


def encode_corpus(
    corpus: ParallelCorpus,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    data: DataConfig,
) -> EncodedCorpus:
    """Return the ids of a corpus; sentences above `data.max_length` tokens as configured.

    Raises:
        UserError: where a sentence is too long or has no tokens and the configuration makes
            that an error, or no pair is left.
    """
    counts = {"empty": corpus.report.empty, "too_long": 0, "truncated": 0}
    kept = []
    pairs = zip(
        corpus.lines,
        source_tokenizer.encode(corpus.source),
        target_tokenizer.encode(corpus.target),
        strict=True,
    )
    for line, *pair in pairs:
        fault = _fault(pair, corpus.names, line, data)
        if fault:
            counts[fault] += 1
        if fault in (None, "truncated"):
            kept.append([ids[: data.max_length] for ids in pair])
    name = corpus.report.name
    if not kept:
        raise UserError(
            f"{name}: no sentence pair is left ({counts['too_long']} longer than "
            f"data.max_length {data.max_length}, {counts['empty']} empty)."
        )
    source, target = map(list, zip(*kept, strict=True))
    return EncodedCorpus(source, target, Report(name, len(kept), **counts))


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
    columns = (corpus.source, inputs, labels)
    if lengths is not None:
        lengths = list(lengths)
        longest = tuple(max(map(len, column)) for column in columns)
        if not any(all(map(operator.ge, bucket, longest)) for bucket in lengths):
            lengths.append(longest)
    return BucketedBatches(
        columns,
        batch_size=batch_size,
        tokens_per_batch=tokens_per_batch,
        lengths=lengths,
        number_of_buckets=number_of_buckets,
        seed=seed,
        shuffle=shuffle,
        assemble=_assemble,
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


def _without_empty(source, target, names, on_empty) -> ParallelCorpus:
    total, kept = len(source), []
    for line, pair in enumerate(zip(source, target, strict=True), 1):
        if pair[0].strip() and pair[1].strip():
            kept.append((line, *pair))
        else:
            _refuse_empty(names[0 if not pair[0].strip() else 1], line, on_empty)
    name = names[0] if names[0] == names[1] else f"{names[0]}, {names[1]}"
    if not kept:
        raise UserError(f"{name}: every line is empty.")
    lines, source, target = map(list, zip(*kept, strict=True))
    report = Report(name, len(kept), empty=total - len(kept))
    return ParallelCorpus(source, target, names, lines, report)


def _fault(pair, names: tuple[str, str], line: int, data: DataConfig) -> str | None:
    """Return which count of the report a pair of id lists belongs to, None for a good one."""
    if not all(pair):
        _refuse_empty(names[0 if not pair[0] else 1], line, data.on_empty)
        return "empty"
    longest = max(map(len, pair))
    if longest <= data.max_length:
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
