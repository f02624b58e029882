"""The resident memory of one process that trains, predicts and serves for hours.

Each round trains a small translator of dates with the real command, translates a file with it, and
asks a server of the preset `dates`, which runs all the while. `--work` leaves the trainings out,
or has a model of Keras' own layers trained in their place.
"""

import argparse
import contextlib
import gc
import io
import json
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from benchmarks.common import machine
from benchmarks.common.errors import BenchmarkError
from benchmarks.common.options import as_arguments, positive
from benchmarks.common.tables import markdown

SETTINGS = {
    "tokenizer.vocabulary_size": 120,
    "model.embedding_size": 16,
    "model.units": 16,
    "training.epochs": 2,
    "training.steps_per_epoch": 10,
    "training.batch_size": 16,
    "training.tensorboard": "false",
}
REQUESTS = 20
"""Requests to the server in a round."""


def command(*arguments: str | Path) -> None:
    """Run `keras-attention` in this process."""
    from keras_attention.applications.command import main

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = main([str(each) for each in arguments])
    if status:
        raise BenchmarkError(said.getvalue()[-500:])


def start_server() -> str:
    """Serve the preset `dates` in a thread of this process; return the address of its answers."""
    from keras_attention.applications.command.serve import Limits, serve
    from keras_attention.applications.translation import Translator

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    served = ({"dates": Translator.from_preset("dates")}, "127.0.0.1", port, Limits())
    threading.Thread(target=serve, args=served, daemon=True).start()
    address = f"http://127.0.0.1:{port}"
    for _ in range(100):
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/api/models"):
            return f"{address}/api/explain"
        time.sleep(0.1)
    raise BenchmarkError("the server does not answer")


def ask(address: str, text: str) -> None:
    content = json.dumps({"model": "dates", "inputs": {"text": text}}).encode()
    request = urllib.request.Request(address, content, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        json.load(answer)


def train(data: Path, run: Path) -> None:
    files = {f"data.{split}": data / f"{split}.tsv" for split in ("train", "dev")}
    command("train", "translation", *as_arguments(SETTINGS | files), "--output", run)


def use(address: str, data: Path, run: Path, output: Path) -> None:
    """Translate a file, and ask the server."""
    command("predict", run, "--input", data / "lines", "--output", output)
    for line in (data / "lines").read_text("utf-8").splitlines()[:REQUESTS]:
        ask(address, line)


def train_plain_keras() -> None:
    """Train a translator of Keras' layers with the sizes, the steps and the clipping of `train`."""
    import keras
    import numpy as np
    from keras import layers

    size = SETTINGS["model.units"]
    words = SETTINGS["tokenizer.vocabulary_size"]
    sides = [keras.Input((None,)), keras.Input((None,))]
    source, target = (layers.Embedding(words, size)(side) for side in sides)
    memory = layers.Bidirectional(layers.GRU(size, return_sequences=True))(source)
    states = layers.GRU(size, return_sequences=True)(target)
    context = layers.AdditiveAttention()([layers.Dense(2 * size)(states), memory])
    logits = layers.Dense(words)(layers.Concatenate()([states, context]))
    model = keras.Model(sides, logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(global_clipnorm=1.0), loss, jit_compile=False)
    batch, steps = SETTINGS["training.batch_size"], SETTINGS["training.steps_per_epoch"]
    ids = np.random.default_rng(1).integers(1, words, (batch * steps, 20))
    model.fit([ids, ids], ids, batch, SETTINGS["training.epochs"], verbose=0)


def play(kind: str, address: str, data: Path) -> None:
    """Play one round."""
    if kind == "keras":
        return train_plain_keras()
    if kind == "uses" and not (data / "run").exists():
        train(data, data / "run")
    with tempfile.TemporaryDirectory() as name:
        run = Path(name, "run") if kind == "all" else data / "run"
        if kind == "all":
            train(data, run)
        use(address, data, run, Path(name, "out"))


def write_data(folder: Path) -> None:
    from keras_attention.applications.data.made import dates

    for split, count in (("train", 200), ("dev", 30)):
        sources, targets = dates.generate(split, number=count)
        lines = [f"{a}\t{b}\n" for a, b in zip(sources, targets, strict=True)]
        (folder / f"{split}.tsv").write_text("".join(lines), "utf-8")
    (folder / "lines").write_text("".join(f"{line}\n" for line in sources), "utf-8")


def resident() -> float:
    """Return the memory that this process has now, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def operations() -> int:
    """Return how many operations there are in TensorFlow's graphs that something still holds."""
    import tensorflow as tf

    graphs = [each for each in gc.get_objects() if issubclass(type(each), tf.Graph)]
    return sum(len(each.get_operations()) for each in graphs)


def soak(kind: str, minutes: float) -> list[tuple[float, int, float, int]]:
    """Play rounds for so long; return the minutes, rounds, MiB and operations after each."""
    import keras

    rows, start = [], time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        data = Path(name)
        write_data(data)
        address = start_server()
        while not rows or rows[-1][0] < minutes:
            play(kind, address, data)
            keras.utils.clear_session()
            gc.collect()
            at = (time.monotonic() - start) / 60
            rows.append((at, len(rows) + 1, resident(), operations()))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def growth(rows: list[tuple], column: int = 2) -> float:
    """Return what a round of the second half adds to a column: the slope of a fitted line."""
    import numpy as np

    half = np.array(rows[len(rows) // 2 :])
    return float(np.polyfit(half[:, 1], half[:, column], 1)[0]) if len(half) > 1 else 0.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--minutes", type=positive(float), default=240.0, help="how long (default: %(default)s)"
    )
    kinds = {"all": "as above", "uses": "no trainings", "keras": "trainings of plain Keras alone"}
    explained = ", ".join(f"{name}: {what}" for name, what in kinds.items())
    parser.add_argument(
        "--work",
        choices=kinds,
        default="all",
        help=f"what a round does, {explained} (default: %(default)s)",
    )


def run(options: argparse.Namespace) -> None:
    """Print memory over time, and what a round adds."""
    rows = soak(options.work, options.minutes)
    print(json.dumps(machine.facts()))
    shown = sorted({round(place * (len(rows) - 1) / 8) for place in range(9)})
    cells = [[f"{at:.1f}", str(n), f"{mib:,.0f}", f"{kept:,}"] for at, n, mib, kept in rows]
    names = ["minutes", "rounds", "resident, MiB", "operations in graphs"]
    print(markdown([names, *(cells[place] for place in shown)]))
    mib, kept = growth(rows), growth(rows, 3)
    print(f"\nIn the second half a round adds {mib:.2f} MiB and {kept:,.0f} operations.")
