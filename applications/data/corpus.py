"""A set of examples: named columns of texts and targets, and where each row comes from."""

import collections
import dataclasses
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..store.bad_lines import BadLine, Line, checked
from .lines import taken


@dataclass(frozen=True)
class Report:
    """What was read of a set, and what was left out, cut or unknown, in plain sentences.

    Args:
        name: where the set comes from.
        count: how many rows it has.
        noun: what a row is, a plural such as `"sentence pairs"`.
        left_out: how many were left out, by the reason.
        cut: how many texts were cut short.
        words, unknown: how many words there are, and how many of them are unknown, where that is
            counted.
        notes: more sentences.
    """

    name: str
    count: int
    noun: str = "examples"
    left_out: Mapping[str, int] = field(default_factory=dict)
    cut: int = 0
    words: int = 0
    unknown: int = 0
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        counts = {f"left out ({reason})": count for reason, count in self.left_out.items()}
        counts["cut short"] = self.cut
        found = [
            f"{count:,} {'was' if count == 1 else 'were'} {what}."
            for what, count in counts.items()
            if count
        ]
        if self.words:
            share = self.unknown / self.words
            found.append(f"{share:.1%} of {self.words:,} words are unknown.")
        noun = self.noun
        if self.count == 1:
            noun = f"{noun[:-3]}y" if noun.endswith("ies") else noun.removesuffix("s")
        return " ".join([f"Read {self.count:,} {noun} from {self.name}.", *self.notes, *found])

    def without(self, left_out: Mapping[str, int], **changes: Any) -> "Report":
        """Return the report after more rows were left out, by the reason."""
        counts = collections.Counter(self.left_out)
        counts.update(left_out)
        return dataclasses.replace(self, left_out=dict(counts), **changes)


class Places(Sequence):
    """Where each row comes from, made when asked for: a row takes 8 bytes.

    Args:
        names: the file of each column, by the name of the column, or one for all; at hand the
            argument.
        numbers: the line of each row, from 1; at hand the index, from 0.
        at_hand: whether the rows come from an argument: `x[2]`, not `F.txt, line 3`.
    """

    def __init__(
        self,
        names: Mapping[str, str] | str,
        numbers: Sequence[int] | np.ndarray,
        at_hand: bool = False,
    ):
        self.names = names
        self.numbers = np.asarray(numbers, np.int64)
        self.at_hand = at_hand

    def take(self, rows: Sequence[int] | np.ndarray) -> "Places":
        """Return the places of some rows."""
        return Places(self.names, self.numbers[rows], self.at_hand)

    def of(self, row: int, column: str | None = None) -> Line | str:
        """Return the place of a row, in the file of a column."""
        names, number = self.names, int(self.numbers[row])
        name = names if isinstance(names, str) else names[column or next(iter(names))]
        return f"{name}[{number}]" if self.at_hand else Line(name, number)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, row):
        return self.take(row) if isinstance(row, slice) else self.of(row)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)


@dataclass(frozen=True)
class Corpus:
    """Columns with an entry for each row, and where the rows come from.

    `corpus["text"]` is a column. Texts of files are `Lines`, which are small.

    Args:
        columns: the columns by their names.
        report: the name of the set, and what was read of it.
        places: file and line of each row, for messages.
        weights: how much training counts each row; None where all count alike.
        handling: by the reason why a row cannot be used, such as `"empty"` or `"too long"`:
            `"error"`, `"skip"` or `"truncate"`. A reason that is missing is an error.
        max_length: how many tokens of a text are read; None for what the preprocessor says.
        keys: what stands before the names of settings in messages: `"data."` where a configuration
            describes the corpus.
        balanced: whether training counts all labels alike.

    Example:

    >>> corpus = corpus_at_hand({"text": ["a", "b", "c"], "label": [1, 0, 1]})
    >>> first, last = corpus.split(0.3)
    >>> first["text"], last["label"], last.place(0)
    (['a', 'b'], [1], 'text[2]')
    """

    columns: Mapping[str, Sequence[Any]]
    report: Report
    places: Sequence[Line | str]
    weights: Sequence[float] | None = None
    handling: Mapping[str, str] = field(default_factory=dict)
    max_length: int | None = None
    keys: str = ""
    balanced: bool = False

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, name: str) -> Sequence[Any]:
        return self.columns[name]

    @property
    def name(self) -> str:
        """Where the set comes from."""
        return self.report.name

    def place(self, row: int, column: str | None = None) -> Line | str:
        """Return where a row, or its entry of a column, comes from."""
        return self.places.of(row, column) if isinstance(self.places, Places) else self.places[row]

    def take(self, rows: Sequence[int] | np.ndarray, **changes: Any) -> "Corpus":
        """Return the corpus of some rows, with changes of its report."""
        return dataclasses.replace(
            self,
            columns={name: taken(column, rows) for name, column in self.columns.items()},
            places=taken(self.places, rows),
            weights=None if self.weights is None else taken(self.weights, rows),
            report=dataclasses.replace(self.report, count=len(rows), **changes),
        )

    def without(self, left_out: Mapping[int, str]) -> "Corpus":
        """Return the corpus without some rows, each with the reason why it is left out."""
        if not left_out:
            return self
        keeps = np.ones(len(self), bool)
        keeps[list(left_out)] = False
        report = self.report.without(collections.Counter(left_out.values()))
        return self.take(np.flatnonzero(keeps), left_out=report.left_out)

    def split(self, fraction: float) -> tuple["Corpus", "Corpus"]:
        """Return the first rows, and the last ones, which are `fraction` of all."""
        first, last = rows_of_parts(len(self), fraction, self.report.noun)
        return self.take(first), self.take(last)

    def handled(self, **handling: str | None) -> "Corpus":
        """Return the corpus with other handling of texts, `too_long="skip"`; None changes none."""
        given = {name.replace("_", " "): how for name, how in handling.items() if how is not None}
        return dataclasses.replace(self, handling={**self.handling, **given})

    def refuse(
        self, row: int, reason: str, problem: str, advice: str = "", column: str | None = None
    ) -> str:
        """Return the reason to leave a row out; raise a `BadLine` where the handling is no skip.

        Args:
            row: the row.
            reason: why it cannot be used.
            problem: what is wrong, as `BadLine` says.
            advice: the way out.
            column: the column that is wrong.
        """
        if self.handling.get(reason, "error") != "skip":
            raise BadLine(self.place(row, column), problem, advice)
        return reason

    def left_out(
        self, rows: Iterable[int], reason_of: Callable[[int], str | None]
    ) -> dict[int, str]:
        """Return the rows to leave out with the reasons why, as `reason_of` says of each.

        One error names all rows for which `reason_of` raises a `BadLine`.
        """

        def reason(row):
            return row, reason_of(row)

        return {row: why for row, why in checked(rows, reason) if why is not None}


def corpus_at_hand(
    columns: Mapping[str, Sequence[Any]],
    weights: Sequence[float] | None = None,
    name: str = "the texts given",
    noun: str = "examples",
    argument: Mapping[str, str] | str | None = None,
) -> Corpus:
    """Return the corpus of columns at hand, all of the same length.

    Args:
        columns: the columns by their names.
        weights: how much training counts each row.
        name, noun: as of `Report`.
        argument: what messages call the columns, each or all; by default as the first column.
    """
    count = len(next(iter(columns.values())))
    places = Places(argument or next(iter(columns)), np.arange(count), at_hand=True)
    return Corpus(dict(columns), Report(name, count, noun), places, weights)


def compact(places: Sequence[Line | str]) -> Sequence[Line | str]:
    """Return places as `Places`, which are small, where all are lines of one file."""
    names = {each.name if isinstance(each, Line) else None for each in places}
    if len(names) != 1 or None in names:
        return places
    return Places(names.pop(), [each.number for each in places])


def rows_of_parts(count: int, fraction: float, what: str) -> tuple[range, range]:
    """Return the first rows of `count`, and the last ones, which are `fraction` of all."""
    if fraction < 0:
        raise ValueError(f"Expected the fraction of {what} to hold out. Received: {fraction:g}")
    first = count - max(1, round(fraction * count))
    if first < 1:
        raise ValueError(
            f"Too few {what} to hold {fraction:g} of them out: give more, or a development set of "
            f"your own. Received: {count}"
        )
    return range(first), range(first, count)


def drawn_parts(
    strata: Sequence[Any],
    seed: int,
    folds: int | None = None,
    fold: int = 0,
    dev_fraction: float = 0.0,
) -> dict[str, list[int]]:
    """Return the rows of `"train"`, `"dev"` and `"test"`, drawn alike from each stratum.

    The draw depends on `seed` alone, and the parts do not overlap. Each keeps the order of the set.

    Args:
        strata: what each row is, such as its label.
        seed: of the draw.
        folds: into how many folds the rows are cut, of which one is the test set; None for none.
        fold: which one.
        dev_fraction: the part of what is left for the development set; of each stratum at least
            one row stays for training.
    """

    def shuffled(draw):
        groups = collections.defaultdict(list)
        for row, stratum in enumerate(strata):
            groups[stratum].append(row)
        for members in groups.values():
            draw.shuffle(members)
        return [groups[stratum] for stratum in sorted(groups)]

    part_of = ["train"] * len(strata)
    if folds:
        drawn = [row for members in shuffled(random.Random(seed)) for row in members]
        for row in drawn[fold::folds]:
            part_of[row] = "test"
    if dev_fraction:
        for members in shuffled(random.Random(f"{seed} dev")):
            rest = [row for row in members if part_of[row] == "train"]
            share = min(math.floor(len(rest) * dev_fraction + 0.5), len(rest) - 1)
            for row in rest[: max(0, share)]:
                part_of[row] = "dev"
    return {
        part: [row for row, own in enumerate(part_of) if own == part]
        for part in ("train", "dev", "test")
    }
