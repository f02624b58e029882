"""Running the real command, as users do."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.common.errors import BenchmarkError


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
