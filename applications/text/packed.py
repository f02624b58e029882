"""Sequences of ids in one array, for corpora of millions of sentences."""

import copy
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .tokenizer import END_ID, PAD_ID, START_ID

Ends = tuple[tuple[int, ...], tuple[int, ...]]


class PackedIds(Sequence[Any]):
    """Sequences of ids, end to end in one int32 array, which read like a list of lists.

    An id takes 4 bytes, not 8 and the integer's 28 more.

    Args:
        sequences: lists of ids; they may come from a generator, and none is kept.

    Example:

    >>> ids = PackedIds([[5, 6], [7]])
    >>> ids[0], ids.lengths.tolist()
    ([5, 6], [2, 1])
    >>> ids.between(before=2).padded([1, 0], 3).tolist()
    [[2, 7, 0], [2, 5, 6]]
    """

    def __init__(self, sequences: Iterable[Sequence[int]] = ()) -> None:
        flat, lengths = array("i"), array("q")
        for sequence in sequences:
            flat.extend(sequence)
            lengths.append(len(sequence))
        self._flat = np.frombuffer(flat, np.int32) if flat else np.zeros(0, np.int32)
        self._set(np.frombuffer(lengths, np.int64) if lengths else np.zeros(0, np.int64))

    def _set(
        self, lengths: np.ndarray, starts: np.ndarray | None = None, ends: Ends = ((), ())
    ) -> None:
        self._inner = lengths
        self._starts = np.cumsum(lengths) - lengths if starts is None else starts
        self._before, self._after = ends
        self.lengths = lengths + sum(map(len, ends))
        """How many ids each sequence has."""

    def _with(self, lengths: np.ndarray, starts: np.ndarray, ends: Ends) -> "PackedIds":
        other = copy.copy(self)
        other._set(lengths, starts, ends)
        return other

    def take(self, rows: Sequence[int] | np.ndarray | slice) -> "PackedIds":
        """Return the sequences of some rows; the ids are not copied."""
        return self._with(self._inner[rows], self._starts[rows], (self._before, self._after))

    def cut(self, length: int | None) -> "PackedIds":
        """Return the first ids of each sequence, at most so many; the ids are not copied."""
        shorter = self._inner if length is None else np.minimum(self._inner, length)
        return self._with(shorter, self._starts, (self._before, self._after))

    def between(self, before: int | None = None, after: int | None = None) -> "PackedIds":
        """Return the sequences with an id before or after each; the others are not copied."""
        first, last = (() if each is None else (each,) for each in (before, after))
        return self._with(self._inner, self._starts, (first, last))

    def padded(self, rows: Sequence[int] | np.ndarray, length: int) -> np.ndarray:
        """Return sequences as an int32 array `(len(rows), length)`; row -1 is padding alone."""
        rows = np.asarray(rows)
        first = len(self._before)
        columns = np.arange(length)[None] - first
        inner = np.where(rows < 0, -first - 1, self._inner[rows])[:, None]
        is_id = (columns >= 0) & (columns < inner)
        ids = np.full(is_id.shape, PAD_ID, np.int32)
        ids[is_id] = self._flat[(self._starts[rows][:, None] + columns)[is_id]]
        for token in self._before:
            ids[(columns == -1) & (inner >= 0)] = token
        for token in self._after:
            ids[(columns == inner) & (inner >= 0)] = token
        return ids

    def matrix(self) -> np.ndarray:
        """Return all sequences as an int32 array; at least one column."""
        return self.padded(np.arange(len(self)), int(self.lengths.max(initial=1)))

    def __len__(self) -> int:
        return len(self._inner)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return self.take(row)
        start, length = self._starts[row], self._inner[row]
        return [*self._before, *self._flat[start : start + length].tolist(), *self._after]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (list, PackedIds)) or len(self) != len(other):
            return False
        return all(own == each for own, each in zip(self, other, strict=True))


def read_and_written(
    read: PackedIds, written: PackedIds | None = None
) -> tuple[PackedIds, PackedIds]:
    """Return what a decoder reads, the start first, and what it has to write, the end last.

    Args:
        read: the ids of its outputs.
        written: the ids to write, where they are others.
    """
    written = read if written is None else written
    return read.between(before=START_ID), written.between(after=END_ID)


def join_sentences(sentences: Iterable[Sequence[int]]) -> list[int]:
    """Return the ids of sentences as one list, with `END_ID` between them as a mark.

    No tokenizer gives that id.
    """
    return [token for sentence in sentences for token in (END_ID, *sentence)][1:]


def in_sentences(ids: np.ndarray) -> np.ndarray:
    """Cut flat ids `(B, S)` at their marks, into `(B, N, W)` padded with 0."""
    is_mark = ids == END_ID
    number = np.cumsum(is_mark, axis=1)
    is_word = (ids != PAD_ID) & ~is_mark
    place = np.arange(ids.shape[1])
    begin = np.maximum.accumulate(np.where(is_mark, place + 1, 0), axis=1)
    row, column = np.nonzero(is_word)
    sentence, word = number[row, column], column - begin[row, column]
    shape = (len(ids), max(1, sentence.max(initial=0) + 1), max(1, word.max(initial=0) + 1))
    result = np.full(shape, PAD_ID, ids.dtype)
    result[row, sentence, word] = ids[row, column]
    return result
