"""What is tried: a tiny run of each task, its data, and what its verbs answer undamaged."""

import json
import pickle
import re
import resource
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import keras
import tensorflow as tf

from keras_attention.applications.cli import load_task
from tests.applications.commands import Done
from tests.trial import workers
from tests.trial.workers import Case, Judged, call

SMALL = "--model.embedding_size=6 --model.units=6 --model.dropout=0.1 --training.batch_size=6 "
SMALL += "--training.epochs=3 --training.early_stopping=loss"
TRAINS = {
    "answer-selection": "answer-selection --data.train {data}/train.tsv --data.dev {data}/dev.tsv "
    "--vocabulary.unknown_buckets=5 --training.negatives=1",
    "texts": "classification --data.train_file {data}/train.csv --data.dev_file {data}/dev.csv "
    "--model.architecture=han",
    "pairs": "classification --data.train_file {data}/train.csv --data.dev_file {data}/dev.csv "
    "--data.second_column second --model.architecture=cross",
    "translation": "translation --data.train_source {data}/train.source "
    "--data.train_target {data}/train.target --data.dev_source {data}/dev.source "
    "--data.dev_target {data}/dev.target --tokenizer.vocabulary_size=40 "
    "--decoding.max_length=5 --decoding.beam_size=2",
    "summarization": "summarization --data.train_file {data}/train.jsonl "
    "--data.dev_file {data}/dev.jsonl --decoding.max_length=5 --decoding.beam_size=2",
}
"""The command line of each training; its first word is the task."""
TABLE = "predict {run} --input {data}/dev.csv", "evaluate {run} --input {data}/dev.csv --json"
USES = {
    "answer-selection": (
        "predict {run} --question two --candidates {data}/dev.source",
        "evaluate {run} --file {data}/dev.tsv --json",
    ),
    "texts": TABLE,
    "pairs": TABLE,
    "translation": (
        "predict {run} --input {data}/dev.source --output {out}",
        "score {run} --source {data}/dev.source --target {data}/dev.target",
    ),
    "summarization": (
        "predict {run} --input {data}/dev.source",
        "evaluate {run} --input {data}/dev.jsonl --json",
    ),
}
"""The command lines of `predict` and `evaluate`."""


def command(subject: str, verb: str, by_files: bool = True) -> str:
    """Return the command line of a verb; `once` trains by a configuration, on its files or ours."""
    task, files = TRAINS[subject].split(" ", 1)
    return {
        "predict": USES[subject][0],
        "evaluate": USES[subject][1],
        "average": "average {run} --output {out}",
        "export": "export {run} --output {out}",
        "resume": f"train {task} {files} {SMALL} --resume --output {{run}}",
        "once": f"train {task} --config {{run}} --output {{out}} {files if by_files else ''}",
    }[verb]


class Trial:
    """The runs that the cases damage, and what their verbs answer undamaged.

    Args:
        folder: for the cases.
        root: a folder for the runs, which may be used again.
        subjects: names in TRAINS.
    """

    def __init__(self, folder: Path, root: Path, subjects: Sequence[str]):
        self.folder, self.root, self.data = folder, root, root / "data"
        self.subjects = list(subjects)
        self.answers: dict[tuple[str, str], Any] = {}
        if not self.data.exists():
            write_data(self.data)
        elif (root / "answers").exists():
            self.answers = pickle.loads((root / "answers").read_bytes())

    def missing(self) -> list[Case]:
        """Return a case for each subject that is not trained yet."""
        names = enumerate(self.subjects)
        return [Case("prepare", n) for n, name in names if (name, "once") not in self.answers]

    def remember(self, answers: dict[tuple[str, str], Any]) -> None:
        self.answers |= answers
        (self.root / "answers").write_bytes(pickle.dumps(self.answers))

    def run_of(self, subject: str, form: str = "run") -> Path:
        return self.root / f"{subject}-{form}"

    def prepare(self, case: Case, folder: Path) -> Judged:
        """Train the subject of a number; return what its verbs answer."""
        workers.limit(resource.RLIMIT_CPU, 3600)
        subject = self.subjects[case.seed]
        run, keras_file = self.run_of(subject), self.run_of(subject, "file.keras")
        trained = self.use(subject, "resume", run, folder / "trained")[1]
        assert trained, workers._said(folder / "trained")
        task = load_task(TRAINS[subject].split()[0]).from_preset(run)
        task.save_to_preset(self.run_of(subject, "preset"))
        task.save(keras_file)
        places = {"predict": run, "evaluate": run, "keras": keras_file}
        places |= {"average": run, "once": self.once(subject, folder / "once.yaml")}
        places |= {"resume": shutil.copytree(run, folder / "copy")}
        answers = {
            verb: self.use(subject, verb, place, folder / verb)[1] for verb, place in places.items()
        }
        answers["trained"] = trained
        return Judged(case, "same", "", subject, {(subject, k): v for k, v in answers.items()})

    def once(self, subject: str, path: Path) -> Path:
        """Write a complete configuration of a training of one step."""
        text = (self.run_of(subject) / "config.yaml").read_text("utf-8")
        text = re.sub(r"(steps_per_epoch|\n  epochs|  max_minutes): (3|null)", r"\1: 1", text)
        path.write_text(text, "utf-8")
        return path

    def line(self, subject, verb, run, out=None, data=None) -> list[str]:
        line = command(subject, verb, by_files=verb != "once" or data is not None)
        return line.format(run=run, data=data or self.data, out=out).split()

    def use(self, subject, verb, run, folder, data=None, renamed=("", "")) -> tuple[Done, Any]:
        """Run a verb on a run, preset or configuration; return what was said, and the results."""
        folder.mkdir()
        if verb == "keras":
            return _loaded(run, subject, folder)
        words = self.line(subject, verb, run, folder / "out", data)
        is_as_trained = verb == "resume"  # to the bit
        tf.config.run_functions_eagerly(not is_as_trained)
        done = call([renamed[1] if each == renamed[0] else each for each in words], folder)
        tf.config.run_functions_eagerly(True)
        if verb in ("resume", "once"):
            left = workers.left_behind(run if is_as_trained else folder / "out")
            return done, None if done.status else left if is_as_trained else left[0]
        said = done.out.replace(str(data or self.data), "DATA").replace(".gz", "")
        return done, (said, workers.written(folder / "out"))


class Kinds:
    """Base of what can be done to a subject: a method for each kind of case."""

    computes = True

    def __init__(self, trial: Trial):
        self.trial = trial

    def __call__(self, case: Case, folder: Path) -> Judged:
        chance = Random(str(case))
        self.prepare(folder)
        subject = chance.choice(self.trial.subjects)
        outcome, note = getattr(self, case.kind)(subject, chance, folder)
        return Judged(case, outcome, note, subject)

    def prepare(self, folder: Path) -> None:
        """Make what every case needs."""


def _loaded(path: Path, subject: str, folder: Path) -> tuple[Done, Any]:
    """Load a `.keras` file with Keras' own function; return what the task answers."""
    answers = []

    def load():
        try:
            task = keras.saving.load_model(path)
            if subject in ("texts", "pairs"):
                found = task.classify(["one two"] if subject == "texts" else [("one", "two")])
            elif subject == "answer-selection":
                found = task.rank("two", ["one two", "six"])
            else:
                verb = {"translation": "translate", "summarization": "summarize"}[subject]
                found = getattr(task, verb)(["one two"])
            answers.append(repr(found))
        except Exception as error:  # Keras' own, of any type
            print(type(error).__name__, file=sys.stderr)
            return 2
        return 0

    return workers.watch(load, folder), answers


def write_data(folder: Path) -> None:
    """Write tiny corpora of every form that the tasks read."""
    folder.mkdir(parents=True)
    chance, words = Random(1), ["one", "two", "three", "four", "five", "six", "été"]

    def texts(number, most):
        return [" ".join(chance.choices(words, k=chance.randint(2, most))) for _ in range(number)]

    for split, number in (("train", 24), ("dev", 6)):
        pairs = list(zip(texts(number, 5), texts(number, 4), strict=True))
        rows = {
            "source": [a for a, _ in pairs],
            "target": [b for _, b in pairs],
            "jsonl": [json.dumps({"source": f"{a} . {b}", "target": a}) for a, b in pairs],
            "tsv": [f"{a}\t{a}\t1\n{a}\t{b}\t0" for a, b in pairs[:8]],
            "csv": ["text,second,label", *(f"{a},{b},{chance.choice('xy')}" for a, b in pairs)],
        }
        for form, lines in rows.items():
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"{split}.{form}").write_text(text, "utf-8")
