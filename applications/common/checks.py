"""Checks of configuration values, written so that every refusal names what is accepted."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from keras_attention.applications.common.errors import UserError


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
        raise UserError(
            f"{name} must be one of {', '.join(names)}.{did_you_mean(str(value), names)} "
            f"Received: {value!r}."
        )


def check_range(
    name: str,
    value: float | None,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> None:
    """Refuse `value` outside the given limits; `None` (not set) and no limit are let through."""
    if value is None:
        return
    limits = [
        ("at least", at_least, lambda limit: value >= limit),
        ("above", above, lambda limit: value > limit),
        ("at most", at_most, lambda limit: value <= limit),
        ("below", below, lambda limit: value < limit),
    ]
    stated = [(words, limit, holds) for words, limit, holds in limits if limit is not None]
    if not all(holds(limit) for _, limit, holds in stated):
        rule = " and ".join(f"{words} {limit:g}" for words, limit, _ in stated)
        raise UserError(f"{name} must be {rule}. Received: {value!r}.")
