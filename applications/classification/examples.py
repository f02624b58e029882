"""Texts with their labels, as the user wrote them."""

import dataclasses
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Report:
    """How many texts a set has, and what became of the others.

    Args:
        name: where they come from.
        examples: texts that are there.
        left_out: why texts were left out, and how many.
        truncated: texts that are there, cut to the longest length allowed.
    """

    name: str
    examples: int
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)
    truncated: int = 0

    def __str__(self) -> str:
        parts = [f"{self.name}: {self.examples:,} examples"]
        parts += [f"{count:,} left out ({why})" for why, count in self.left_out.items() if count]
        if self.truncated:
            parts.append(f"{self.truncated:,} of them cut short")
        return ", ".join(parts)


@dataclasses.dataclass(frozen=True)
class Example:
    """A text, or a pair of texts, and its label.

    Args:
        texts: the text, or the two texts of a pair.
        label: a string, a tuple of strings, or a number, as the configuration says; None where
            there is none.
        place: where it comes from, for messages.
    """

    texts: tuple[str, ...]
    label: Any
    place: str


@dataclasses.dataclass(frozen=True)
class Examples:
    """A set of examples.

    Args:
        items: the examples.
        report: how many, and what was left out.
    """

    items: Sequence[Example]
    report: Report

    def __len__(self) -> int:
        return len(self.items)
