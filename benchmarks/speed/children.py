"""The parent's side: one child process a contender, and the rounds in which they take turns."""

import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.common.errors import BenchmarkError
from benchmarks.common.machine import available_megabytes
from benchmarks.common.processes import ROOT, Worker, environment
from benchmarks.speed.contenders import INEXACT, Contender, contenders_for
from benchmarks.speed.problems import DECODERS, SEARCHES, TRANSFORMERS, Problem, passes_of

WORKER = "benchmarks.speed.worker"
TOLERANCE = 1e-3
TOLERANCES = {"float32": TOLERANCE, "mixed_bfloat16": 0.1}
NEGLIGIBLE = 1e-3
"""Of the greatest gradient of a Transformer: those of deep queries and keys are less."""
OTHER_WORDS = 0.1
"""Most translations that may differ: where two words are equally likely, rounding decides."""
SHARE_OF_MEMORY = 0.8
"""The share of the free memory that children may take together."""

Tell = Callable[[str], None]


@dataclass
class Measurement:
    """All that was measured of one contender on one problem; `error` says how its process ended."""

    contender: Contender
    report: dict
    rounds: dict[str, list[float]] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    deviation: float = 0.0
    error: str | None = None

    def median(self, name: str) -> float:
        """Seconds a step: the median over the rounds of each round's median."""
        return float(np.median(self.rounds[name]))


class Child:
    """A contender's process, of this checkout or of another; it can be ended and started again.

    The measurement begins with the first start, and goes on over the later ones.
    """

    def __init__(
        self,
        contender: Contender,
        problem: Problem,
        folder: Path,
        checkout: Path = ROOT,
        backend: str = "tensorflow",
        precision: str = "float32",
        worker: str = WORKER,
    ):
        self.contender = contender
        self.check_file = folder / f"{contender.name}.npz"
        self.measurement = Measurement(contender, {})
        python = sys.executable if checkout == ROOT else checkout / ".venv/bin/python"
        place = [problem.kind, str(problem.size), contender.name, str(self.check_file)]
        place += [precision] if precision != "float32" else []
        self._command = [python, "-m", worker, *place]
        self._checkout = checkout
        self._environment = environment(1 if contender.streams else None, backend)
        self._worker: Worker | None = None

    @property
    def needed_megabytes(self) -> float | None:
        """The most memory that the process took when it was built; None before."""
        return self.measurement.report.get("host_peak_mb")

    def start(self) -> None:
        """Start the process and wait until its program is built."""
        place = self._checkout, self._environment
        self._worker = Worker(self.contender.label, self._command, *place)
        self.measurement.report = self.measurement.report or self._worker.greeting

    def stop(self) -> None:
        """End the process; what it has measured stays."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def time(self, name: str, seconds: float) -> None:
        """One round of one pass."""
        times = self._worker.ask({"run": name, "seconds": seconds})["times"]
        self.measurement.rounds.setdefault(name, []).append(float(np.median(times)))
        self.measurement.steps[name] = self.measurement.steps.get(name, 0) + len(times)


class Pool:
    """Children, of which as many wait at once as memory holds; a context manager, which ends all.

    A child that was not built yet is expected to need half of the memory. Where one does not fit
    beside those that wait, the child that has waited longest is ended; its next turn builds it
    again.

    Args:
        limit: the megabytes that they may take together; None where the system does not tell how
            much is free.
        tell: takes lines on what happens.
    """

    def __init__(self, limit: float | None, tell: Tell):
        self.limit = float("inf") if limit is None else limit
        self.waiting: list[Child] = []
        self._tell = tell

    def wake(self, child: Child) -> None:
        """Let a child run, after the others had to make room for it."""
        if child in self.waiting:
            self.waiting.remove(child)
            self.waiting.append(child)
            return
        expected = child.needed_megabytes or self.limit / 2
        while self.waiting and self._taken() + expected > self.limit:
            self._end_first(child)
        child.start()
        self.waiting.append(child)
        while len(self.waiting) > 1 and self._taken() > self.limit:  # more than was expected
            self._end_first(child)

    def _taken(self) -> float:
        return sum(each.needed_megabytes or 0.0 for each in self.waiting)

    def _end_first(self, child: Child) -> None:
        first = self.waiting.pop(0)
        self._tell(f"{first.contender.label} makes room for {child.contender.label}")
        first.stop()

    def end(self, child: Child) -> None:
        """End a child for good."""
        if child in self.waiting:
            self.waiting.remove(child)
        child.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in list(self.waiting):
            self.end(child)


def memory_limit() -> float | None:
    """Return the megabytes that the children of one problem may take, or None if unknown."""
    free = available_megabytes()
    return None if free is None else SHARE_OF_MEMORY * free


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
    problem: Problem,
    rounds: int,
    seconds: float,
    extra: bool = False,
    tell: Tell = print,
    only: Sequence[str] = (),
    backend: str = "tensorflow",
    precision: str = "float32",
) -> list[Measurement]:
    """Measures every contender on one problem; returns one `Measurement` each, ours first.

    With `only`, those of its names, and "ours", which the others' results are compared with.

    All are built and checked first, one after the other. Then in each round each takes its turn, so
    that whatever else the machine does falls on all. One whose process ends by itself is left out
    from then on, and its measurement has the `error`.
    """
    limit = memory_limit()
    if limit is not None:
        tell(f"{problem}: its programs may take {limit:,.0f} MB of memory together")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pool = stack.enter_context(Pool(limit, tell))
        children = [
            Child(contender, problem, folder, ROOT, backend, precision)
            for contender in contenders_for(problem.kind, extra, backend)
            if not only or contender.name in ("ours", *only)
        ]
        for child in children:
            build(pool, child, problem, tell, is_first=child is children[0])
        built = [child for child in children if child.measurement.error is None]
        check_agreement(built, problem, precision)
        needed = sum(child.needed_megabytes for child in built)
        if needed > pool.limit:
            tell(f"{problem}: all together need {needed:,.0f} MB: some are built in each round")
        take_turns(pool, built, problem, rounds, seconds, tell)
        return [child.measurement for child in children]


def build(pool: Pool, child: Child, problem: Problem, tell: Tell, is_first: bool) -> None:
    """Build a child for the first time; all others are compared with the first."""
    tell(f"{problem}: building {child.contender.label}")
    try:
        pool.wake(child)
    except BenchmarkError as error:
        if is_first:
            raise
        leave_out(pool, child, error, tell)
    else:
        tell(f"{problem}: {child.contender.label} needs {child.needed_megabytes:,.0f} MB")


def leave_out(pool: Pool, child: Child, error: BenchmarkError, tell: Tell) -> None:
    """Note why a child is measured no further."""
    pool.end(child)
    child.measurement.error = str(error)
    if child.needed_megabytes:
        child.measurement.error += f" (it needs {child.needed_megabytes:,.0f} MB of memory)"
    tell(f"error: {child.measurement.error}; the others go on")


def take_turns(
    pool: Pool,
    children: list[Child],
    problem: Problem,
    rounds: int,
    seconds: float,
    tell: Tell,
) -> None:
    """Time each pass of each child, round by round; every second round goes backwards.

    So those that were built last, and wait, come first.
    """
    order = list(children)
    for name in passes_of(problem.kind):
        for index in range(rounds):
            tell(f"{problem}: {name}, round {index + 1} of {rounds}")
            order.reverse()
            for child in list(order):
                try:
                    pool.wake(child)
                    child.time(name, seconds)
                except BenchmarkError as error:
                    leave_out(pool, child, error, tell)
                    order.remove(child)
