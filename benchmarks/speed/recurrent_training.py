"""A training step of our recurrent translators beside one of joeynmt's.

joeynmt (Kreutzer et al. 2019) wants a protobuf that TensorFlow does not run with, so its steps run
in a Python of their own: `python -m venv joey; joey/bin/pip install joeynmt importlib_metadata`.

Each side trains its own model of the same sizes by Adam, without dropout: a GRU in both directions
with Bahdanau's attention, and two LSTM layers with Luong's, both with input feeding. The models
differ in details (readouts, first states, the directions of the second's encoder), so time is all
that is compared. The sides take turns.
"""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks.common.errors import BenchmarkError
from benchmarks.common.machine import Watch
from benchmarks.common.options import add_only, add_rounds, add_seconds
from benchmarks.common.processes import Worker
from benchmarks.common.tables import markdown
from benchmarks.speed.recurrent_training_worker import MODELS

WORKER = Path(__file__).with_name("recurrent_training_worker.py")
"""It is run by its file, since joeynmt's Python has nothing of this repository."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--python", type=Path, required=True, help="a Python that has joeynmt")
    add_only(parser, MODELS, "models")
    add_rounds(parser, 5)
    add_seconds(parser, 3.0)


def run(options: argparse.Namespace) -> None:
    """Print a line for each model."""
    if not options.python.is_file():
        raise BenchmarkError(
            f"--python should be a Python that has joeynmt. Received: {options.python}"
        )
    rows = [["model", "our weights", "ms", "joeynmt's weights", "ms", "times as fast"]]
    pythons = {"ours": sys.executable, "joeynmt": str(options.python)}
    watch = Watch()
    for name in options.only or MODELS:
        rows.append(measure(name, pythons, options.rounds, options.seconds))
    print(markdown(rows))
    others = watch.share_of_others()
    share = "an unknown share" if others is None else f"{others:.0%}"
    print(f"\nOther programs used {share} of the cores meanwhile.")


def measure(name: str, pythons: dict[str, str], rounds: int, seconds: float) -> list[str]:
    """Return the row of a model."""
    with ExitStack() as stack:
        workers = {
            side: stack.enter_context(Worker(f"{name} of {side}", [python, WORKER, side, name]))
            for side, python in pythons.items()
        }
        found: dict[str, list[float]] = {side: [] for side in workers}
        for _ in range(rounds):
            for side, worker in workers.items():
                found[side].append(1e3 * float(np.median(worker.ask(seconds))))
    ratios = np.divide(found["joeynmt"], found["ours"])
    row = [name]
    for side, worker in workers.items():
        row += [f"{worker.greeting:,}", f"{np.median(found[side]):.1f}"]
    return [*row, f"{np.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f})"]
