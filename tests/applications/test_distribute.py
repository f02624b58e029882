"""All applications train on several devices as they do on one."""

import re

import numpy as np
import pytest

from keras_attention.applications.common.config import load_config
from keras_attention.applications.common.distribute_config import strategy_of
from keras_attention.applications.common.metrics_log import read_metrics
from keras_attention.applications.translation.config import TranslationConfig
from tests.applications.commands import call_command, run_command

COMMON = [
    "--training.epochs=2",
    "--training.steps_per_epoch=3",
    "--training.tensorboard=false",
    "--training.early_stopping=loss",
]
SMALL = ["--model.embedding_size=6", "--model.units=6", "--model.dropout=0"]
TASKS = {
    "translation": [
        *["--data.dataset=dates", *SMALL],
        "--training.batch_size=6",
    ],
    "summarization": ["--data.dataset=reports", *SMALL, "--training.batch_size=6"],
    "classification": [
        *["--data.dataset=opinions", "--model.architecture=han", *SMALL],
        "--training.batch_size=6",
    ],
    "answer-selection": [
        *["--data.dataset=facts", "--vocabulary.unknown_buckets=50", *SMALL],
        *["--model.encoder=inner-word", "--training.batch_size=6", "--training.negatives=2"],
    ],
}
XLA = ["--training.jit_compile=true", "--training.deterministic=false"]
MIRRORED = ["--distribute.strategy=mirrored", "--distribute.devices=CPU:0,CPU:1"]


def figures(path):
    lines = read_metrics(path / "metrics.jsonl")
    return [{k: v for k, v in line.items() if "second" not in k} for line in lines]


def assert_same_figures(one, other, tolerance=1e-5):
    for line, line2 in zip(figures(one), figures(other), strict=True):
        assert line.keys() == line2.keys()
        for name in line:
            np.testing.assert_allclose(line2[name], line[name], rtol=tolerance, err_msg=name)


# One of them in the default suite; all go through the same run module.
FAST = "answer-selection"


@pytest.mark.parametrize(
    "task", [pytest.param(task, marks=() if task == FAST else pytest.mark.slow) for task in TASKS]
)
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
        (["--distribute.devices=CPU:0"], "goes with distribute.strategy mirrored or auto"),
        (["--distribute.strategy=all"], "one of none, auto, mirrored"),
        (["--training.check_numerics=true", "--training.precision=mixed_float16"], "goes neither"),
        (["--training.steps_per_execution=0"], "must be at least 1"),
    ):
        done = call_command(capsys, *translation, *more)
        assert done.status == 2 and not (tmp_path / "run").exists()
        assert len(done.err.strip().splitlines()) == 1
        assert re.search(message, done.err), done.err


def test_auto_is_one_device_where_there_is_no_gpu():
    config = load_config(TranslationConfig, [], ["--distribute.strategy=auto"])
    assert strategy_of(config.distribute).num_replicas_in_sync == 1


@pytest.mark.slow  # XLA compiles each of the eight shapes
def test_xla_trains(tmp_path):
    common = ["train", "classification", *TASKS["classification"], *COMMON]
    for name, more in (("without", []), ("with", XLA)):
        done = run_command(*common, "--output", tmp_path / name, *more)
        assert done.returncode == 0, done.stderr
        assert "warning" not in done.stderr
    assert_same_figures(tmp_path / "without", tmp_path / "with", tolerance=1e-4)
