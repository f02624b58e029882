"""The short form of the standing trial, of which `make trial` is the long one; and its judges."""

import subprocess
import sys
from pathlib import Path

import keras
import pytest

pytestmark = [
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the command's own backend"),
    pytest.mark.skipif(sys.platform == "win32", reason="workers are forked"),
]

# Does what a broken command may do, one thing a case, and prints how each is judged.
BROKEN = """
import os, sys, tempfile
from pathlib import Path
from tests.trial import workers

def broken(kind, folder):
    if kind == "abort":
        os.abort()
    if kind == "loop":
        while True:
            pass
    if kind == "pipe":
        os.mkfifo(folder / "pipe")
        open(folder / "pipe").read()
    if kind == "allocate":
        bytearray(8 << 30)
    if kind == "raise":
        raise KeyError
    if kind == "talk":
        print(9 * "no\\n", file=sys.stderr)
    return 2 if kind == "talk" else 0

def act(case, folder):
    done = workers.watch(lambda: broken(case.kind, folder), folder)
    return workers.Judged(case, workers.outcome_of(done, case.kind != "differ", False), "")

workers.CPU_SECONDS, workers.WALL_SECONDS = 5, 30
kinds = ["fine", "differ", "abort", "loop", "pipe", "allocate", "raise", "talk", "fine again"]
with tempfile.TemporaryDirectory() as root:
    for end in workers.judge_all([workers.Case(kind, 0) for kind in kinds], act, 2, Path(root)):
        print(f"{end.case.kind}: {end.outcome}")
"""
JUDGED = {
    *("fine: same", "differ: silent difference", "abort: crash", "loop: time", "pipe: time"),
    *("allocate: memory", "raise: traceback", "talk: long message", "fine again: same"),
}


def run(*arguments: str) -> subprocess.CompletedProcess:
    root = Path(__file__).parents[1]
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8")


@pytest.mark.slow
def test_nothing_breaks_it():
    done = run(
        *("-m", "tests.trial", "--tasks", "answer-selection"),
        *("--mutations", "30", "--faults", "1", "--jobs", "1"),
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.slow
def test_each_bad_outcome_is_seen():
    done = run("-c", BROKEN)
    assert set(done.stdout.splitlines()) == JUDGED, done.stdout + done.stderr[-2000:]
