"""The data of the trial, and what a task in a `.keras` file answers."""

import json
from pathlib import Path
from random import Random
from typing import Any

import keras


def write_data(folder: Path) -> None:
    """Write tiny corpora of every form that the tasks read."""
    folder.mkdir(parents=True)
    chance = Random(1)

    def text(least, most):
        words = ["one", "two", "three", "four", "five", "six", "été"]
        return " ".join(chance.choice(words) for _ in range(chance.randint(least, most)))

    for split, number in (("train", 24), ("dev", 6)):
        texts = [text(1, 3) for _ in range(number)]
        others = [text(1, 3) for _ in texts]
        forms = {
            "source": [f"{each}\n" for each in texts],
            "target": [f"{each}\n" for each in others],
            "jsonl": [
                json.dumps({"source": f"{a} . {b}", "target": a}) + "\n"
                for a, b in zip(texts, others, strict=True)
            ],
            "tsv": [
                f"{a}\t{c}\t{label}\n"
                for a, b in zip(texts[:8], others, strict=False)
                for c, label in ((a, 1), (b, 0))
            ],
            "csv": ["text,second,label\n"]
            + [f"{a},{b},{chance.choice('xy')}\n" for a, b in zip(texts, others, strict=True)],
        }
        for form, lines in forms.items():
            (folder / f"{split}.{form}").write_text("".join(lines), "utf-8")


def load_keras(path: Path, subject: str) -> Any:
    """Load a `.keras` file with Keras' own function; return what the task answers."""
    task = keras.saving.load_model(path)
    pairs = {"texts": ["one two"], "pairs": [("one", "two")]}
    if subject in pairs:
        return repr(task.classify(pairs[subject]))
    if subject == "answer-selection":
        return repr(task.rank("two", ["one two", "six"]))
    return repr(getattr(task, {"translation": "translate"}.get(subject, "summarize"))(["one two"]))
