"""Texts that are longer than a task reads: refused, cut short or skipped."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from ..errors import UserError, check_choice
from ..store.bad_lines import BadLine, Line

OnTooLong = Literal["error", "truncate", "skip"]


class TooLong(UserError):
    """Texts that are longer than is read.

    Args:
        lengths: how long each is, in words, by the row of the text among those given.
        limit: what is read, in words.
        name: the argument that the texts came as.
    """

    def __init__(self, lengths: Mapping[int, str], limit: str, name: str):
        row, length = next(iter(lengths.items()))
        more = f", and {len(lengths) - 1:,} others" if len(lengths) > 1 else ""
        super().__init__(
            f"A text should have at most {limit}: cut it into several, or give "
            f"on_too_long='truncate' or 'skip'. Received: {name}[{row}] with {length}{more}"
        )
        self.lengths, self.limit, self.name = lengths, limit, name

    def lines(self, place: Callable[[int], Line | str]) -> list[BadLine]:
        """Return what a command says of each text, whose row `place` turns into file and line."""
        advice = "cut such lines into several, or give --on-too-long truncate or skip"
        return [
            BadLine(place(row), f"{length}, more than {self.limit}", advice)
            for row, length in self.lengths.items()
        ]


def rows_too_long(
    lengths: Iterable[int],
    limit: int,
    on_too_long: str,
    name: str,
    words: str = "{:,} tokens",
    key: str = "",
) -> list[int]:
    """Return the rows of texts that are longer than a limit, to be truncated or skipped.

    Args:
        lengths: the length of each text.
        limit: the largest that is read.
        on_too_long: `"error"`, `"truncate"` or `"skip"`.
        name: the argument that the texts came as.
        words: how a length is written.
        key: the name of the limit.

    Raises:
        TooLong: where there are such texts, and that is an error.
        ValueError: where `on_too_long` is something else.
    """
    check_choice("`on_too_long`", on_too_long, get_args(OnTooLong))
    found = {row: length for row, length in enumerate(lengths) if length > limit}
    if found and on_too_long == "error":
        shown = {row: words.format(length) for row, length in found.items()}
        raise TooLong(shown, f"{words.format(limit)}{key and f' ({key})'}", name)
    return list(found)


def without_rows(rows: Sequence[int], *columns: Sequence[Any]) -> list[list[Any]]:
    """Return columns without some rows."""
    left_out = set(rows)
    return [[each for row, each in enumerate(column) if row not in left_out] for column in columns]
