"""Texts of a file, kept small: a corpus of ten million sentences is no list of strings."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np


class Lines(Sequence):
    """Texts, end to end as UTF-8 in one buffer; a text is made anew each time it is asked for.

    A line takes its bytes and 16 more, where a string of its own takes 57 more, and up to four
    bytes for a letter. It reads like a list of strings.
    """

    def __init__(self, texts: Iterable[str]):
        content, ends = bytearray(), array("q", [0])
        for text in texts:
            content += text.encode("utf-8", "surrogatepass")
            ends.append(len(content))
        self._set(content, ends)

    def _set(self, content: bytearray, ends: array) -> None:
        self._content = content
        places = np.frombuffer(ends, np.int64)
        self._starts = places[:-1]
        self._ends = places[1:]

    @classmethod
    def columns(cls, rows: Iterable[Sequence[str]], count: int) -> list["Lines"]:
        """Return the columns of rows that have `count` texts each, and are gone through once."""
        parts = [(bytearray(), array("q", [0])) for _ in range(count)]
        for row in rows:
            for (content, ends), text in zip(parts, row, strict=True):
                content += text.encode("utf-8", "surrogatepass")
                ends.append(len(content))
        found = [cls.__new__(cls) for _ in parts]
        for column, part in zip(found, parts, strict=True):
            column._set(*part)
        return found

    def take(self, rows: Sequence[int] | np.ndarray) -> "Lines":
        """Return the texts of some rows; they are not copied."""
        other = Lines.__new__(Lines)
        other._content = self._content
        other._starts, other._ends = self._starts[rows], self._ends[rows]
        return other

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, row):
        if isinstance(row, slice):
            return self.take(row)
        return self._text(self._starts[row], self._ends[row])

    def __iter__(self) -> Iterator[str]:
        return map(self._text, self._starts, self._ends)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (list, Lines)) and list(self) == list(other)

    def _text(self, start: int, end: int) -> str:
        return self._content[start:end].decode("utf-8", "surrogatepass")


def taken(column: Sequence, rows: Sequence[int] | np.ndarray) -> Sequence:
    """Return some rows of a column: a list, an array of any rank, `Lines` or packed ids."""
    if isinstance(column, np.ndarray):
        return column[rows]
    return column.take(rows) if hasattr(column, "take") else [column[row] for row in rows]


def in_chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield lists of `size` items each, the last one, and one before an error, perhaps shorter."""
    chunk: list[Any] = []
    try:
        for item in items:
            chunk.append(item)
            if len(chunk) == size:
                yield chunk
                chunk = []
    except ValueError:  # what came before it can be worked on
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk
