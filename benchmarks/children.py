"""The parent's side: one child process a contender, and the rounds in which they take turns."""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.contenders import INEXACT, Contender, contenders_for
from benchmarks.problems import DECODERS, SEARCHES, TRANSFORMERS, Problem, passes_of

ROOT = Path(__file__).resolve().parents[1]
TOLERANCE = 1e-3
TOLERANCES = {"float32": TOLERANCE, "mixed_bfloat16": 0.1}
NEGLIGIBLE = 1e-3
"""Of the greatest gradient of a Transformer: those of deep queries and keys are less."""
OTHER_WORDS = 0.1
"""Most translations that may differ: where two words are equally likely, rounding decides."""


class BenchmarkError(Exception):
    """A contender failed, or contenders do not compute the same thing."""


@dataclass
class Measurement:
    """All that was measured of one contender on one problem."""

    contender: Contender
    report: dict
    rounds: dict[str, list[float]] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    deviation: float = 0.0

    def median(self, name: str) -> float:
        """Seconds a step: the median over the rounds of each round's median."""
        return float(np.median(self.rounds[name]))


def run_alone(module: str, *arguments: str) -> dict:
    """Run a module of the benchmarks in its own process; return the JSON that it prints last."""
    child = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
    )
    if child.returncode:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        raise BenchmarkError(f"{' '.join([module, *arguments])} failed: {last}")
    return json.loads(child.stdout.strip().splitlines()[-1])


class Child:
    """A contender's process, of this checkout or of another; a context manager, which ends it."""

    def __init__(
        self,
        contender: Contender,
        problem: Problem,
        folder: Path,
        checkout: Path = ROOT,
        backend: str = "tensorflow",
        precision: str = "float32",
    ):
        self.contender = contender
        self.check_file = folder / f"{contender.name}.npz"
        self._errors = open(folder / f"{contender.name}.err", "w+")  # noqa: SIM115
        place = [problem.kind, str(problem.size), contender.name, str(self.check_file)]
        place += [precision] if precision != "float32" else []
        python = sys.executable if checkout == ROOT else checkout / ".venv/bin/python"
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.worker", *place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=checkout,
            env=environment(1 if contender.streams else None, backend),
        )
        try:
            self.measurement = Measurement(contender, self._answer())
        except BaseException:
            self.__exit__()
            raise

    def time(self, name: str, seconds: float) -> None:
        """One round of one pass."""
        print(json.dumps({"run": name, "seconds": seconds}), file=self._process.stdin, flush=True)
        times = self._answer()["times"]
        self.measurement.rounds.setdefault(name, []).append(float(np.median(times)))
        self.measurement.steps[name] = self.measurement.steps.get(name, 0) + len(times)

    def _answer(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            last = self._errors.read().strip().splitlines()[-1:] or ["no message"]
            raise BenchmarkError(f"{self.contender.label} failed: {last[0]}")
        return json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


def environment(threads: int | None = None, backend: str = "tensorflow") -> dict[str, str]:
    """An operation on as many threads as given, or as there are cores; JAX alone may have a GPU."""
    cores = str(os.cpu_count() or 1)
    names = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
    found = {
        **os.environ,
        **dict.fromkeys(names, str(threads or cores)),
        "TF_NUM_INTEROP_THREADS": cores,
        "KERAS_BACKEND": backend,
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    # JAX takes most of a GPU's memory at once, which would hide what a program needs.
    is_jax = backend == "jax"
    return found | (
        {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if is_jax else {"CUDA_VISIBLE_DEVICES": ""}
    )


def deviation(results, reference, size=None, negligible: float = 0.0) -> tuple[float, str]:
    """The largest difference over all arrays, each relative to its reference.

    The size of a difference and of a reference is the greatest of their numbers, or as `size` says.
    What is below `negligible` times the largest of all arrays is compared as if it were so
    large: a gradient that has vanished is rounding.
    """
    if set(results) != set(reference):
        raise BenchmarkError(f"Expected results {sorted(reference)}. Received: {sorted(results)}")
    size = size or (lambda array: np.max(np.abs(array)))
    worst = (0.0, "")
    sizes = {name: float(size(array)) for name, array in reference.items()}
    least = max(1e-12, negligible * max(sizes.values()))
    for name, expected in reference.items():
        if results[name].shape != expected.shape:
            shapes = f"expected {expected.shape}, received {results[name].shape}"
            raise BenchmarkError(f"Shapes of {name} differ: {shapes}")
        gap = float(size(results[name] - expected)) / max(sizes[name], least)
        # a NaN compares false with everything: let it be the worst
        if not gap <= worst[0]:
            worst = (gap, name)
    return worst


def deviation_with_kinks(results, reference) -> tuple[float, str]:
    """The same by the root of the sum of squares, as for gradients through ReLU.

    Of millions of inputs to ReLU some lie so near zero that rounding decides whether one place of
    one sentence has a part in a row of the gradient.
    """
    return deviation(results, reference, np.linalg.norm, NEGLIGIBLE)


def disagreement(results, reference) -> tuple[float, str]:
    """The largest share of sentences, over all searches, that are not translated word by word."""
    shares = {name: np.mean(np.any(results[name] != reference[name], axis=1)) for name in reference}
    name = max(shares, key=shares.get)
    return float(shares[name]), name


def check_agreement(children: list[Child], problem: Problem, precision: str = "float32") -> None:
    """Raises where a contender's outputs or gradients, or its words, are not the first one's.

    Of a contender that computes something else, or with rounded weights, the words are compared and
    nothing is asked.
    """
    searches = passes_of(problem.kind) == SEARCHES
    compare, allowed = deviation, TOLERANCES[precision]
    # In 16 bits rounding decides, in a few rows, which place a recurrent decoder attends to next,
    # and a gradient through that step explodes. Through the layers of `base` some of our own
    # gradients differ by 0.15 from those in float32, whose outputs differ by 0.0012.
    by_outputs = precision != "float32" and problem.kind in (*DECODERS, *TRANSFORMERS)
    if problem.kind in TRANSFORMERS or by_outputs:
        compare = deviation_with_kinks
    if searches:
        compare, allowed = disagreement, OTHER_WORDS

    def read(child):
        with np.load(child.check_file) as results:
            return {k: v for k, v in results.items() if k == "outputs" or not by_outputs}

    expected = read(children[0])
    for child in children[1:]:
        is_exact = child.contender.side not in INEXACT
        if not (is_exact or searches):
            continue
        gap, name = compare(read(child), expected)
        child.measurement.deviation = gap
        if is_exact and not gap <= allowed:
            names = f"{child.contender.label} and {children[0].contender.label}"
            raise BenchmarkError(f"{names} differ in {name} by {gap:.2g} (allowed {allowed:g})")


def measure(
    problem,
    rounds: int,
    seconds: float,
    extra: bool = False,
    tell=print,
    only=(),
    backend: str = "tensorflow",
    precision: str = "float32",
):
    """Measures every contender on one problem; returns one `Measurement` each, ours first.

    With `only`, those of its names, and "ours", which the others' results are compared with.

    All are built and checked first, one after the other. Then in each round each takes its turn, so
    that whatever else the machine does falls on all.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        children = []
        for contender in contenders_for(problem.kind, extra, backend):
            if only and contender.name not in ("ours", *only):
                continue
            tell(f"{problem}: building {contender.label}")
            children.append(
                stack.enter_context(Child(contender, problem, folder, ROOT, backend, precision))
            )
        check_agreement(children, problem, precision)
        take_turns(children, problem, rounds, seconds, tell)
        return [child.measurement for child in children]


def take_turns(children: list[Child], problem: Problem, rounds: int, seconds: float, tell) -> None:
    """Time each pass of each child, round by round, in an order that moves on by one a round."""
    for name in passes_of(problem.kind):
        for index in range(rounds):
            tell(f"{problem}: {name}, round {index + 1} of {rounds}")
            start = index % len(children)
            for child in children[start:] + children[:start]:
                child.time(name, seconds)
