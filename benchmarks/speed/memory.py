"""The peak memory of training, and of `predict`, by the size of the input.

A new process measures each figure: it runs the real command on generated sentences.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from benchmarks.common import machine
from benchmarks.common.errors import BenchmarkError
from benchmarks.common.options import as_arguments
from benchmarks.common.processes import environment, how_it_ended
from benchmarks.common.tables import markdown

COMMAND = [sys.executable, "-m", "keras_attention.applications.command"]
SETTINGS = {
    "tokenizer.kind": "words",
    "model.embedding_size": 8,
    "model.units": 8,
    "model.layers": 1,
    "training.epochs": 1,
    "training.steps_per_epoch": 2,
    "training.early_stopping": "loss",
    "training.tensorboard": "false",
}
OF_CLASSIFIER = {"tokenizer.kind": "words", "model.embedding_size": 8, "model.units": 8}
OF_CLASSIFIER |= {name: value for name, value in SETTINGS.items() if name.startswith("training")}
GREEDY = ("--beam-size", "1", "--max-length", "2")
"""A search whose time does not hide that of all lines."""
WORDS = 20_000
"""Different words of the sentences, which have 20 words in the mean, a few of them frequent."""


def sentences(seed: int):
    """Yield sentences without end, the same ones for the same seed."""
    chance = random.Random(seed)
    while True:
        length = chance.randint(5, 35)
        yield " ".join(f"word{int(WORDS * chance.random() ** 3)}" for _ in range(length))


def write(path: Path, seed: int, count: int) -> Path:
    with open(path, "w") as file:
        file.writelines(f"{line}\n" for line in islice(sentences(seed), count))
    return path


def peak(*arguments: str | Path) -> tuple[float, float]:
    """Run `keras-attention`; return the most memory that it had, in MiB, and its seconds."""
    start = time.monotonic()
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        ended = how_it_ended(process.returncode, said.decode(errors="replace"))
        raise BenchmarkError(f"`keras-attention {arguments[0]}` {ended}")
    return usage.ru_maxrss / 1024, time.monotonic() - start


def options_of(settings: dict, files: dict[str, Path]) -> list[str]:
    return as_arguments(settings | {f"data.{name}": path for name, path in files.items()})


def train_translation(count: int, folder: Path) -> dict:
    """Return peak memory and seconds of a training on so many pairs."""
    names = ("train_source", "train_target", "dev_source", "dev_target")
    counts = (count, count, 50, 50)
    files = {
        name: write(folder / f"{count}.{name}", seed, lines)
        for seed, (name, lines) in enumerate(zip(names, counts, strict=True), 1)
    }
    options = options_of(SETTINGS, files)
    mib, seconds = peak(
        "train", "translation", *options, "--output", folder / f"translation{count}"
    )
    for path in files.values():
        path.unlink()
    return {"pairs": count, "MiB": mib, "seconds": seconds}


def train_classification(folder: Path) -> None:
    """Train a classifier of sentences whose label is chance."""
    files = {name: folder / f"{name}.tsv" for name in ("train", "dev")}
    for seed, path in enumerate(files.values(), 1):
        rows = enumerate(islice(sentences(seed), 200))
        lines = [f"{text}\t{'yes' if place % 2 else 'no'}\n" for place, text in rows]
        path.write_text("".join(["text\tlabel\n", *lines]))
    options = options_of(OF_CLASSIFIER, files)
    peak("train", "classification", *options, "--output", folder / "classification")


def predict(lines: Sequence[int], folder: Path) -> list[dict]:
    """Return peak memory and seconds of both tasks' `predict` for files of so many lines."""
    train_translation(200, folder)
    train_classification(folder)
    runs = {"translation200": GREEDY, "classification": ()}
    rows = []
    for count in lines:
        given, row = write(folder / "given", 9, count), {"lines": count}
        for run, options in runs.items():
            output = folder / f"{run}.{count}"
            called = ("predict", folder / run, "--input", given, "--output", output, *options)
            name = run.rstrip("0123456789")
            row[f"{name}, MiB"], row[f"{name}, seconds"] = peak(*called)
            output.unlink()
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    return rows


def table(rows: list[dict]) -> str:
    """Return figures as Markdown."""
    cells = [[f"{value:,.0f}" for value in row.values()] for row in rows]
    return markdown([list(rows[0]), *cells])


def to_ten_million(rows: list[dict]) -> str:
    """Return the straight line through the last two sizes, continued to 10^7 pairs."""
    first, last = rows[-2:]
    slope = (last["MiB"] - first["MiB"]) / (last["pairs"] - first["pairs"])
    at = last["MiB"] + max(0.0, slope) * (10**7 - last["pairs"])  # below 0, a corpus is small
    return f"10,000,000 pairs, from the last two: {at:,.0f} MiB, {slope * 2**20:.0f} bytes a pair"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    sizes = {"type": int, "nargs": "*", "default": [10**4, 10**5, 10**6], "metavar": "COUNT"}
    told = "(default: 10000 100000 1000000; none leaves them out)"
    parser.add_argument("--pairs", **sizes, help=f"pairs to train on {told}")
    parser.add_argument("--lines", **sizes, help=f"lines to predict {told}")


def run(options: argparse.Namespace) -> None:
    """Print the tables; each figure comes as soon as it is measured."""
    trained, predicted = [], []
    print(json.dumps(machine.facts()), flush=True)
    with tempfile.TemporaryDirectory() as name:
        for count in options.pairs:
            trained.append(train_translation(count, Path(name)))
            print(json.dumps(trained[-1]), file=sys.stderr, flush=True)
        if options.lines:
            folder = Path(name, "predict")
            folder.mkdir()
            predicted = predict(options.lines, folder)
    if trained:
        print(table(trained))
    if len(trained) > 1:
        print(to_ten_million(trained))
    if predicted:
        print(table(predicted))
