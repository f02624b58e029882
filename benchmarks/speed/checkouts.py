"""Our programs here and in another checkout, in one run.

The other checkout, an older commit say, has its own `.venv` with the package installed from it, and
its own programs. A ratio is the time there by the time here, each in its faster form, with XLA or
without.

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

from benchmarks.common import machine
from benchmarks.common.errors import BenchmarkError
from benchmarks.common.options import add_only, add_rounds, add_seconds
from benchmarks.common.processes import ROOT, environment, how_it_ended
from benchmarks.common.tables import machine_line
from benchmarks.speed.children import (
    WORKER,
    Child,
    Pool,
    check_agreement,
    memory_limit,
    take_turns,
)
from benchmarks.speed.contenders import OURS, contenders_for
from benchmarks.speed.layers import CHOICES, SIZES, add_size, kinds_of
from benchmarks.speed.problems import Problem, passes_of

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
        ended = how_it_ended(done.returncode, done.stderr)
        raise BenchmarkError(f"The training in {checkout} {ended}")
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


def compare(problem: Problem, other: Path, worker: str, rounds: int, seconds: float) -> list[str]:
    """The cells of a row: for each pass the milliseconds here, and the ratio with its range."""
    ours = [each for each in contenders_for(problem.kind) if each.side == OURS and not each.streams]

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    with ExitStack() as stack:
        pool = stack.enter_context(Pool(memory_limit(), tell))
        children = []
        for checkout, module in ((ROOT, WORKER), (other, worker)):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            for contender in ours:
                children.append(Child(contender, problem, folder, checkout, worker=module))
                pool.wake(children[-1])
        check_agreement(children, problem)
        take_turns(pool, children, problem, rounds, seconds, tell)
        if failed := [child.measurement.error for child in children if child.measurement.error]:
            raise BenchmarkError("; ".join(failed))
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
    for kind in kinds_of(options.only):
        for size in options.size or SIZES[kind]:
            problem = Problem(kind, size)
            cells = compare(problem, other, options.worker, options.rounds, options.seconds)
            print(f"| {problem} | " + " | ".join(cells) + " |", flush=True)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("other", type=Path, help="the folder of the other checkout")
    add_only(parser, CHOICES, "kinds")
    add_size(parser)
    parser.add_argument(
        "--train",
        action="append",
        metavar="ARCHITECTURE",
        help="an architecture of translation to train in place of all; may be repeated",
    )
    parser.add_argument(
        "--worker",
        default=WORKER,
        metavar="MODULE",
        help="the module of the other checkout that runs one program (default: %(default)s)",
    )
    add_rounds(parser, 3)
    add_seconds(parser, 0.5)


def run(options: argparse.Namespace) -> None:
    """Print a table."""
    other = options.other.resolve()
    needed = [".venv/bin/python"]
    if not options.train:
        needed.append(f"{options.worker.replace('.', '/')}.py")
    for name in needed:
        if not (other / name).exists():
            raise BenchmarkError(f"Expected a checkout with its own {name}. Received: {other}")
    watch = machine.Watch()
    print(machine_line(machine.facts()))
    if options.train:
        print("\n| | tokens a second | there | times as fast |\n| --- | --- | --- | --: |")
        for name in options.train:
            cells = compare_training(name, other, options.rounds)
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    else:
        compare_programs(options, other)
    others = watch.share_of_others()
    share = "an unknown share" if others is None else f"{others:.0%}"
    print(f"\nOther programs used {share} of the cores meanwhile.")
