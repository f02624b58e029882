"""`python -m benchmarks.long_attention`: how memory grows with the length, ours alone.

Causal self-attention of one sequence, width 512, 8 heads, at lengths whose weights would not fit:
seconds and peak memory of a forward pass and of a training step, each length in its own process.
"""

import argparse
import json
import sys

from benchmarks.children import BenchmarkError, run_alone
from benchmarks.contenders import find
from benchmarks.problems import PASSES, Problem, Size
from benchmarks.worker import prepare, time_steps

LENGTHS = (4096, 8192, 16384)


def main(arguments=None) -> int:
    """Print a table; 0, or 2 after one line where a length failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_attention")
    parser.add_argument("--length", type=int, action="append", help=f"default: {LENGTHS}")
    parser.add_argument("--xla", action="store_true", help="compiled by XLA")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(measure(options.child, options.xla)))
        return 0
    print("| length | forward s | training step s | forward peak MB | training peak MB |")
    print("| --: | --: | --: | --: | --: |")
    for length in options.length or LENGTHS:
        arguments = ["--child", str(length), *["--xla"] * options.xla]
        try:
            found = run_alone("benchmarks.long_attention", *arguments)
        except BenchmarkError as error:
            print(f"error: length {length}: {error}", file=sys.stderr)
            return 2
        cells = [f"{found['seconds'][name]:.2f}" for name in PASSES]
        cells += [f"{found[f'{name}_peak_mb']:.0f}" for name in PASSES]
        print(f"| {' | '.join([str(length), *cells])} |", flush=True)
    return 0


def measure(length: int, xla: bool) -> dict:
    """Return the peaks above the imported framework, and the least time of each pass."""
    contender = find("multi-head", "ours-xla" if xla else "ours")
    problem = Problem("multi-head", Size(1, length, length, 512))
    program, report, _ = prepare(contender, problem)
    report["seconds"] = {name: min(time_steps(getattr(program, name), 1.0)) for name in PASSES}
    return report


if __name__ == "__main__":
    sys.exit(main())
