"""All applications train in several processes as they do in one."""

import dataclasses
import json
import random
import re
import signal
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from keras_attention.applications.base import train as tasks
from keras_attention.applications.errors import UserError, WorkersStopped
from keras_attention.applications.store.files import checksum
from keras_attention.applications.training.devices import DistributeConfig, on_all_replicas
from keras_attention.applications.translation.config import TranslationConfig
from keras_attention.distribute import Cluster, Workers, naming_lost_workers
from tests.applications.cluster import (
    MULTI_WORKER,
    free_addresses,
    run_workers,
    start_workers,
    tf_config,
    wait_for,
)
from tests.applications.commands import (
    assert_same_training,
    assert_whole,
    call_command,
    left_behind,
    train_arguments,
)
from tests.applications.training.test_distribute import COMMON, MIRRORED, TASKS, assert_same_figures

# Runs the command, and notes what it writes inside of a folder.
WATCHED = """
import os, sys
folder = os.path.abspath(sys.argv[1])
def watch(event, arguments):
    if event == "open":
        changes = isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    else:
        changes = event in ("os.mkdir", "os.rename", "os.remove", "os.truncate")
    if changes and os.path.abspath(str(arguments[0])).startswith(folder):
        print("WRITES", event, arguments[0], file=sys.stderr)
sys.addaudithook(watch)
from keras_attention_command import main
sys.exit(main(sys.argv[2:]))
"""


class Pretended(Workers):
    """The chief of two workers, of which the other says what a test lets it say."""

    def __init__(self, other):
        self.cluster = Cluster(("a:1", "b:2"), 0)
        self.count = 2
        self._index = 0
        self.other = other

    def texts(self, text):
        return [text, json.dumps(self.other(json.loads(text)))]


def agree(config, output, other):
    tasks._agree(Pretended(other), config, output, "a new run")


def test_other_keys_data_and_folders_are_refused(tmp_path):
    file = tmp_path / "train.tsv"
    file.write_text("a\tb\n")
    data = {"train": str(file), "dev": str(file)}
    config = TranslationConfig(data=dataclasses.replace(TranslationConfig().data, **data))
    agree(config, "run", lambda facts: facts)
    refused = r"^the workers differ in training.seed: a:1 has 1, b:2 has 2. Start all with the same"
    with pytest.raises(ValueError, match=refused):
        agree(config, "run", lambda facts: {**facts, "training.seed": 2})

    name = "the contents of data.train (their SHA-256)"
    with pytest.raises(ValueError, match="differ in the contents of data.train"):
        agree(config, "run", lambda facts: facts | {name: facts[name][::-1]})
    with pytest.raises(ValueError, match="differ in where to start: .*'a new run', .*'step-1.npz'"):
        agree(config, "run", lambda facts: {**facts, "where to start": "step-1.npz"})


def test_a_folder_has_a_checksum(tmp_path):
    (tmp_path / "a").write_text("1")
    sums = [checksum(tmp_path), checksum(tmp_path)]
    (tmp_path / "a").rename(tmp_path / "b")
    sums.append(checksum(tmp_path))
    (tmp_path / "b").write_text("2")
    sums.append(checksum(tmp_path))
    assert sums[0] == sums[1] and len(set(sums)) == 3


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (None, "strategy multi-worker needs TF_CONFIG"),
        ("{", "TF_CONFIG is not as it should be .JSONDecodeError.* Expected: .*host:port"),
        (tf_config(["a:1"], 1), "says that this is worker 1, and there is no such worker"),
    ],
)
def test_wrong_clusters_are_refused_in_a_line(capsys, tmp_path, monkeypatch, environment, message):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if environment is not None:
        monkeypatch.setenv("TF_CONFIG", environment)
    assert_refused(capsys, tmp_path, message)


def test_a_worker_that_never_comes_is_named(capsys, tmp_path, monkeypatch):
    addresses = free_addresses(2)
    monkeypatch.setenv("TF_CONFIG", tf_config(addresses, 0))
    message = f"no worker answered at {addresses[1]} within 0.3 seconds"
    assert_refused(capsys, tmp_path, message, "--distribute.timeout=0.3")


def test_who_has_ended_is_named_and_what_is_kept(tmp_path):
    addresses = free_addresses(2)
    workers = Pretended(None)
    workers.cluster = Cluster(tuple(addresses), 0)
    (tmp_path / "checkpoints").mkdir()
    for kept in ("There is no checkpoint yet", r"\S*step-00000007.npz is kept"):
        message = f"cannot be reached: nobody answers at {addresses[1]}. {kept}: start all workers"
        with (
            pytest.raises(WorkersStopped, match=message) as caught,
            tasks._naming_what_is_left(tmp_path, workers),
            naming_lost_workers(),
        ):
            raise tf.errors.UnavailableError(None, None, "Socket closed")
        assert caught.value.exit_status == 4
        (tmp_path / "checkpoints" / "step-00000007.npz").write_bytes(b"")


@pytest.mark.parametrize("error", [ValueError("no\ntexts"), PermissionError(13, "no", "a")])
def test_what_stops_the_chief_is_said_by_all(tmp_path, error):
    said = []

    def act():
        raise error

    workers = Pretended(lambda refusal: said.append(refusal))
    with pytest.raises(UserError):
        tasks._by_the_chief(workers, act, tmp_path / "run")
    assert said in (["no texts"], ["[Errno 13] no: 'a'"])


def assert_refused(capsys, path, message, *more):
    arguments = ["train", "translation", *TASKS["translation"], "--output", path / "run"]
    done = call_command(capsys, *arguments, "--distribute.strategy=multi-worker", *more)
    assert done.status == 2 and not (path / "run").exists()
    assert len(done.err.strip().splitlines()) == 1
    assert re.search(message, done.err), done.err


def test_the_batch_may_grow_with_the_replicas():
    section = DistributeConfig(
        "mirrored", "CPU:0,CPU:1", batch="replica", learning_rate_scaling="sqrt"
    )
    config = dataclasses.replace(TranslationConfig(), distribute=section)
    training = on_all_replicas(config).training
    assert training.batch_size == 2 * config.training.batch_size
    assert training.learning_rate == pytest.approx(2**0.5 * config.training.learning_rate)
    linear = dataclasses.replace(section, learning_rate_scaling="linear")
    training = on_all_replicas(dataclasses.replace(config, distribute=linear)).training
    assert training.learning_rate == 2 * config.training.learning_rate
    assert on_all_replicas(TranslationConfig()) == TranslationConfig()
    with pytest.raises(UserError, match="goes with distribute.batch replica"):
        DistributeConfig(learning_rate_scaling="linear")


@pytest.mark.slow
def test_another_number_of_replicas_does_not_continue_a_grown_batch(capsys, tmp_path):
    task = "answer-selection"
    train = ["train", task, *TASKS[task], *COMMON, "--output", tmp_path / "run"]
    grown = ["--distribute.batch=replica", "--training.batch_size=3"]
    assert call_command(capsys, *train, *MIRRORED, *grown).status == 0
    one = ["--distribute.strategy=none", "--distribute.devices=null", "--training.epochs=3"]
    done = call_command(capsys, "train", task, "--resume", "--output", tmp_path / "run", *one)
    assert done.status == 2 and "trained with batches of 6 on all replicas" in done.err


def write_uneven(folder, task):
    """Write 20 training examples, which batches of six do not fill; return the options."""
    words = ["one", "two", "three", "four", "five", "six", "seven"]
    chance = random.Random(5)
    for split, count in (("train", 20), ("dev", 7)):
        rows = [chance.choices(words, k=chance.randint(1, 9)) for _ in range(count)]
        if task == "translation":
            lines = [f"{' '.join(row)}\t{' '.join(reversed(row))}" for row in rows]
        else:
            labels = ["long" if len(row) > 4 else "short" for row in rows]
            texts = (" ".join(row) for row in rows)
            lines = ["label,text", *map(",".join, zip(labels, texts, strict=True))]
        ending = "tsv" if task == "translation" else "csv"
        (folder / f"{split}.{ending}").write_text("\n".join(lines) + "\n")
    if task == "translation":
        return [f"--data.{split}={folder / split}.tsv" for split in ("train", "dev")]
    return [f"--data.{split}={folder / split}.csv" for split in ("train", "dev")]


UNEVEN = [
    *["--model.embedding_size=6", "--model.units=6", "--model.dropout=0"],
    *["--training.batch_size=6", "--training.epochs=2", "--training.early_stopping=loss"],
    *["--training.tensorboard=false"],
]
ARCHITECTURES = {
    "translation": ["--model.architecture=rnnsearch", "--tokenizer.vocabulary_size=30"],
    "classification": ["--model.architecture=han"],
}


def assert_same_weights(one, other, tolerance=5e-6):
    for a, b in zip(left_behind(one)[0], left_behind(other)[0], strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("task", ARCHITECTURES)
def test_uneven_batches_give_the_losses_of_one_process(capsys, tmp_path, task):
    data = write_uneven(tmp_path, task)
    train = ["train", task, *data, *UNEVEN, *ARCHITECTURES[task], "--output"]
    one = tmp_path / "one"
    done = call_command(capsys, *train, one)
    assert done.status == 0, done.err
    for devices in ("CPU:0,CPU:1", "CPU:0,CPU:1,CPU:2"):
        path = tmp_path / devices.replace(":", "")
        strategy = ["--distribute.strategy=mirrored", f"--distribute.devices={devices}"]
        done = call_command(capsys, *train, path, *strategy)
        assert done.status == 0, done.err
        assert_same_figures(one, path, tolerance=1e-6)
        assert_same_weights(one, path)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("task", ARCHITECTURES)
def test_uneven_batches_in_workers(capsys, tmp_path, task, count):
    data = write_uneven(tmp_path, task)
    train = ["train", task, *data, *UNEVEN, *ARCHITECTURES[task], "--output"]
    done = call_command(capsys, *train, tmp_path / "one")
    assert done.status == 0, done.err
    for done in run_workers(count, *train, tmp_path / "workers"):
        assert done.status == 0, done.err
    assert_same_figures(tmp_path / "one", tmp_path / "workers", tolerance=1e-6)
    assert_same_weights(tmp_path / "one", tmp_path / "workers")


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_two_workers_train_as_one_process(capsys, tmp_path, task):
    train = ["train", task, *TASKS[task], *COMMON, "--output"]
    done = call_command(capsys, *train, tmp_path / "one")
    assert done.status == 0, done.err
    path = tmp_path / "two"
    program = (sys.executable, "-c", WATCHED, path)
    chief, other = wait_for(start_workers([[*train, path, *MULTI_WORKER]] * 2, program))
    assert chief.status == other.status == 0, chief.err + other.err
    assert "WRITES" in chief.err and "WRITES" not in other.err  # the chief alone writes
    assert_same_figures(tmp_path / "one", path)
    assert_whole_but_config(path)


def assert_whole_but_config(path):
    assert not [each.name for each in path.rglob(".partial*")]
    assert left_behind(path)[0]


@pytest.mark.slow
def test_workers_that_differ_are_refused(tmp_path):
    train = ["train", "translation", *TASKS["translation"], *COMMON, *MULTI_WORKER]
    train += ["--output", tmp_path / "run"]
    for done in wait_for(start_workers([train, [*train, "--training.seed=7"]])):
        assert done.status == 2
        assert "the workers differ in training.seed: 127.0.0.1:" in done.err
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def unbroken(dates_data, tmp_path_factory):
    path = tmp_path_factory.mktemp("workers") / "unbroken"
    for done in run_workers(2, *train_arguments(dates_data, path)):
        assert done.status == 0, done.err
    return path


def interrupt(arguments, chance, number):
    """Start two workers; send one of them a signal at some moment; return what they left."""
    processes = start_workers([[*arguments, *MULTI_WORKER]] * 2)
    seen = ""
    for line in processes[0].stderr:
        seen += line
        if line.startswith("epoch "):
            break
    time.sleep(chance.uniform(0, 1.0))
    processes[chance.randint(0, 1)].send_signal(number)
    return wait_for(processes), seen


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "terminate"])
def test_all_stop_with_one_and_continue(unbroken, dates_data, tmp_path, number):
    chance = random.Random(number)
    path = tmp_path / "broken"
    arguments = train_arguments(dates_data, path, "--resume")
    for _ in range(2):
        left, seen = interrupt(arguments, chance, number)
        statuses = sorted(done.status for done in left)
        if number == signal.SIGTERM:
            assert statuses in ([143, 143], [0, 0]), seen + left[0].err + left[1].err
        elif statuses != [0, 0]:  # else all was done before the signal came
            assert statuses == [-signal.SIGKILL, 4], seen + left[0].err + left[1].err
            survivor = next(done for done in left if done.status == 4)
            assert "cannot be reached: nobody answers at 127.0.0.1:" in survivor.err
            assert "start all workers again, with --resume" in survivor.err
        assert_whole(path)
    for done in run_workers(2, *arguments):
        assert done.status == 0, done.err
    assert_same_training(path, unbroken)
