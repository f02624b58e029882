"""Two checkouts in one run."""

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
