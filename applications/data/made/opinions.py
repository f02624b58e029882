"""Short reviews of stays: a data set that the package makes.

A review says something of some aspects, in any order, and one sentence sums up; sentences about
nothing stand between. The label is in the sentence that sums up, whose words other sentences have
too: one word alone does not give it away, and "not" turns it round.
"""

import random

ASPECTS = {
    "food": ("food", "breakfast", "dinner"),
    "room": ("room", "bed", "bathroom"),
    "staff": ("staff", "waiter", "host"),
}
STARS = {"terrible": 1, "bad": 2, "good": 4, "excellent": 5}
FILLERS = (
    "we came by train .",
    "it rained on the second day .",
    "the town is small .",
    "my sister had been there before .",
    "we stayed for three nights .",
    "there is a river nearby .",
)
SUMS = ("overall , it was {} .", "all in all , the stay was {} .", "in the end , it was {} .")
SIZES = {"train": 800, "dev": 120, "test": 200}


def generate(split: str) -> list[dict[str, str]]:
    """Return the reviews of a split, the same ones at every call.

    The columns are `text`; `sentiment` (good or bad) and `stars` (1, 2, 4, 5), of the sentence that
    sums up; `aspects`, those spoken of, with `;` between; `claim`, a sentence about one aspect, and
    `verdict`, whether the review says so (yes, no or open).
    """
    draw = random.Random(f"opinions {split} 0")
    return [_review(draw) for _ in range(SIZES[split])]


def _review(draw: random.Random) -> dict[str, str]:
    aspects = draw.sample(sorted(ASPECTS), draw.randint(1, 3))
    said = {aspect: draw.choice(sorted(STARS)) for aspect in aspects}
    sentences = [f"the {draw.choice(ASPECTS[aspect])} was {said[aspect]} ." for aspect in aspects]
    sentences += draw.sample(FILLERS, draw.randint(0, 2))
    word, negated = draw.choice(sorted(STARS)), draw.random() < 0.25
    stars = 6 - STARS[word] if negated else STARS[word]
    sentences.append(draw.choice(SUMS).format(f"not {word}" if negated else word))
    draw.shuffle(sentences)
    topic = draw.choice(sorted(ASPECTS))
    claimed = draw.choice(["good", "bad"])
    if topic not in said:
        verdict = "open"
    else:
        verdict = "yes" if (STARS[said[topic]] > 3) == (claimed == "good") else "no"
    return {
        "text": " ".join(sentences),
        "sentiment": "good" if stars > 3 else "bad",
        "stars": str(stars),
        "aspects": ";".join(sorted(aspects)),
        "claim": f"the {topic} was {claimed} .",
        "verdict": verdict,
    }
