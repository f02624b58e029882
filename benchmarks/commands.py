"""Running the real command, as users do, and ending as it ends."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.children import BenchmarkError


def command(*arguments: str) -> str:
    """Run `keras-attention`, its messages on this terminal, and return what it printed.

    Raises:
        BenchmarkError: where it fails.
    """
    line = [sys.executable, "-m", "keras_attention.applications.command", *arguments]
    result = subprocess.run(line, stdout=subprocess.PIPE, text=True)
    if result.returncode:
        place = arguments[1] if arguments[0] != "train" else arguments[-1]
        raise BenchmarkError(
            f"`keras-attention {arguments[0]}` of {place} ended with status {result.returncode}"
        )
    return result.stdout


def minutes_of(run: Path) -> float:
    """Return how long a run was trained, evaluation between the epochs not counted."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return sum(json.loads(line)["train_seconds"] for line in lines) / 60


def show(make: Callable[[], str]) -> int:
    """Print what `make()` returns; return 0, 2 after one line on what went wrong, or 130."""
    try:
        print(make())
    except (BenchmarkError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from there", file=sys.stderr)
        return 130
    return 0
