"""`python -m benchmarks.checkouts OTHER`: our programs here and in another checkout, in one run.

The other checkout, an older commit say, has its own `.venv` with the package installed from it. A
ratio is the time there by the time here, each in its faster form, with XLA or without.
"""

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks import machine, report
from benchmarks.__main__ import CHOICES, SIZES
from benchmarks.children import ROOT, BenchmarkError, Child, check_agreement, take_turns
from benchmarks.contenders import OURS, contenders_for
from benchmarks.problems import Problem, Size, passes_of


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


def main(arguments=None) -> int:
    """Print a table; 0, or 2 after one line on what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="the folder of the other checkout")
    parser.add_argument("--only", choices=CHOICES, action="append", help="default: all")
    parser.add_argument("--size", type=Size.parse, action="append", help="default: the goals'")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args(arguments)
    other = options.other.resolve()
    if not (other / ".venv/bin/python").exists():
        parser.error(f"expected a checkout with its own .venv. Received: {options.other}")
    watch = machine.Watch()
    print(report.machine_line(machine.facts()))
    print("\n| | pass 1 ms | times as fast | pass 2 ms | times as fast |")
    print("| --- | --: | --- | --: | --- |")
    for name in options.only or ["all"]:
        for kind in CHOICES.get(name, tuple(SIZES)):
            for size in options.size or SIZES[kind]:
                problem = Problem(kind, size)
                try:
                    cells = compare(problem, other, options.rounds, options.seconds)
                except BenchmarkError as error:
                    print(f"error: {error}", file=sys.stderr)
                    return 2
                print(f"| {problem} | " + " | ".join(cells) + " |", flush=True)
    others = watch.share_of_others()
    share = "an unknown share" if others is None else f"{others:.0%}"
    print(f"\nOther programs used {share} of the cores meanwhile.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
