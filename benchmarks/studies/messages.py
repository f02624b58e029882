"""Messages of software in English and Portuguese, read from packages that are installed."""

import random
import re
from dataclasses import dataclass

from benchmarks.common.data import package_folder
from benchmarks.common.errors import BenchmarkError

FEWEST_WORDS = 3
MARKUP = re.compile(r"[%{}<>\n\\`&=]")
"""Placeholders, tags and code, which a message keeps in any language."""

Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Messages:
    """The texts of the study.

    Args:
        learned: pairs of the domain to train on.
        domain: other pairs of the domain, to measure.
        outside: pairs of other software, to measure.
    """

    learned: Pairs
    domain: Pairs
    outside: Pairs


def read_messages(learned: int, seed: int) -> Messages:
    """Return Wagtail's messages as the domain, and those of Django and Sphinx as the outside."""
    domain = messages_of("wagtail")
    outside = {**messages_of("sphinx"), **messages_of("django")}
    outside = [pair for pair in outside.items() if pair[0] not in domain]
    pairs = list(domain.items())
    for each in (pairs, outside):
        random.Random(seed).shuffle(each)
    if len(pairs) <= learned:
        raise BenchmarkError(f"wagtail has {len(pairs)} messages: too few to learn {learned}.")
    return Messages(pairs[:learned], pairs[learned:], outside)


def messages_of(package: str, language: str = "pt_BR") -> dict[str, str]:
    """Return the translations of an installed package's messages: sentences without markup."""
    try:
        from babel.messages.mofile import read_mo
    except ImportError:
        raise BenchmarkError("Babel is missing: pip install babel.") from None
    pairs = {}
    for path in sorted(package_folder(package).rglob(f"{language}/LC_MESSAGES/*.mo")):
        with path.open("rb") as file:
            catalogue = read_mo(file)
        for message in catalogue:
            source, target = message.id, message.string
            if not isinstance(source, str) or not isinstance(target, str):
                continue  # a message with a plural, whose forms are chosen by a number
            source, target = source.strip(), target.strip()
            if len(source.split()) < FEWEST_WORDS or not target or source == target:
                continue
            if MARKUP.search(source + target):
                continue
            pairs.setdefault(source, target)
    if not pairs:
        raise BenchmarkError(f"{package} has no messages in {language}.")
    return pairs
