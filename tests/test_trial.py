"""The short form of the standing trial; `make trial` is the long one."""

import subprocess
import sys
from pathlib import Path

import keras
import pytest


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the command's own backend")
@pytest.mark.skipif(sys.platform == "win32", reason="workers are forked")
def test_nothing_breaks_it():
    command = [sys.executable, "-m", "tests.trial", "--tasks", "answer-selection"]
    command += ["--mutations", "100", "--faults", "2", "--jobs", "1"]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[1], capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
