"""How the memory of long self-attention grows with the length, ours alone.

Causal self-attention of one sequence, width 512, 8 heads, at lengths whose weights would not fit:
seconds and peak memory of a forward pass and of a training step, each length in its own process.
"""

import argparse

from benchmarks.common.options import add_length
from benchmarks.common.processes import alone
from benchmarks.speed.contenders import find
from benchmarks.speed.problems import PASSES, Problem, Size
from benchmarks.speed.worker import prepare, time_steps

LENGTHS = (4096, 8192, 16384)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_length(parser, LENGTHS)
    parser.add_argument("--xla", action="store_true", help="compile by XLA")


def run(options: argparse.Namespace) -> None:
    """Print a table."""
    print("| length | forward s | training step s | forward peak MB | training peak MB |")
    print("| --: | --: | --: | --: | --: |")
    for length in options.length or LENGTHS:
        found = alone(measure, length, options.xla)
        cells = [f"{found['seconds'][name]:.2f}" for name in PASSES]
        cells += [f"{found[f'{name}_peak_mb']:.0f}" for name in PASSES]
        print(f"| {' | '.join([str(length), *cells])} |", flush=True)


def measure(length: int, xla: bool) -> dict:
    """Return the peaks above the imported framework, and the least time of each pass."""
    contender = find("multi-head", "ours-xla" if xla else "ours")
    problem = Problem("multi-head", Size(1, length, length, 512))
    program, report, _ = prepare(contender, problem)
    report["seconds"] = {name: min(time_steps(getattr(program, name), 1.0)) for name in PASSES}
    return report
