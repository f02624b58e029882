"""A training step and the decoding of a CRF, beside those of `pytorch-crf`.

    pip install pytorch-crf
    python -m benchmarks crf --output crf.json
    python -m benchmarks crf --size 1x10000x20 --rounds 1

A training step is the loss, and its gradients by emissions and weights. Both sides get the same
emissions, tags and lengths, and must agree on loss and best tags. They take turns in one process, a
thread each, and of each the best turn counts. The peak of memory is that of a process of its own,
above what it holds before its first step.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.common.errors import BenchmarkError
from benchmarks.common.machine import Watch, commit, facts, installed
from benchmarks.common.options import add_figures, add_rounds, write_figures
from benchmarks.common.processes import alone, peak_megabytes

SIZES = ("32x50x20", "16x200x100")
OURS, COMPILED, PEER = "ours", "ours, XLA", "pytorch-crf"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--size",
        action="append",
        metavar="BATCHxSTEPSxTAGS",
        help=f"may be repeated (default: {', '.join(SIZES)})",
    )
    add_rounds(parser, 5)
    parser.add_argument("--no-memory", action="store_true", help="measure no memory")
    add_figures(parser)


def run(options: argparse.Namespace) -> None:
    """Print a table."""
    if not installed(PEER):
        raise BenchmarkError(f"{PEER} is missing: pip install {PEER}.")
    watch, rows = Watch(), []
    for size in options.size or SIZES:
        rows += measure(size, options.rounds)
    if not options.no_memory:
        for row in rows:
            row["peak_mb"] = alone(peak, row["side"], row["size"])
    found = {**facts(), "threads": 1, "commit": commit(), "rows": rows}
    found["pytorch-crf"] = installed("pytorch-crf")
    found["share_of_others"] = watch.share_of_others()
    print(table(rows))
    print({name: value for name, value in found.items() if name != "rows"})
    write_figures(options.output, found)


def problem(size: str) -> dict[str, np.ndarray]:
    """Return emissions, tags, lengths and the scores of a chain."""
    try:
        batch, steps, tags = map(int, size.split("x"))
    except ValueError:
        raise BenchmarkError(f"A size is BATCHxSTEPSxTAGS. Received: {size!r}") from None
    rng = np.random.default_rng(0)
    lengths = np.maximum(steps - np.arange(batch) * steps // (2 * batch), 1)
    arrays = {
        "emissions": rng.normal(size=(batch, steps, tags)),
        "transitions": 0.3 * rng.normal(size=(tags, tags)),
        "start": rng.normal(size=tags),
        "end": rng.normal(size=tags),
    }
    arrays = {name: array.astype("float32") for name, array in arrays.items()}
    arrays["tags"] = rng.integers(0, tags, (batch, steps)).astype("int32")
    arrays["mask"] = np.arange(steps) < lengths[:, None]
    return arrays


def ours(arrays: dict[str, np.ndarray], compiled: bool) -> dict[str, Callable[[], Any]]:
    """Return the passes of the layer, in graphs of TensorFlow."""
    import tensorflow as tf

    from keras_attention import CRF

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    layer = CRF(arrays["start"].shape[0])
    layer.build((None, None, layer.num_tags))
    layer.set_weights([arrays[name] for name in ("transitions", "start", "end")])
    emissions, mask = tf.constant(arrays["emissions"]), tf.constant(arrays["mask"])
    tags = tf.constant(arrays["tags"])
    weights = [weight.value for weight in layer.trainable_weights]

    @tf.function(jit_compile=compiled)
    def train(emissions, tags, mask):
        with tf.GradientTape() as tape:
            tape.watch(emissions)
            loss = -tf.reduce_sum(layer.log_likelihood(emissions, tags, mask))
        return loss, tape.gradient(loss, [emissions, *weights])

    @tf.function(jit_compile=compiled)
    def decode(emissions, mask):
        return layer.decode(emissions, mask)

    return {
        "train": lambda: float(train(emissions, tags, mask)[0]),
        "decode": lambda: decode(emissions, mask).numpy(),
    }


def peer(arrays: dict[str, np.ndarray]) -> dict[str, Callable[[], Any]]:
    """Return the passes of pytorch-crf."""
    import torch
    import torchcrf

    torch.set_num_threads(1)
    layer = torchcrf.CRF(arrays["start"].shape[0], batch_first=True)
    scores = layer.transitions, layer.start_transitions, layer.end_transitions
    for weight, name in zip(scores, ("transitions", "start", "end"), strict=True):
        weight.data = torch.tensor(arrays[name])
    emissions = torch.tensor(arrays["emissions"], requires_grad=True)
    tags, mask = torch.tensor(arrays["tags"].astype("int64")), torch.tensor(arrays["mask"])

    def train():
        layer.zero_grad()
        emissions.grad = None
        loss = -layer(emissions, tags, mask=mask, reduction="sum")
        loss.backward()
        return loss.item()

    def decode():
        with torch.no_grad():
            found = layer.decode(emissions, mask=mask)
        padded = np.zeros(arrays["tags"].shape, "int32")
        for row, path in zip(padded, found, strict=True):
            row[: len(path)] = path
        return padded

    return {"train": train, "decode": decode}


def sides(size: str) -> dict[str, Callable[[], dict[str, Callable[[], Any]]]]:
    arrays = problem(size)
    return {
        OURS: lambda: ours(arrays, compiled=False),
        COMPILED: lambda: ours(arrays, compiled=True),
        PEER: lambda: peer(arrays),
    }


def measure(size: str, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each side: the seconds of its passes."""
    passes = {name: make() for name, make in sides(size).items()}
    results = {name: {key: run() for key, run in each.items()} for name, each in passes.items()}
    for name, found in results.items():
        np.testing.assert_allclose(found["train"], results[PEER]["train"], rtol=1e-3, err_msg=name)
        # The peer adds scores up, so that rounding decides ties of long sequences.
        assert np.mean(found["decode"] == results[PEER]["decode"]) > 0.999, name
    best = {name: dict.fromkeys(each, float("inf")) for name, each in passes.items()}
    for _ in range(rounds):
        for name, each in passes.items():
            for key, run in each.items():
                start = time.process_time()
                run()
                best[name][key] = min(best[name][key], time.process_time() - start)
    return [{"size": size, "side": name, **times} for name, times in best.items()]


def peak(side: str, size: str) -> float:
    """Return the most memory that the passes of a side take, in MB."""
    passes = sides("1x2x2")[side]()
    for run in passes.values():
        run()
    before = peak_megabytes()
    for run in sides(size)[side]().values():
        run()
    return round(peak_megabytes() - before, 1)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table of Markdown, in milliseconds."""
    lines = ["| batch x steps x tags | | training step, ms | decoding, ms | peak MB |"]
    lines.append("| --- " * 5 + "|")
    for row in rows:
        times = [f"{1000 * row[name]:.2f}" for name in ("train", "decode")]
        cells = row["size"], row["side"], *times, row.get("peak_mb", "")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)
