"""A training that is killed, at any moment and again and again, ends as if it never had been."""

import io
import random
import re
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_attention.applications.errors import Preempted, UserError
from keras_attention.applications.training.reporting import Progress
from tests.applications.commands import (
    COMMAND,
    assert_same_training,
    assert_whole,
    run_command,
    train_arguments,
)
from tests.applications.small_training import STEPS, fit, make_run, terminate_at

# Runs the command in a process that kills itself at the n-th call of a function: between writing a
# file and giving it its name, say.
KILLED_INSIDE = """
import importlib, os, signal, sys
module, name = sys.argv[1].rsplit(".", 1)
module, count = importlib.import_module(module), int(sys.argv[2])
function = getattr(module, name)
def counting(*arguments, **settings):
    global count
    count -= 1
    if count == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*arguments, **settings)
setattr(module, name, staticmethod(counting))  # no method where a class takes it, as in pathlib
from keras_attention_command import main
sys.exit(main(sys.argv[3:]))
"""


# Called between the search for the development set's translations and their score.
EVALUATION = "keras_attention.applications.translation.task.bleu"


def kill_inside(arguments, function, count):
    """Run the command until it kills itself at that call; return whether it got so far."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED_INSIDE, function, str(count), *arguments],
        capture_output=True,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode != 0


def kill_after_epochs(arguments, epochs, delay):
    """Run the command and kill it some time after it has reported so many epochs.

    The checkpoint of the last of them may not be written yet; those before it are.
    """
    process = subprocess.Popen([COMMAND, *arguments], stderr=subprocess.PIPE, encoding="utf-8")
    for line in process.stderr:
        epochs -= "val_loss" in line  # other lines tell of an epoch that is under way
        if epochs == 0:
            break
    try:
        process.wait(timeout=delay)
    except subprocess.TimeoutExpired:
        process.kill()
    process.stderr.close()
    return process.wait() == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))  # 24 kills
def test_killed_at_many_moments(trained_run, dates_data, tmp_path, seed):
    chance = random.Random(seed)
    path = tmp_path / "killed"
    arguments = train_arguments(dates_data, path, "--resume")
    for _ in range(6):
        if chance.random() < 0.5:
            kill_inside(arguments, chance.choice(["os.replace", "os.fsync"]), chance.randint(1, 12))
        elif chance.random() < 0.3:
            kill_inside(arguments, EVALUATION, chance.randint(1, 2))
        else:
            kill_after_epochs(arguments, chance.randint(1, 2), chance.uniform(0, 0.5))
        assert_whole(path)
    assert run_command(*arguments).returncode == 0
    assert_same_training(path, trained_run)
    assert not list(path.rglob(".partial*"))


@pytest.mark.slow
def test_terminated_and_resumed_gives_the_same_weights(trained_run, dates_data, tmp_path):
    path = tmp_path / "terminated"
    arguments = train_arguments(dates_data, path, "--resume")
    for wanted in range(1, 4):
        process = subprocess.Popen([COMMAND, *arguments], stderr=subprocess.PIPE, encoding="utf-8")
        for line in process.stderr:
            if line.startswith(f"epoch {wanted}/"):
                break
        process.terminate()
        assert "ended by SIGTERM" in process.communicate()[1]
        assert process.returncode == 143
    assert run_command(*arguments).returncode == 0
    assert_same_training(path, trained_run)


def test_a_file_that_cannot_be_written_is_named_with_the_way_on(tmp_path):
    run = make_run(tmp_path / "run")
    run.best_weights.mkdir()
    with pytest.raises(UserError, match="it is a folder. Move it away. Once that is mended, "):
        fit(run, epochs=1)
    run.best_weights.rmdir()
    assert fit(run, epochs=1)[0].epoch == 1


def batch_of_100(step):
    ids = np.full((4, 25), 1 + step % 12, "int32")
    return ids, ids


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_tokens_a_second_after_a_resume_are_those_of_the_whole_epoch(tmp_path, monkeypatch):
    run, now, terminal = make_run(tmp_path / "run"), [0.0], Terminal()

    class Clock(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            now[0] += 1.0

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("tests.applications.small_training.batch", batch_of_100)
    with monkeypatch.context() as patch, pytest.raises(Preempted):
        patch.setattr(Progress, "on_train_batch_end", terminate_at(STEPS - 2))
        fit(run, callbacks=[Clock()], epochs=2)
    monkeypatch.setattr("sys.stderr", terminal)
    fit(run, callbacks=[Clock()], epochs=2)
    rates = re.findall(r"([0-9]+)/5 .* ([0-9,]+) tokens/s", terminal.getvalue().replace("\r", "\n"))
    assert rates == [(str(done), "100") for done in (4, 5, 1, 2, 3, 4, 5)]
