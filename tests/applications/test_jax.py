"""The command trains on JAX, on one device and on several: run by `make test-jax`."""

import json
import sys

import keras
import numpy as np
import pytest

from keras_attention.applications.errors import Preempted
from keras_attention.applications.schema.reading import load_config
from keras_attention.applications.training.devices import devices_of
from keras_attention.applications.training.reporting import Progress
from keras_attention.applications.translation import Translator
from keras_attention.applications.translation.config import TranslationConfig
from tests.applications.commands import assert_same_training, call_command, run_command, write_dates
from tests.applications.small_tasks import COMMON, FAST, TASKS, assert_same_figures, figures
from tests.applications.small_training import assert_same_runs, fit, make_run, saved, terminate_at

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="trains on JAX")

TWO = ["--distribute.strategy=data-parallel", "--distribute.devices=CPU:0,CPU:1"]


@pytest.fixture(autouse=True)
def one_device_after():
    yield
    keras.distribution.set_distribution(None)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.by_default(FAST)
def test_two_devices_train_as_one(capsys, tmp_path, task):
    for name, more in (("one", []), ("two", TWO)):
        output = ["--output", tmp_path / name]
        done = call_command(capsys, "train", task, *TASKS[task], *COMMON, *output, *more)
        assert done.status == 0, done.err
        assert (keras.distribution.distribution() is None) == (name == "one")
    assert_same_figures(tmp_path / "one", tmp_path / "two")


# Answer selection hashes the words that it does not know by TensorFlow.
@pytest.mark.parametrize("task", sorted({*TASKS} - {"answer-selection"}))
@pytest.mark.by_default("classification")
def test_trains_where_tensorflow_is_not_installed(capsys, tmp_path, monkeypatch, task):
    more = []
    if task == "classification":  # JAX compiles `han` for each shape, 10 seconds each
        more = ["--model.architecture=mean"]
    for name in ("with", "without"):
        if name == "without":
            monkeypatch.setitem(sys.modules, "tensorflow", None)  # an import fails
        output = ["--output", tmp_path / name]
        done = call_command(capsys, "train", task, *TASKS[task], *COMMON, *more, *output)
        assert done.status == 0, done.err
    assert_same_figures(tmp_path / "with", tmp_path / "without")


def test_fits_and_evaluates_where_tensorflow_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    sources, targets = ["one two", "two one"] * 8, ["eins zwei", "zwei eins"] * 8
    translator = Translator.from_texts(sources, targets, units=8)
    history = translator.fit(sources, targets, validation_split=0.25, epochs=2, verbose=0).history
    held_out = translator.evaluate(sources[-4:], targets[-4:], verbose=0)
    assert history["val_loss"][-1] == pytest.approx(held_out, rel=1e-5)
    assert translator.translate("two one").score < 0


@pytest.mark.slow  # compiles a network twice
def test_random_pieces_train_on_two_devices_as_on_one(capsys, tmp_path):
    train = ["train", "translation", *TASKS["translation"], *COMMON, "--model.dropout=0.3"]
    train += ["--tokenizer.variants=2", "--output"]
    for name, more in (("one", []), ("two", TWO)):
        done = call_command(capsys, *train, tmp_path / name, *more)
        assert done.status == 0, done.err
    assert_same_figures(tmp_path / "one", tmp_path / "two", tolerance=1e-4)


@pytest.mark.slow
def test_an_uneven_last_batch_is_trained_on_whole(capsys, tmp_path):
    """400 rows in batches of 6: four are left, which three devices cannot cut.

    Keras counts the rows of zeros in the mean of an epoch's losses, but nowhere else.
    """
    task = [*TASKS[FAST], *COMMON, "--training.steps_per_epoch=null", "--training.epochs=1"]
    three = [TWO[0], "--distribute.devices=CPU:0,CPU:1,CPU:2"]
    for name, more in (("one", []), ("three", three)):
        done = call_command(capsys, "train", FAST, *task, "--output", tmp_path / name, *more)
        assert done.status == 0, done.err
    (one,), (three,) = figures(tmp_path / "one"), figures(tmp_path / "three")
    assert three.pop("loss") == pytest.approx(one.pop("loss"), rel=0.01)
    assert three == pytest.approx(one, rel=1e-4)


@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.by_default("7")
def test_a_signal_saves_and_the_run_continues_to_the_same_weights(tmp_path, monkeypatch, batch):
    runs = [make_run(tmp_path / name) for name in ("unbroken", "broken")]
    settings = {"epochs": 2, "average_checkpoints": 2}
    fit(runs[0], **settings)
    with monkeypatch.context() as patch, pytest.raises(Preempted, match="ended by SIGTERM"):
        patch.setattr(Progress, "on_train_batch_end", terminate_at(batch))
        fit(runs[1], **settings)
    fit(runs[1], **settings)
    assert_same_runs(saved(runs[1]), saved(runs[0]))


@pytest.mark.slow
def test_a_run_goes_on_to_the_weights_of_an_unbroken_one(capsys, tmp_path):
    train = ["train", FAST, *TASKS[FAST], *COMMON, "--model.dropout=0.3", "--output"]
    assert call_command(capsys, *train, tmp_path / "whole").status == 0
    assert call_command(capsys, *train, tmp_path / "run", "--training.epochs=1").status == 0
    again = ["train", FAST, "--resume", "--training.epochs=2", "--output", tmp_path / "run"]
    done = call_command(capsys, *again)
    assert done.status == 0 and "continuing after epoch 1" in done.err, done.err
    assert_same_training(tmp_path / "whole", tmp_path / "run")


def numbers_of(report):
    """The numbers in what JSON gave, one after another."""
    if isinstance(report, (dict, list)):
        parts = report.values() if isinstance(report, dict) else report
        return [number for part in parts for number in numbers_of(part)]
    return [report] if isinstance(report, (int, float)) else []


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.by_default("translation")
def test_a_run_is_as_good_on_tensorflow(capsys, tmp_path, monkeypatch, task):
    small = TASKS[task]
    if task == "translation":  # of few dates: JAX compiles a search for each shape
        small = [*write_dates(tmp_path), "--tokenizer.vocabulary_size=120", *small[1:]]
        small += ["--training.early_stopping=bleu"]
    train = ["train", task, *COMMON, *small, "--output", tmp_path / "run"]
    assert call_command(capsys, *train).status == 0
    here = call_command(capsys, "evaluate", tmp_path / "run", "--json")
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    there = run_command("evaluate", tmp_path / "run", "--json")
    assert there.returncode == 0, there.stderr
    one, other = (numbers_of(json.loads(text)) for text in (here.out, there.stdout))
    assert len(one) > 3
    np.testing.assert_allclose(one, other, rtol=1e-4)


@pytest.mark.parametrize(
    "more, message",
    [
        (["--distribute.strategy=mirrored"], "is TensorFlow's: use data-parallel, or set"),
        (["--distribute.strategy=multi-worker"], "is TensorFlow's: use data-parallel, or set"),
        ([TWO[0], "--distribute.devices=CPU:0,TPU:0"], "cpu:3, each once. Received: CPU:0,"),
        ([*TWO, "--training.batch_size=7"], "by the 2 replicas of distribute.strategy: 6 or 8"),
        (["--training.check_numerics=true"], "training.check_numerics needs TensorFlow"),
    ],
)
def test_what_jax_does_not_do_is_refused_in_a_line(capsys, tmp_path, more, message):
    output = ["--output", tmp_path / "run"]
    done = call_command(capsys, "train", FAST, *TASKS[FAST], *COMMON, *output, *more)
    assert done.status == 2 and not (tmp_path / "run").exists()
    assert len(done.err.strip().splitlines()) == 1 and message in done.err, done.err


def test_auto_is_one_device_where_there_is_no_gpu():
    config = load_config(TranslationConfig, [], ["--distribute.strategy=auto"])
    assert devices_of(config.distribute).replicas == 1
