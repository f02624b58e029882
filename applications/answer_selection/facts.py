"""A data set that ships with the package: facts about people, asked for one at a time.

Each question asks one relation of a person ("where was Mara Vel born ?"). Its candidates are
sentences about that person, one a relation, so that the words of the question but its relation are
in all of them; only the sentence that holds the asked relation is right.
"""

import random

from keras_attention.applications.answer_selection.questions import Candidate, Question

SIZES = {"train": 400, "dev": 60, "test": 60}
SEEDS = {"train": 11, "dev": 12, "test": 13}

FIRST = ("Mara", "Ilja", "Teun", "Aiko", "Rosa", "Emil", "Nils", "Petra", "Omar", "Lena", "Hugo")
LAST = ("Vel", "Horn", "Castell", "Brandt", "Okafor", "Lind", "Moreau", "Sato", "Novak", "Keller")
PLACES = ("Oslo", "Lima", "Kyoto", "Porto", "Accra", "Riga", "Quito", "Graz", "Turin", "Hanoi")
THINGS = ("clocks", "bridges", "violins", "maps", "kites", "ovens", "sails", "lamps", "carpets")
FRIENDS = ("Ana", "Boris", "Clara", "Dimitri", "Elsa", "Farid", "Greta", "Hans", "Ines", "Jonas")

# For each relation: ways to ask for it, and ways to say it.
RELATIONS = (
    (
        ("where was {name} born ?", "what is the birthplace of {name} ?"),
        ("{name} was born in {place} .", "The birthplace of {name} is {place} ."),
    ),
    (
        ("when did {name} die ?", "in what year was the death of {name} ?"),
        ("{name} died in {year} .", "The death of {name} was in {year} ."),
    ),
    (
        ("what did {name} make ?", "what was produced by {name} ?"),
        ("{name} made {thing} of wood .", "Many {thing} were produced by {name} ."),
    ),
    (
        ("who married {name} ?", "who was the spouse of {name} ?"),
        ("{name} married {friend} in spring .", "The spouse of {name} was {friend} ."),
    ),
    (
        ("where did {name} study ?", "which school taught {name} ?"),
        ("{name} studied for years in {place} .", "A school in {place} taught {name} ."),
    ),
)


def generate(split: str, number: int | None = None) -> list[Question]:
    """Return the questions of a split, the same ones at every call.

    Args:
        split: `"train"`, `"dev"` or `"test"`.
        number: how many questions; None for the usual number.
    """
    draw = random.Random(SEEDS[split])
    return [_question(draw, index) for index in range(number or SIZES[split])]


def _question(draw: random.Random, index: int) -> Question:
    name = f"{draw.choice(FIRST)} {draw.choice(LAST)}"
    asked = draw.randrange(len(RELATIONS))
    relations = list(range(len(RELATIONS)))
    draw.shuffle(relations)
    candidates = [
        Candidate(f"F{index}-{place}", _sentence(draw, name, relation), int(relation == asked))
        for place, relation in enumerate(relations)
    ]
    return Question(f"F{index}", draw.choice(RELATIONS[asked][0]).format(name=name), candidates)


def _sentence(draw: random.Random, name: str, relation: int) -> str:
    return draw.choice(RELATIONS[relation][1]).format(
        name=name,
        place=draw.choice(PLACES),
        year=draw.randrange(1700, 1950),
        thing=draw.choice(THINGS),
        friend=draw.choice(FRIENDS),
    )
