"""Our recurrent translators beside joeynmt's."""

import pytest

from benchmarks.__main__ import main
from benchmarks.speed import recurrent_training_worker as worker


@pytest.mark.parametrize("name", worker.MODELS)
def test_a_recurrent_model_trains_as_it_is_timed(name, monkeypatch):
    for size, value in {"WORDS": 17, "UNITS": 6, "BATCH": 3, "LENGTH": 5}.items():
        monkeypatch.setattr(worker, size, value)
    step, weights = worker.our_step(name)
    losses = [step() for _ in range(5)]
    assert losses[-1] < losses[0] and weights > 17 * 6


def test_a_python_that_is_not_there_is_refused(capsys):
    assert main(["recurrent-training", "--python", "nowhere"]) == 2
    assert "a Python that has joeynmt. Received: nowhere" in capsys.readouterr().err
