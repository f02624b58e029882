"""Lines of an input that are wrong: all of them are looked for, and the first few are named."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ..errors import UserError

MOST_NAMED = 5
"""How many lines an error names; of more it says how many there are."""


class Line(NamedTuple):
    """The place of a line; messages show it as `F.txt, line 3`."""

    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.name}, line {self.number}"


class BadLine(UserError):
    """A line that is wrong.

    Args:
        place: file and line.
        problem: what is wrong there, without a full stop.
        advice: the way out, which goes for all such lines.
    """

    def __init__(self, place: Line | str, problem: str, advice: str = ""):
        super().__init__(f"{place}: {problem}{advice and f'; {advice}'}.")
        self.place, self.problem = place, problem


def named(found: Sequence[BadLine]) -> UserError:
    """Return one error for all lines that are wrong: the first one whole, then the others."""
    first, *others = found
    if not others:
        return first
    places = [f"{each.place}: {each.problem[:120]}" for each in others[: MOST_NAMED - 1]]
    if len(others) > len(places):
        places.append(f"{len(others) - len(places):,} more such lines")
    return UserError(f"{first} Also {'; '.join(places)}.")


def checked(items: Iterable[Any], check: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield `check(item)` of each item.

    At the first `BadLine` the rest of the items is looked through, so that one error names the
    first lines that are wrong, and says how many there are.
    """
    items = iter(items)
    for item in items:
        try:
            found = check(item)
        except BadLine as error:
            raise named([error, *_others(items, check)]) from None
        yield found


def _others(items: Iterator[Any], check: Callable[[Any], Any]) -> Iterator[BadLine]:
    try:
        for item in items:
            try:
                check(item)
            except BadLine as error:
                yield error
    except UserError:  # the file goes wrong in another way after these
        return
