"""The child process of one contender on one problem.

It builds and checks its program when started, then answers one JSON line for each line it reads:
`{"run": NAME, "seconds": s}`, with the name of a pass, gives the seconds of each step taken in
that time.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.common.processes import host_peak_megabytes, peak_megabytes
from benchmarks.speed.contenders import Contender, find
from benchmarks.speed.problems import PASSES, Problem, Size, passes_of

WARM_UP_STEPS = 2
FEWEST_STEPS = 3


def prepare(contender: Contender, problem: Problem):
    """Builds the program and takes its first steps.

    Returns the program, what to report of it, and its outputs and gradients with the shared
    weights, or the words that its searches find. Peaks are above what the imported framework holds:
    the arrays, the weights, compiled code and the steps. The forward pass comes first, so its peak
    is its own.
    """
    program_class = contender.load()
    baseline = peak_megabytes()
    program = program_class(problem, contender.compiled)
    report = {"baseline_mb": baseline}
    results: dict[str, np.ndarray] = {}
    for name in passes_of(problem.kind):
        step = getattr(program, name)
        start = time.perf_counter()
        result = step()
        report[f"{name}_first_seconds"] = time.perf_counter() - start
        if name == "forward":
            results["outputs"] = np.array(result, "float32")
        elif name != "train":
            results[name] = result
        else:
            loss, gradients = result
            results |= {} if loss is None else {"loss": np.asarray(loss)}
            results |= {f"gradient {key}": value for key, value in gradients().items()}
            del gradients, result
        for _ in range(WARM_UP_STEPS if name in PASSES else 0):
            step()
        report[f"{name}_peak_mb"] = peak_megabytes() - baseline
    return program, report, results


def time_steps(step, seconds: float) -> list[float]:
    """The seconds of each step, for a while; one step goes before, to fill the caches again.

    A step that takes thrice as long, to which caches matter little, is timed alone.
    """
    start = time.perf_counter()
    step()
    first = time.perf_counter() - start
    if first >= 3 * seconds:
        return [first]
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < FEWEST_STEPS or time.perf_counter() < end:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return times


def main(kind: str, size: str, name: str, check_file: str, precision: str = "float32") -> None:
    # Frameworks may print: the answers get the true standard output, the rest standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if precision != "float32":
        import keras

        keras.config.set_dtype_policy(precision)
    problem = Problem(kind, Size.parse(size))
    program, report, results = prepare(find(kind, name), problem)
    np.savez(Path(check_file), **results)
    del results
    report["host_peak_mb"] = host_peak_megabytes()

    def answer(content):
        print(json.dumps(content), file=answers, flush=True)

    answer(report)
    for line in sys.stdin:
        request = json.loads(line)
        answer({"times": time_steps(getattr(program, request["run"]), request["seconds"])})


if __name__ == "__main__":
    main(*sys.argv[1:])
