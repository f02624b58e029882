"""Questions about people and sentences that may answer them: a data set that the package makes."""

import random

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


def generate(split: str) -> list[tuple[str, list[str], list[int]]]:
    """Return the questions of a split with their candidates and labels, the same at every call.

    Each question asks one relation of a person ("where was Mara Vel born ?"). Its candidates are
    sentences about that person, one a relation, so that the words of the question but its relation
    are in all of them; only the sentence that holds the asked relation is right.
    """
    draw = random.Random(SEEDS[split])
    return [_question(draw) for _ in range(SIZES[split])]


def _question(draw: random.Random) -> tuple[str, list[str], list[int]]:
    name = f"{draw.choice(FIRST)} {draw.choice(LAST)}"
    asked = draw.randrange(len(RELATIONS))
    relations = list(range(len(RELATIONS)))
    draw.shuffle(relations)
    candidates = []
    for relation in relations:
        form = draw.choice(RELATIONS[relation][1])
        words = {"place": PLACES, "year": range(1700, 1950), "thing": THINGS, "friend": FRIENDS}
        words = {key: draw.choice(some) for key, some in words.items()}
        candidates.append(form.format(name=name, **words))
    question = draw.choice(RELATIONS[asked][0]).format(name=name)
    return question, candidates, [int(relation == asked) for relation in relations]
