"""A beam of 4 whose hypotheses share their caches, or move them.

One thread, size `base`, 32 sentences of 20 words to exactly 30, random weights, both ways in turns.
A search of each under TensorFlow's profiler then says which operations a step's time goes to.
"""

import argparse
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.common.options import add_rounds
from benchmarks.common.tables import markdown
from benchmarks.speed.problems import Problem, Size
from benchmarks.speed.transformer_problem import BEAM_SIZE, make_ids

PROBLEM = Problem("translation", Size(32, 30, 20, 512))
KINDS = {
    "_MklNativeFusedMatMul": "products with weights",
    "_MklBatchMatMulV2": "products of attention",
    "TensorScatterUpdate": "writing into caches",
    "GatherV2": "following the beams",
    "TopKV2": "top-k",
}
"""Operations by their type; all others count as one kind."""
NO_OPERATIONS = ("Process", "Run", "ExecuteAsyncOnStream")
"""Events of the profiler that hold the operations."""


def search_of(precision: str, shares: bool):
    """Return a compiled search of ids."""
    from benchmarks.speed.contenders.transformers import OurModel, set_weights
    from keras_attention.applications.base.backend import compiled
    from keras_attention.applications.translation.search import search
    from keras_attention.decoding import SearchOptions

    model = OurModel(PROBLEM.size.units, dtype=precision)
    set_weights(model, PROBLEM)
    if not shares:
        model.model.sentence_keys = ()
    options = SearchOptions(beam_size=BEAM_SIZE, max_length=PROBLEM.size.steps)
    return compiled(partial(search, model.model, options=options, attention=False), model.model, 2)


def by_operation(run, source) -> Counter:
    """Return the milliseconds that a search spends in each kind of operation."""
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            run(source)
        space = xplane_pb2.XSpace()
        space.ParseFromString(next(Path(folder).rglob("*.xplane.pb")).read_bytes())
    spent: Counter = Counter()
    for plane in (plane for plane in space.planes if "CPU" in plane.name):
        for event in (event for line in plane.lines for event in line.events):
            name, _, kind = plane.event_metadata[event.metadata_id].name.partition(":")
            kind = kind.split("#")[0].strip(": ")
            if kind and "#" not in name and kind not in NO_OPERATIONS and "__inf" not in kind:
                spent[KINDS.get(kind, "all else")] += event.duration_ps / 1e9
    return spent


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    add_rounds(parser, 5)


def run(options: argparse.Namespace) -> None:
    """Print the time of a step by operation, tokens a second, and their ratio by round."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    source, steps = make_ids(PROBLEM)["source"], PROBLEM.size.steps
    runs = {name: search_of(options.precision, name == "shared") for name in ("moved", "shared")}
    words = {name: run(source).tokens.numpy() for name, run in runs.items()}
    same = np.mean(np.all(words["moved"] == words["shared"], axis=(1, 2)))
    times: dict = {name: [] for name in runs}
    for turn in range(options.rounds):
        for name in list(runs)[:: -1 if turn % 2 else 1]:
            start = time.perf_counter()
            runs[name](source).tokens.numpy()
            times[name].append(time.perf_counter() - start)
    spent = {name: by_operation(run, source) for name, run in runs.items()}
    rows = [["ms a step", *runs]]
    for kind in (*KINDS.values(), "all else"):
        rows.append([kind, *(f"{spent[name][kind] / steps:.1f}" for name in runs)])
    print(markdown(rows))
    print("tokens/s:", {n: round(source.shape[0] * steps / np.median(times[n])) for n in runs})
    ratios = np.array(times["moved"]) / np.array(times["shared"])
    print(
        f"shared {np.median(ratios):.2f} times as fast ({ratios.min():.2f} to {ratios.max():.2f})"
    )
    print(f"the same words: {same:.0%}")
