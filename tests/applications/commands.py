"""Running the real command, and the small run that several tests share."""

import contextlib
import dataclasses
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from keras_attention.applications.command import main
from keras_attention.applications.data.made import dates
from keras_attention.applications.schema.reading import load_config
from keras_attention.applications.training.run_folder import (
    Checkpoints,
    RunFolder,
    read_checkpoint,
    read_metrics,
)
from keras_attention.applications.translation.config import TranslationConfig

COMMAND = str(Path(sys.executable).with_name("keras-attention"))

SMALL = [
    "--tokenizer.vocabulary_size=120",
    "--model.embedding_size=24",
    "--model.units=32",
    "--model.dropout=0.1",
    "--training.batch_size=16",
    "--training.steps_per_epoch=15",
    "--training.epochs=4",
    "--training.learning_rate=0.01",
    "--training.schedule=halve",
    "--training.early_stopping=bleu",
    "--training.patience=9",
    "--decoding.beam_size=3",
    "--decoding.max_length=12",
]


def write_dates(folder: Path) -> list[str]:
    """Write a few hundred dates as TSV files; return the options that name them."""
    options = []
    for split, number in (("train", 400), ("dev", 40), ("test", 40)):
        rows = zip(*dates.generate(split, number=number), strict=True)
        path = folder / f"{split}.tsv"
        path.write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
        options += [f"--data.{split}", str(path)]
    return options


def train_arguments(data: list[str], output: Path, *more: str) -> list[str]:
    return ["train", "translation", *data, *SMALL, "--output", str(output), *more]


def run_command(*arguments: str, **settings) -> subprocess.CompletedProcess:
    """Run the installed command in a process of its own, with the log level that it sets itself."""
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(
        [COMMAND, *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env=environment,
        **settings,
    )


@dataclasses.dataclass(frozen=True)
class Done:
    """What a command left: its exit status and what it wrote."""

    status: int
    out: str
    err: str


def train_here(*arguments) -> str:
    """Train inside this process, for a fixture; return what came on standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(argument) for argument in arguments])
    assert (status or 0, out.getvalue()) == (0, ""), err.getvalue()
    return err.getvalue()


def call_command(capsys, *arguments) -> Done:
    """Run the command inside this process, which has TensorFlow already."""
    capsys.readouterr()
    try:
        status = main([str(argument) for argument in arguments])
    except SystemExit as leaving:  # argparse's way
        status = leaving.code
    written = capsys.readouterr()
    return Done(status or 0, written.out, written.err)


def left_behind(path: Path) -> tuple:
    """All that a training leaves but times: variables, states, best weights, figures."""
    import h5py

    run = RunFolder(path)
    checkpoint, problems = Checkpoints(run.checkpoints).latest()
    assert not problems
    arrays = list(checkpoint.arrays)
    with h5py.File(run.best_weights) as file:
        file.visititems(lambda _, item: arrays.append(item[()]) if hasattr(item, "shape") else None)
    states = {k: v for k, v in checkpoint.state["callbacks"].items() if k != "time"}
    lines = [
        {k: v for k, v in line.items() if "second" not in k} for line in read_metrics(run.metrics)
    ]
    return arrays, checkpoint.step, states, lines


def assert_whole(path: Path) -> None:
    """What has its final name in a run folder, if there is one, can be read to its end."""
    if not path.exists():
        return
    import h5py

    run = RunFolder(path)
    assert load_config(TranslationConfig, [run.config])
    for each in Checkpoints(run.checkpoints).paths():
        read_checkpoint(each)
    read_metrics(run.metrics)
    if run.best_weights.exists():
        with h5py.File(run.best_weights) as file:
            file.visititems(lambda _, item: item[()] if hasattr(item, "shape") else None)


def assert_same_training(one: Path, other: Path) -> None:
    """Two runs left the same behind, bit for bit."""
    (arrays, *rest), (arrays2, *rest2) = left_behind(one), left_behind(other)
    assert rest == rest2
    for a, b in zip(arrays, arrays2, strict=True):
        np.testing.assert_array_equal(a, b)
