"""A corpus as ids."""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import UserError
from ..text import PackedIds
from .corpus import Corpus, Report
from .lines import taken


@dataclass(frozen=True)
class Encoded:
    """The examples of a corpus as ids, and what training needs beside them.

    `encoded["source"]` is a column of ids.

    Args:
        ids: the ids of each text of a column, by the name of the column.
        report: what was read, left out, cut and unknown.
        values: arrays with an entry for each example, such as targets, by their names.
        weights: how much training counts each example; None where all count alike.
        groups: how many texts of a column each example has, such as the candidates of a question,
            by the names of such columns and values; an example has one entry of the others.
        rows: which row of the corpus each example is.
        variants: in how many ways `ids` hold each example: all of them in the first, then all in
            the second.

    Example:

    >>> encoded = Encoded({"text": PackedIds([[5, 6], [7]])}, Report("the texts given", 2))
    >>> encoded.take([1])["text"][0], len(encoded)
    ([7], 2)
    """

    ids: Mapping[str, PackedIds]
    report: Report
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    weights: np.ndarray | None = None
    groups: Mapping[str, np.ndarray] = field(default_factory=dict)
    rows: np.ndarray | None = None
    variants: int = 1

    def __getitem__(self, name: str) -> PackedIds:
        return self.ids[name]

    def __len__(self) -> int:
        name, column = next(iter(self.ids.items()))
        return len(self.groups.get(name, column)) // self.variants

    def entries(self, name: str) -> list[np.ndarray]:
        """Return which entries of a column of groups each example has."""
        counts = self.groups[name]
        starts = np.cumsum(counts) - counts
        return [
            np.arange(start, start + count) for start, count in zip(starts, counts, strict=True)
        ]

    def take(self, rows: Sequence[int] | np.ndarray, **changes: Any) -> "Encoded":
        """Return some examples, of which `changes` are others."""

        def chosen(columns: Mapping[str, Any]) -> dict[str, Any]:
            return {name: taken(column, places.get(name, rows)) for name, column in columns.items()}

        places = {}
        for name in self.groups:
            of_rows = self.entries(name)
            places[name] = np.concatenate([np.zeros(0, "int64"), *(of_rows[row] for row in rows)])
        for name in ("weights", "rows"):
            part = getattr(self, name)
            changes.setdefault(name, None if part is None else taken(part, rows))
        return dataclasses.replace(
            self,
            ids=chosen(self.ids),
            values=chosen(self.values),
            groups={name: counts[rows] for name, counts in self.groups.items()},
            **changes,
        )


def encoded_of(
    corpus: Corpus,
    ids: Mapping[str, PackedIds],
    values: Mapping[str, np.ndarray],
    wrong: np.ndarray,
    reason_of: Callable[[int], str | None],
    long: np.ndarray,
) -> Encoded:
    """Return the examples of a corpus without the rows that cannot be used, and with its report.

    Args:
        corpus: the corpus, with a row for each example.
        ids: the ids of its columns.
        values: arrays with an entry for each row.
        wrong: whether a row cannot be used.
        reason_of: why, or a `BadLine`, as of `Corpus.left_out`.
        long: whether a row is longer than is read; those that are not `wrong` were cut.

    Raises:
        UserError: where no row is left.
    """
    left_out = corpus.left_out(np.flatnonzero(wrong).tolist(), reason_of)
    rows = np.flatnonzero(~wrong)
    counts = collections.Counter(left_out.values())
    report = corpus.report.without(counts, count=len(rows), cut=int(long[rows].sum()))
    if not len(rows):
        raise UserError(f"{corpus.name}: none of its {report.noun} can be used. {report}")
    weights = None if corpus.weights is None else np.asarray(corpus.weights, "float32")
    encoded = Encoded(ids, report, values, weights, rows=np.arange(len(corpus)))
    return encoded.take(rows)
