"""`python -m benchmarks.memory`: peak memory of training and `predict`, by size of the corpus.

Each figure is that of a process of its own, which runs the real command on generated sentences.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from benchmarks import machine
from benchmarks.children import BenchmarkError, environment
from benchmarks.report import markdown

COMMAND = [sys.executable, "-m", "keras_attention.applications.cli"]
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
        raise BenchmarkError(said.decode()[-500:])
    return usage.ru_maxrss / 1024, time.monotonic() - start


def measure(count: int, folder: Path, predicts: bool) -> dict:
    """Return peak memory and seconds for a corpus of so many pairs."""
    sides = [write(folder / f"{count}.{seed}", seed, count) for seed in (1, 2)]
    dev = [write(folder / f"dev.{seed}", seed, 50) for seed in (3, 4)]
    names = ("train_source", "train_target", "dev_source", "dev_target")
    options = [f"--{name}={value}" for name, value in SETTINGS.items()]
    options += [f"--data.{name}={path}" for name, path in zip(names, sides + dev, strict=True)]
    run = folder / f"run{count}"
    row = {"pairs": count}
    row["training"], row["training seconds"] = peak(
        "train", "translation", *options, "--output", run
    )
    if predicts:
        search = ("--beam-size", "1", "--max-length", "2", "--output", folder / f"out{count}")
        row["predict"], row["predict seconds"] = peak("predict", run, "--input", sides[0], *search)
    for path in sides:
        path.unlink()
    return row


def table(rows: list[dict]) -> str:
    """Return the figures as Markdown, the last line continued on a straight line to 10^7 pairs."""
    cells = [
        [
            f"{row['pairs']:,}",
            f"{row['training']:,.0f}",
            f"{row['training seconds']:.0f}",
            f"{row['predict']:,.0f}" if "predict" in row else "",
            f"{row['predict seconds']:.0f}" if "predict" in row else "",
        ]
        for row in rows
    ]
    slope = 0.0
    if len(rows) > 1:
        first, last = rows[-2:]
        slope = (last["training"] - first["training"]) / (last["pairs"] - first["pairs"])
    if slope > 0:  # else the corpus is small beside the rest
        at = last["training"] + slope * (10**7 - last["pairs"])
        cells.append([f"10,000,000, from the last two ({slope * 2**20:.0f} bytes a pair)"])
        cells[-1] += [f"{at:,.0f}", "", "", ""]
    names = ("pairs", "training, MiB", "seconds", "predict, MiB", "seconds")
    return markdown([list(names), *cells])


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--pairs", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    parser.add_argument("--predict", type=int, default=10**5, help="up to so many lines")
    options = parser.parse_args(arguments)
    rows = []
    try:
        with tempfile.TemporaryDirectory() as name:
            for count in options.pairs:
                rows.append(measure(count, Path(name), count <= options.predict))
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    except BenchmarkError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(machine.facts()))
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
