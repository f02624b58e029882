"""Sentence pairs, as text and as ids."""

import dataclasses
from collections.abc import Sequence


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
    """

    source: list[str]
    target: list[str]
    names: tuple[str, str]
    lines: Sequence[int]
    report: Report

    def __len__(self) -> int:
        return len(self.source)


@dataclasses.dataclass(frozen=True)
class EncodedCorpus:
    """A corpus as ids, without start and end.

    Args:
        source: ids of each source sentence.
        target: ids of each target sentence.
        report: how many, and what was left out.
    """

    source: list[list[int]]
    target: list[list[int]]
    report: Report
