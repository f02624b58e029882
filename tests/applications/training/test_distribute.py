"""All applications train on several devices as they do on one."""

import re

import pytest

from keras_attention.applications.schema.reading import load_config
from keras_attention.applications.training.devices import devices_of
from keras_attention.applications.translation.config import TranslationConfig
from tests.applications.commands import call_command, run_command
from tests.applications.small_tasks import COMMON, FAST, TASKS, assert_same_figures

XLA = ["--training.jit_compile=true", "--training.deterministic=false"]
MIRRORED = ["--distribute.strategy=mirrored", "--distribute.devices=CPU:0,CPU:1"]


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_two_devices_train_as_one(capsys, tmp_path, task):
    train_on_one_and_two(capsys, tmp_path, task)


@pytest.mark.slow
def test_a_run_goes_on_on_other_devices(capsys, tmp_path):
    train_on_one_and_two(capsys, tmp_path, FAST)
    again = ["train", FAST, "--training.epochs=3", "--resume", "--output"]
    for name, more in (("one", MIRRORED), ("two", ["--distribute.strategy=none"])):
        more = more if name == "one" else [*more, "--distribute.devices=null"]
        done = call_command(capsys, *again, tmp_path / name, *more)
        assert done.status == 0, done.err
        assert "continuing after epoch 2" in done.err
    assert_same_figures(tmp_path / "one", tmp_path / "two")


def train_on_one_and_two(capsys, path, task):
    common = ["train", task, *TASKS[task], *COMMON]
    for name, more in (("one", []), ("two", MIRRORED)):
        done = call_command(capsys, *common, "--output", path / name, *more)
        assert done.status == 0, done.err
    assert_same_figures(path / "one", path / "two")


def test_what_cannot_be_is_refused_in_a_line(capsys, tmp_path):
    translation = ["train", "translation", *TASKS["translation"], "--output", tmp_path / "run"]
    for more, message in (
        ([*MIRRORED, "--training.batch_size=7"], "by the 2 replicas .*: 6 or 8, say. Received: 7"),
        ([*MIRRORED, *XLA], "jit_compile true goes with one device only"),
        (XLA[:1], "jit_compile true needs training.deterministic false"),
        (["--distribute.strategy=mirrored"], "needs GPUs, and none is visible"),
        ([MIRRORED[0], "--distribute.devices=CPU:0,TPU:0"], "CPU:3, each once. Received: CPU:0, T"),
        (
            ["--distribute.devices=CPU:0"],
            "with distribute.strategy auto, mirrored or data-",
        ),
        (["--distribute.strategy=all"], "one of none, auto, mirrored"),
        (["--distribute.strategy=data-parallel"], "is JAX's: set KERAS_BACKEND=jax, or use"),
        (["--training.check_numerics=true", "--training.precision=mixed_float16"], "goes neither"),
        (["--training.steps_per_execution=0"], "must be at least 1"),
    ):
        done = call_command(capsys, *translation, *more)
        assert done.status == 2 and not (tmp_path / "run").exists()
        assert len(done.err.strip().splitlines()) == 1
        assert re.search(message, done.err), done.err


def test_auto_is_one_device_where_there_is_no_gpu():
    config = load_config(TranslationConfig, [], ["--distribute.strategy=auto"])
    assert devices_of(config.distribute).replicas == 1


@pytest.mark.slow  # XLA compiles each of the eight shapes
def test_xla_trains(tmp_path):
    common = ["train", "classification", *TASKS["classification"], *COMMON]
    for name, more in (("without", []), ("with", XLA)):
        done = run_command(*common, "--output", tmp_path / name, *more)
        assert done.returncode == 0, done.stderr
        assert "warning" not in done.stderr
    assert_same_figures(tmp_path / "without", tmp_path / "with", tolerance=1e-4)
