"""What a processor's rate and bandwidth allow, on paper.

The processor needs one time for the operations of a pass, at its rate. Its memory needs another, to
read and write all numbers once. The longer of the two is the least time of the pass. The command
runs no layer. Given the figures of a run, it prints the share of that speed that the run reached.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.errors import BenchmarkError
from benchmarks.common.tables import markdown
from benchmarks.speed.problems import PASSES, SEARCHES, Problem, Size
from benchmarks.speed.report import NAMES
from benchmarks.speed.transformer_problem import BEAM_SIZE, architecture_of

TRAINING = 3
"""A product has two gradients, each as long as itself."""


@dataclass(frozen=True)
class Processor:
    """Operations a second of products, by precision, and bytes a second of its memory."""

    rates: dict[str, float]
    bandwidth: float


PROCESSORS = {
    "A100": Processor({"float32": 156e12, "mixed_bfloat16": 312e12}, 2.039e12),
    "H100": Processor({"float32": 495e12, "mixed_bfloat16": 989e12}, 3.35e12),
}
"""By their makers' data sheets: 80 GB, SXM, without sparsity; float32 products in TF32, as JAX
computes them there unless told otherwise."""
BYTES = {"float32": 4, "mixed_bfloat16": 2}


@dataclass(frozen=True)
class Work:
    """Operations and numbers moved, of one pass, and how many steps wait for one another."""

    operations: float
    numbers: float
    steps: int = 1


def _self_attention(size: Size) -> Work:
    rows, units = size.batch * size.steps, size.units
    projections = 4 * 2 * rows * units**2
    scores = 2 * 2 * rows * size.steps * units / 2  # and contexts; causal: half of them
    return Work(projections + scores, 4 * units**2 + 10 * rows * units)


def _decoder(size: Size, gates: int, score: int, readout: int) -> Work:
    """A recurrent decoder: `score` operations for each query, entry and unit; weights stay near."""
    rows, units = size.batch * size.steps, size.units
    cell = 2 * rows * 3 * gates * units**2  # input, what is fed beside it, state
    query = 2 * rows * units**2
    attention = (score + 2) * rows * size.memory * units
    keys = 2 * size.batch * size.memory * units**2
    read = 2 * rows * size.memory * units  # keys and values, at each step
    weights = (3 * gates + 2 + readout) * units**2
    products = cell + query + attention + keys + 2 * rows * readout * units**2
    return Work(products, read + weights + 4 * rows * units, size.steps)


def _layers(size: Size) -> tuple[float, float, float, float]:
    """Weights of an encoder layer and of a decoder layer without a table, the table, layers."""
    of, units = architecture_of(size.units), size.units
    network = 2 * units * of.feed_forward_size
    return 4 * units**2 + network, 8 * units**2 + network, of.vocabulary_size * units, of.layers


def _transformer(size: Size) -> Work:
    encoder, decoder, table, count = _layers(size)
    source, target = size.batch * size.memory, size.batch * size.steps
    products = 2 * count * (source * encoder + target * decoder) + 2 * target * table
    products += (
        4 * count * size.units * (source * size.memory + target * (size.steps / 2 + size.memory))
    )
    # A layer keeps some 12 numbers a place and unit; the weights are read and written.
    kept = 12 * count * size.units * (source + target) + target * table / size.units
    return Work(products, 2 * (count * (encoder + decoder) + table) + kept)


def _search(size: Size, beam: int) -> Work:
    """Words one after another: each reads all weights, and the caches of all words before."""
    encoder, decoder, table, count = _layers(size)
    rows, source = size.batch * beam, size.batch * size.memory
    products = 2 * count * source * encoder + 2 * rows * size.steps * (count * decoder + table)
    reads = size.steps * (count * decoder + table)
    caches = 2 * count * size.units * size.steps * (rows * size.steps / 2 + source)
    return Work(products, count * encoder + reads + caches, size.steps)


WORK: dict[str, Callable[[Size], Work]] = {
    "multi-head": _self_attention,
    "bahdanau": lambda size: _decoder(size, 3, 4, 0),  # a sum, tanh, and the product with v
    "luong": lambda size: _decoder(size, 4, 2, 2),
    "transformer": _transformer,
}
"""The forward pass of each kind of problem."""
SIZES = {
    "multi-head": [Size(1, steps, steps, 512) for steps in (4096, 16384, 32768)],
    "bahdanau": [Size(64, 25, 25, 512), Size(16, 60, 400, 256)],
    "luong": [Size(64, 25, 25, 512)],
    "transformer": [Size(170, 24, 24, 128), Size(32, 25, 25, 512)],
    "translation": [Size(320, 30, 20, 512), Size(1, 30, 20, 512)],
}


def work_of(problem: Problem, name: str) -> Work:
    """Return the work of a pass."""
    if name in SEARCHES:
        return _search(problem.size, BEAM_SIZE if name == "beam" else 1)
    work = WORK[problem.kind](problem.size)
    times = TRAINING if name == "train" else 1
    return Work(times * work.operations, times * work.numbers, work.steps)


def least_seconds(work: Work, processor: Processor, precision: str) -> tuple[float, str]:
    """Return the least time of some work, and what sets it: `"rate"` or `"memory"`."""
    by_rate = work.operations / processor.rates[precision]
    by_memory = BYTES[precision] * work.numbers / processor.bandwidth
    return max((by_rate, "rate"), (by_memory, "memory"))


def rows(precision: str) -> list[list[str]]:
    """Return a table: the passes of all problems on paper, in milliseconds."""
    found = [["problem", "pass", "Gop", "MB", "steps", *PROCESSORS]]
    for kind, sizes in SIZES.items():
        for size in sizes:
            for name in SEARCHES if kind == "translation" else PASSES:
                work = work_of(Problem(kind, size), name)
                cells = [f"{kind} {size}", NAMES[name], f"{work.operations / 1e9:,.1f}"]
                cells += [f"{BYTES[precision] * work.numbers / 1e6:,.0f}", f"{work.steps}"]
                for processor in PROCESSORS.values():
                    seconds, bound = least_seconds(work, processor, precision)
                    cells.append(f"{1e3 * seconds:.2f} ({bound})")
                found.append(cells)
    return found


def rows_of_figures(figures: dict, processor: str) -> list[list[str]]:
    """Return a table: what a run of `python -m benchmarks layers` reached."""
    found = [["problem", "pass", "least ms", "ours ms", "share reached"]]
    for problem in figures["problems"]:
        kind, precision = problem["kind"], figures.get("precision", "float32")
        if kind not in SIZES:
            continue
        size = Size(*(problem[key] for key in ("batch", "steps", "memory_steps", "units")))
        for name in SEARCHES if kind == "translation" else PASSES:
            work = work_of(Problem(kind, size), name)
            least, _ = least_seconds(work, PROCESSORS[processor], precision)
            times = [x["seconds"][name] for x in problem["programs"] if x["side"] == "ours"]
            if not times:  # no program of ours was measured to the end
                continue
            ours = min(times)
            cells = [f"{1e3 * least:.3f}", f"{1e3 * ours:.3f}", f"{least / ours:.1%}"]
            found.append([f"{kind} {size}", NAMES[name], *cells])
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("--precision", choices=BYTES, default="mixed_bfloat16", help="default: %(default)s")
    add("--figures", type=Path, help="JSON of `python -m benchmarks layers --backend jax`")
    add("--processor", choices=PROCESSORS, default="A100", help="of the figures: %(default)s")


def run(options: argparse.Namespace) -> None:
    """Print the table."""
    if options.figures is None:
        print(markdown(rows(options.precision)))
        return
    try:
        figures = json.loads(options.figures.read_text())
        print(markdown(rows_of_figures(figures, options.processor)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "strerror", None) or "no figures of `python -m benchmarks layers`"
        raise BenchmarkError(f"{options.figures}: {reason}") from None
