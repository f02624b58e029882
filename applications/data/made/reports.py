"""Reports with summaries: a data set that the package makes."""

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


class Report(NamedTuple):
    """A document, its summary, and the place of the sentence that each statement of it is from."""

    sentences: list[str]
    summary: str
    urgent: list[int]


def generate(split: str, ordered: bool = True) -> list[Report]:
    """Return the reports of a split, always the same.

    A report is a list of notes on people with invented names. Some of them are urgent, and the
    summary says, in their order, who needs how much of what: so the right sentences have to be
    chosen, names that no vocabulary holds have to be copied, and nothing may be said twice. Not
    `ordered`, there are more statements, in any order: which of them were made has to be
    remembered, place alone does not tell.
    """
    draw = random.Random(f"{split} 0")
    return [_report(draw, ordered) for _ in range(SIZES[split])]


def _report(draw: random.Random, ordered: bool) -> Report:
    count = draw.randint(3, 7) if ordered else draw.randint(5, 8)
    number = draw.randint(1, 3) if ordered else draw.randint(3, 5)
    urgent = sorted(draw.sample(range(count), number))
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
    if not ordered:
        order = draw.sample(range(number), number)
        urgent, facts = [urgent[i] for i in order], [facts[i] for i in order]
    return Report(sentences, " ".join(facts), urgent)
