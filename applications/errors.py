"""Errors that a user can put right, checks that raise them, and messages on standard error."""

import numbers
import operator
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from typing import Any


class UserError(ValueError):
    """Something the user gave is wrong: the command says so in one line, exit status 2."""

    exit_status = 2


class TrainingDiverged(UserError):
    """The loss is no longer a number; earlier checkpoints are kept, exit status 3."""

    exit_status = 3


class WorkersStopped(UserError):
    """Another worker of a training has ended; earlier checkpoints are kept, exit status 4."""

    exit_status = 4


class Preempted(UserError):
    """The system asked the process to end; a checkpoint was written, exit status 143."""

    exit_status = 143


class Problems:
    """Collects errors that a user can put right, so that one run tells of all of them."""

    def __init__(self):
        self.found: list[ValueError] = []

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Keep an error of the block, which ends there."""
        try:
            yield
        except ValueError as error:
            self.found.append(error)

    @contextmanager
    def of_values(self) -> Iterator[None]:
        """Keep the errors of all checks of this module in the block, which goes on after each."""
        before, token = len(self.found), _CHECKED.set(self.found)
        try:
            yield
        except ValueError as error:
            self.found.append(error)
        except Exception:  # a wrong value that was let through leads to anything
            if len(self.found) == before:
                raise
        finally:
            _CHECKED.reset(token)

    def check(self) -> None:
        """Raise the error that was found, or one of all of them; nothing where there is none."""
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            # What is accepted, which may be long, stands in an error that is alone.
            words = (one_line(each).partition(" Accepted: ")[0].rstrip(".") for each in self.found)
            first, *others = dict.fromkeys(words)
            others = [f"Also: {each}." for each in others]
            raise UserError(" ".join([f"{first}.", *others]))


_CHECKED: ContextVar[list[ValueError] | None] = ContextVar("checked", default=None)


def refuse(error: ValueError) -> None:
    """Raise an error, or note it where `Problems.of_values` collects them."""
    if (found := _CHECKED.get()) is None:
        raise error
    found.append(error)


LONGEST_MESSAGE = 1200
"""A message is cut to so many characters, which are a few lines of a terminal."""


def one_line(error: BaseException | str) -> str:
    """Return the message of `error` on one line, cut, or the name of its class if it has none."""
    text = " ".join(str(error)[: 8 * LONGEST_MESSAGE].split()) or type(error).__name__
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]} ..."


def not_yaml(where: Any, error: Exception) -> "UserError":
    """Return the error of a file that is no YAML, with its line and column if they are known."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    said = getattr(error, "problem", None) or getattr(error, "context", None) or error
    return UserError(f"{where}{place}: this is not YAML: {one_line(said)[:200].rstrip('.')}.")


def shown(value: Any) -> str:
    """Return a value as a message shows it: cut to 80 characters."""
    text = repr(value) if not isinstance(value, str) else repr(value[:200])
    return text if len(text) <= 80 else f"{text[:77]}..."


_QUIET = ContextVar("quiet", default=False)


def say(text: str = "", end: str = "\n") -> None:
    """Print `text` to standard error at once; nothing inside of `quietly`."""
    if not _QUIET.get():
        print(text, end=end, file=sys.stderr, flush=True)


@contextmanager
def quietly(quiet: bool = True) -> Iterator[None]:
    """Let `say` print nothing, if `quiet`."""
    token = _QUIET.set(quiet)
    try:
        yield
    finally:
        _QUIET.reset(token)


def counted(head: str, counts: Mapping[str, int]) -> str:
    """Return `head`, then each count above 0 with its name: `"9 pairs, 2 cut, 1 empty"`."""
    return ", ".join([head, *(f"{count:,} {name}" for name, count in counts.items() if count)])


def clock(seconds: float) -> str:
    """Write a duration as `m:ss` or `h:mm:ss`."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def did_you_mean(word: str, accepted: Iterable[str]) -> str:
    """Return `" Did you mean 'x'?"` where something close to `word` is accepted, else `""`."""
    close = get_close_matches(word, list(accepted), n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""


def check_key(key: str, accepted: Iterable[str], where: str) -> None:
    """Refuse `key` unless it is one of `accepted`."""
    accepted = list(accepted)
    if key not in accepted:
        raise UserError(
            f"{where} has no key '{key}'.{did_you_mean(key, accepted)} "
            f"Accepted: {', '.join(accepted)}."
        )


def check_choice(name: str, value: Any, accepted: Iterable[Any]) -> None:
    """Refuse `value` unless it is one of `accepted`."""
    accepted = list(accepted)
    if value not in accepted:
        names = [str(choice) for choice in accepted]
        refuse(
            UserError(
                f"{name} must be one of {', '.join(names)}.{did_you_mean(str(value), names)} "
                f"Received: {shown(value)}."
            )
        )


def check_counts(least: int = 1, **counts: Any) -> None:
    """Refuse each argument that is not a whole number of at least `least`, which is 0 or 1."""
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, numbers.Integral) or count < least:
            wanted = "a positive integer" if least else "an integer of at least 0"
            raise ValueError(f"`{name}` should be {wanted}. Received: {name}={count!r}")


def check_number(
    name: str, value: Any, least: float, most: float | None = None, whole: bool = False
) -> None:
    """Refuse what is no finite number from `least` on, up to `most`; a whole one if `whole`."""
    is_number = isinstance(value, numbers.Integral if whole else numbers.Real)
    highest = sys.float_info.max if most is None else most
    if isinstance(value, bool) or not (is_number and least <= value <= highest):
        kind = "a whole number" if whole else "a finite number"
        limits = f"of at least {least:g}" if most is None else f"from {least:g} to {most:g}"
        refuse(UserError(f"{name} must be {kind} {limits}. Received: {shown(value)}."))


def check_single(task: Any, verb: str, **texts: Any) -> None:
    """Refuse lists where a task takes single texts, which their names describe."""
    for name, text in texts.items():
        if not isinstance(text, str):
            wanted = f"{verb} a single {name}, a string"
            raise UserError(f"this {type(task).__name__} {wanted}. Received: {shown(text)}.")
        check_unicode(f"the {name}", text)


def check_unicode(name: str, text: str) -> None:
    """Refuse a text with half a surrogate pair, as bytes that are no UTF-8 become."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(
            f"{name} must be Unicode text. Received: {shown(text)}, where "
            f"{text[error.start]!r} is half a surrogate pair: mend the text, or its encoding."
        ) from None


def check_range(
    name: str,
    value: float | None,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> None:
    """Refuse `value` outside the given limits, or that is no number; `None` (not set) passes."""
    limits = [
        ("at least", at_least, operator.ge),
        ("above", above, operator.gt),
        ("at most", at_most, operator.le),
        ("below", below, operator.lt),
    ]
    stated = [each for each in limits if each[1] is not None]
    is_number = isinstance(value, numbers.Real)
    if value is not None and not (is_number and all(holds(value, x) for _, x, holds in stated)):
        rule = " and ".join(f"{words} {limit:g}" for words, limit, _ in stated)
        refuse(UserError(f"{name} must be {rule}. Received: {shown(value)}."))
