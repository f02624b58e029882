"""Two checkouts in one run."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.speed import checkouts


def test_a_checkout_without_an_environment_is_refused(tmp_path, capsys):
    assert main(["checkouts", str(tmp_path)]) == 2
    assert "Expected a checkout with its own .venv/bin/python." in capsys.readouterr().err
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").touch()
    assert main(["checkouts", str(tmp_path), "--worker", "some.worker"]) == 2
    assert "with its own some/worker.py. Received: " in capsys.readouterr().err


def test_training_of_two_checkouts_takes_turns(monkeypatch, tmp_path):
    rates, order = {"here": iter([130, 120, 140]), "there": iter([90, 100, 110])}, []

    def train(architecture, checkout, folder):
        order.append("there" if checkout == tmp_path else "here")
        return next(rates[order[-1]])

    monkeypatch.setattr(checkouts, "train", train)
    cells = checkouts.compare_training("luong", tmp_path, 3)
    assert order == ["here", "there", "there", "here", "here", "there"]
    assert cells == ["130, 120, 140", "90, 100, 110", "1.30"]


@pytest.mark.skipif(sys.platform == "win32", reason="the other Python is a script")
def test_the_programs_of_both_checkouts_take_turns(tmp_path, monkeypatch, capsys):
    """The other checkout has its own Python, and its worker by another name."""
    other = tmp_path / "other"
    (other / ".venv/bin").mkdir(parents=True)
    python = other / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    shutil.copy(Path(__file__).with_name("fake_worker.py"), other / "theirs.py")
    monkeypatch.setattr(checkouts, "WORKER", "tests.benchmarks.speed.fake_worker")
    names = ("ours", "ours-xla")
    monkeypatch.setenv("FAKES", json.dumps({name: {"mb": 100} for name in names}))
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("RESULTS", str(tmp_path / "results.npz"))
    np.savez(tmp_path / "results.npz", outputs=np.ones(3))
    line = ["checkouts", str(other), "--worker", "theirs", "--only", "attention"]
    assert main([*line, "--size", "2x3x5x7", "--rounds", "2", "--seconds", "0.1"]) == 0
    row = "| additive 2x3x5x7 | 500.0 | 1.00 (1.00 to 1.00) | 500.0 | 1.00 (1.00 to 1.00) |"
    assert row in capsys.readouterr().out
    turns = [line for line in (tmp_path / "log").read_text().splitlines() if "turn" in line]
    assert len(turns) == 2 * 2 * 2 * 2  # checkouts, programs, passes and rounds
