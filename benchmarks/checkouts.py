"""`python -m benchmarks.checkouts OTHER`: our programs here and in another checkout, in one run.

The other checkout, an older commit say, has its own `.venv` with the package installed from it. A
ratio is the time there by the time here, each in its faster form, with XLA or without.

With `--train` both train translators of generated sentences instead, by the real command.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks import machine, report
from benchmarks.__main__ import CHOICES, SIZES
from benchmarks.children import (
    ROOT,
    BenchmarkError,
    Child,
    check_agreement,
    environment,
    take_turns,
)
from benchmarks.contenders import OURS, contenders_for
from benchmarks.problems import Problem, Size, passes_of

PAIRS, LENGTH, WORDS = 2560, 20, 7000
TRAINING = {
    "tokenizer.kind": "words",
    "training.batch_size": 64,
    "training.epochs": 3,
    "training.early_stopping": "loss",
    "training.tensorboard": "false",
}


def train(architecture: str, checkout: Path, folder: Path) -> float:
    """Train with defaults; return tokens a second, the median of the epochs after the first."""
    run = Path(tempfile.mkdtemp(dir=folder)) / "run"
    options = [f"--{name}={value}" for name, value in TRAINING.items()]
    for place, name in enumerate(("train_source", "train_target", "dev_source", "dev_target")):
        chance, path = random.Random(place), folder / name
        lines = (
            " ".join(f"w{chance.randrange(WORDS)}" for _ in range(LENGTH))
            for _ in range(PAIRS if "train" in name else 64)
        )
        path.write_text("\n".join(lines) + "\n")
        options.append(f"--data.{name}={path}")
    python = sys.executable if checkout == ROOT else checkout / ".venv/bin/python"
    command = [python, "-m", "keras_attention.applications.command", "train", "translation"]
    options += [f"--model.architecture={architecture}", "--output", str(run)]
    settings = {"cwd": checkout, "env": environment(), "capture_output": True, "text": True}
    done = subprocess.run([*command, *options], **settings)
    if done.returncode:
        raise BenchmarkError(f"training in {checkout} failed: {done.stderr.strip()[-300:]}")
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return statistics.median(json.loads(line)["tokens_per_second"] for line in lines[1:])


def compare_training(architecture: str, other: Path, rounds: int) -> list[str]:
    """The cells of a row: tokens a second here and there, by round, and the ratio of medians."""
    rates = {ROOT: [], other: []}
    with tempfile.TemporaryDirectory() as folder:
        for index in range(rounds):
            for checkout in [*rates][:: -1 if index % 2 else 1]:
                rates[checkout].append(train(architecture, checkout, Path(folder)))
                print(f"{architecture}, {checkout}: {rates[checkout][-1]:,.0f}", file=sys.stderr)
    cells = [", ".join(f"{rate:,.0f}" for rate in each) for each in rates.values()]
    here, there = map(statistics.median, rates.values())
    return [*cells, f"{here / there:.2f}"]


def compare(problem: Problem, other: Path, rounds: int, seconds: float) -> list[str]:
    """The cells of a row: for each pass the milliseconds here, and the ratio with its range."""
    ours = [each for each in contenders_for(problem.kind) if each.side == OURS and not each.streams]
    with ExitStack() as stack:
        children = []
        for checkout in (ROOT, other):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            for contender in ours:
                child = Child(contender, problem, folder, checkout)
                children.append(stack.enter_context(child))
        check_agreement(children, problem)
        take_turns(children, problem, rounds, seconds, lambda line: print(line, file=sys.stderr))
        cells = []
        for name in passes_of(problem.kind):
            times = np.array([child.measurement.rounds[name] for child in children])
            here, there = times[: len(ours)].min(0), times[len(ours) :].min(0)
            low, middle, high = np.quantile(there / here, [0, 0.5, 1])
            cells += [f"{1000 * np.median(here):.1f}", f"{middle:.2f} ({low:.2f} to {high:.2f})"]
        return cells


def compare_programs(options: argparse.Namespace, other: Path) -> None:
    """Print the table of our programs."""
    print("\n| | pass 1 ms | times as fast | pass 2 ms | times as fast |")
    print("| --- | --: | --- | --: | --- |")
    for name in options.only or ["all"]:
        for kind in CHOICES.get(name, tuple(SIZES)):
            for size in options.size or SIZES[kind]:
                problem = Problem(kind, size)
                cells = compare(problem, other, options.rounds, options.seconds)
                print(f"| {problem} | " + " | ".join(cells) + " |", flush=True)


def main(arguments=None) -> int:
    """Print a table; 0, or 2 after one line on what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="the folder of the other checkout")
    parser.add_argument("--only", choices=CHOICES, action="append", help="default: all")
    parser.add_argument("--size", type=Size.parse, action="append", help="default: the goals'")
    parser.add_argument("--train", action="append", metavar="ARCHITECTURE", help="luong, say")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args(arguments)
    other = options.other.resolve()
    if not (other / ".venv/bin/python").exists():
        parser.error(f"expected a checkout with its own .venv. Received: {options.other}")
    watch = machine.Watch()
    print(report.machine_line(machine.facts()))
    try:
        if options.train:
            print("\n| | tokens a second | there | times as fast |\n| --- | --- | --- | --: |")
            for name in options.train:
                cells = compare_training(name, other, options.rounds)
                print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
        else:
            compare_programs(options, other)
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    others = watch.share_of_others()
    share = "an unknown share" if others is None else f"{others:.0%}"
    print(f"\nOther programs used {share} of the cores meanwhile.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
