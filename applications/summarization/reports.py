"""Reports of several sentences, and what is urgent in them: data that the package makes itself.

A document is a list of notes on people with invented names. Some of them are urgent, and the
summary says, in their order, who needs how much of what: so the right sentences have to be chosen,
names that no vocabulary holds have to be copied, and nothing may be said twice.
"""

import random
from typing import NamedTuple

SIZES = {"train": 4_000, "dev": 200, "test": 200}
"""How many documents each split has."""

SYLLABLES = ("ba", "do", "fi", "ga", "he", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "ve")
THINGS = ("apples", "boats", "chairs", "drums", "lamps", "maps", "ropes", "tents")
PLACES = ("harbour", "market", "mill", "school", "station", "tower")
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine")
QUIET = (
    "{name} of the {place} has {number} {thing} .",
    "{name} saw {number} {thing} near the {place} .",
    "the {place} sold {name} {number} {thing} .",
)
URGENT = (
    "urgent : {name} of the {place} needs {number} {thing} .",
    "urgent : at the {place} , {name} asks for {number} {thing} .",
)


class Example(NamedTuple):
    """A document, its summary, and which of its sentences the summary is made of."""

    sentences: list[str]
    summary: str
    urgent: list[int]


def generate(split: str, seed: int = 0) -> list[Example]:
    """Return the examples of `"train"`, `"dev"` or `"test"`; the same for the same seed."""
    draw = random.Random(f"{split} {seed}")
    return [_example(draw) for _ in range(SIZES[split])]


def _example(draw: random.Random) -> Example:
    count = draw.randint(3, 7)
    urgent = sorted(draw.sample(range(count), draw.randint(1, 3)))
    sentences, facts = [], []
    for place in range(count):
        words = {
            "name": "".join(draw.choices(SYLLABLES, k=3)),
            "place": draw.choice(PLACES),
            "number": draw.choice(NUMBERS),
            "thing": draw.choice(THINGS),
        }
        forms = URGENT if place in urgent else QUIET
        sentences.append(draw.choice(forms).format(**words))
        if place in urgent:
            facts.append("{name} needs {number} {thing} .".format(**words))
    return Example(sentences, " ".join(facts), urgent)
