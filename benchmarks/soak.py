"""`python -m benchmarks.soak`: resident memory of one process that trains, predicts and serves.

Each round trains a small translator of dates with the real command, translates a file with it, and
asks a server of the preset `dates`, which runs all the while.
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

from benchmarks import machine
from benchmarks.children import BenchmarkError
from benchmarks.report import markdown

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
    from keras_attention.applications.serve import Limits, serve
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


def play(address: str, data: Path, folder: Path) -> None:
    """Train, predict and ask once, all in `folder`."""
    sides = {split: data / f"{split}.tsv" for split in ("train", "dev")}
    options = [f"--{name}={value}" for name, value in SETTINGS.items()]
    options += [f"--data.{split}_tsv={path}" for split, path in sides.items()]
    command("train", "translation", *options, "--output", folder / "run")
    command("predict", folder / "run", "--input", data / "lines", "--output", folder / "out")
    for line in (data / "lines").read_text("utf-8").splitlines()[:REQUESTS]:
        ask(address, line)


def write_data(folder: Path) -> None:
    from keras_attention.applications.translation import dates

    for split, count in (("train", 200), ("dev", 30)):
        sources, targets = dates.generate(split, number=count)
        lines = [f"{a}\t{b}\n" for a, b in zip(sources, targets, strict=True)]
        (folder / f"{split}.tsv").write_text("".join(lines), "utf-8")
    (folder / "lines").write_text("".join(f"{line}\n" for line in sources), "utf-8")


def resident() -> float:
    """Return the memory that this process has now, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def soak(minutes: float) -> list[tuple[float, int, float]]:
    """Play rounds for so long; return minutes, rounds and resident memory after each."""
    import keras

    rows, start = [], time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        data = Path(name)
        write_data(data)
        address = start_server()
        while not rows or rows[-1][0] < minutes:
            with tempfile.TemporaryDirectory() as folder:
                play(address, data, Path(folder))
            keras.utils.clear_session()
            gc.collect()
            rows.append(((time.monotonic() - start) / 60, len(rows) + 1, resident()))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def growth(rows: list[tuple[float, int, float]]) -> float:
    """Return the MiB that a round of the second half adds: the slope of a fitted line."""
    import numpy as np

    half = np.array(rows[len(rows) // 2 :])
    return float(np.polyfit(half[:, 1], half[:, 2], 1)[0]) if len(half) > 1 else 0.0


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=240.0, help="how long (240)")
    options = parser.parse_args(arguments)
    try:
        rows = soak(options.minutes)
    except BenchmarkError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(machine.facts()))
    shown = sorted({round(place * (len(rows) - 1) / 8) for place in range(9)})
    cells = [[f"{rows[n][0]:.1f}", str(rows[n][1]), f"{rows[n][2]:,.0f}"] for n in shown]
    print(markdown([["minutes", "rounds", "resident, MiB"], *cells]))
    print(f"\nIn the second half a round adds {growth(rows):.2f} MiB.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
