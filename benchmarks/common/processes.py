"""Processes of their own: for memory that nothing else takes, and for threads that are chosen.

    python -m benchmarks.common.processes MODULE FUNCTION

is such a process: it reads arguments as JSON, calls a function of a module with them, and prints
what that returns.
"""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.errors import BenchmarkError

ROOT = Path(__file__).resolve().parents[2]


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


def alone(function: Callable[..., Any], *arguments: Any, **more: str) -> Any:
    """Call a function of a module in a process of its own; return what it returns, by way of JSON.

    Args:
        function: a function of a module of the benchmarks.
        *arguments: its arguments, which JSON can hold.
        **more: further variables of the process' environment.
    """
    place = [function.__module__, function.__name__]
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.common.processes", *place],
        input=json.dumps(arguments),
        cwd=ROOT,
        env=environment() | more,
        capture_output=True,
        text=True,
    )
    if child.returncode:
        given = ", ".join(map(str, arguments))
        ended = how_it_ended(child.returncode, child.stderr)
        raise BenchmarkError(f"{function.__name__}({given:.100}) {ended}")
    return json.loads(child.stdout.splitlines()[-1])


class Worker:
    """A process that says something at its start, and then answers each line that it gets.

    All that it says are lines of JSON. A context manager, which ends the process.

    Args:
        name: how errors call it.
        command: the program and its arguments.
        cwd: the folder in which it runs.
        env: its environment, by default this process' own.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
    ):
        self._name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [*map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=cwd,
            env=env,
        )
        try:
            self.greeting = self._answer()
        except BaseException:
            self.stop()
            raise

    def ask(self, request: Any) -> Any:
        """Return the answer to a request; raise a `BenchmarkError` where the process has ended."""
        with contextlib.suppress(BrokenPipeError):  # then there is no answer, either
            print(json.dumps(request), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        line = self._process.stdout.readline()
        if line.endswith("\n"):
            return json.loads(line)
        status = self._process.wait()
        self._errors.seek(0)
        errors = self._errors.read().decode(errors="replace")
        raise BenchmarkError(f"{self._name} {how_it_ended(status, errors)}")

    def stop(self) -> None:
        """End the process."""
        with contextlib.suppress(BrokenPipeError):  # it may have ended by itself
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def how_it_ended(status: int, errors: str = "") -> str:
    """Return how a process ended that did not do its work: the end of a sentence.

    Args:
        status: its exit status, negative where a signal ended it.
        errors: what it wrote to the standard error.
    """
    if status < 0:
        name = signal.Signals(-status).name
        why = ", as the system does where memory runs out" if name == "SIGKILL" else ""
        return f"was ended by {name}{why}"
    lines = errors.strip().splitlines()
    return f"failed: {lines[-1]}" if lines else f"ended with status {status}"


def peak_megabytes() -> float:
    """The most memory this process has held so far; a GPU's counts alone, where JAX has one."""
    if "jax" in sys.modules:
        import jax

        if figures := jax.local_devices()[0].memory_stats():  # the CPU has none
            return figures["peak_bytes_in_use"] / 2**20
    return host_peak_megabytes()


def host_peak_megabytes() -> float:
    """The most memory of the machine that this process has held so far.

    Linux hands the `ru_maxrss` of a parent on to its child, so a large parent would hide what the
    child takes; the kernel's own high-water mark starts anew with each program.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        import resource  # not on Windows, where the rest of the module can still be imported

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 2**10


def main(module: str, function: str) -> None:
    """Call the function and print its answer."""
    # Frameworks may print: the answer gets the true standard output, the rest standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    found = getattr(importlib.import_module(module), function)(*json.load(sys.stdin))
    print(json.dumps(found), file=answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
