"""Forked workers with limits, one word for what came of each case, and what a command left behind.

The parent has imported everything and computed nothing, so it can be forked at any time; a worker
is used for many cases, until one of them ends it.
"""

import hashlib
import multiprocessing
import os
import resource
import signal
import stat
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import h5py
import keras
import tensorflow as tf

from keras_attention.applications.command import main
from tests.applications import commands
from tests.applications.commands import Done

CPU_SECONDS = 30
WALL_SECONDS = 600  # for what waits; generous, as other programs run too
MEMORY = 3 << 30  # address space beyond what the process has
LARGEST_FILE = 256 << 20
CASES_OF_A_WORKER = 250
MOST_LINES, MOST_LETTERS = 3, 2000  # of a refusal

GOOD = ("refused", "same", "other")
BAD = ("traceback", "silent difference", "wrote outside", "long message", "time", "memory", "crash")


@dataclass(frozen=True)
class Case:
    """One thing to try; kind and seed say all of it."""

    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.seed}"


@dataclass(frozen=True)
class Judged:
    """The judgement of a case: one of GOOD or BAD, what was done and said, what it counts as."""

    case: Case
    outcome: str
    note: str
    groups: tuple[str, ...] = ()
    result: Any = None


# ---- Workers.


class _Worker:
    def __init__(self, *arguments: Any):
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, *arguments), daemon=True)
        self.process.start()
        theirs.close()
        self.case: Case | None = None

    def give(self, case: Case) -> None:
        self.case, self.started = case, time.monotonic()
        self.connection.send(case)

    def is_late(self) -> bool:
        return self.case is not None and time.monotonic() - self.started > WALL_SECONDS

    def stop(self) -> int:
        """End the process and those that it has started; return its exit code."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.connection.close()
        return self.process.exitcode


def judge_all(
    cases: Iterable[Case],
    act: Callable[[Case, Path], Judged],
    jobs: int,
    root: Path,
    deadline: float = float("inf"),
) -> Iterator[Judged]:
    """Let `act` try each case in a folder of its own in `root`, inside one of several workers.

    After the deadline, of the monotonic clock, no case is begun. Where `act.computes` is False, it
    forks processes that run the command.
    """
    left, workers = list(cases)[::-1], []
    try:
        while left or any(worker.case for worker in workers):
            if time.monotonic() > deadline:
                left.clear()
            while left and len(workers) < jobs:
                workers.append(_Worker(act, root))
            for worker in workers:
                if left and worker.case is None:
                    worker.give(left.pop())
            ready = wait([worker.connection for worker in workers], timeout=5)
            for worker in list(workers):
                if worker.connection not in ready and not worker.is_late():
                    continue
                judged = _receive(worker, root)
                worker.case = None
                if worker.process.exitcode is not None:
                    workers.remove(worker)
                yield judged
    finally:
        for worker in workers:
            worker.stop()


def _receive(worker: _Worker, root: Path) -> Judged:
    if worker.is_late():
        worker.stop()
        return Judged(worker.case, "time", f"over {WALL_SECONDS} s")
    try:
        judged, is_last = worker.connection.recv()
        if is_last:
            worker.stop()
        return judged
    except EOFError:
        worker.process.join()
    said = _said(folder_of(root, worker.case))
    code = worker.stop()
    has_no_room = "bad_alloc" in said or "MemoryError" in said
    outcome = "time" if code == -signal.SIGXCPU else "memory" if has_no_room else "crash"
    return Judged(worker.case, outcome, f"ended with {code}: {said[-300:]}")


def folder_of(root: Path, case: Case) -> Path:
    return root / f"{case.kind}-{case.seed}"


def _serve(connection, act, root) -> None:
    os.setpgid(0, 0)
    computes = getattr(act, "computes", True)
    address_space = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_AS, address_space + MEMORY)
    limit(resource.RLIMIT_FSIZE, LARGEST_FILE)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if computes:
        warnings.filterwarnings("ignore", message="Even though the `tf.config.experimental_run")
        tf.config.run_functions_eagerly(True)  # a graph is used once here: tracing is most of it
    for number in range(CASES_OF_A_WORKER):
        try:
            case = connection.recv()
        except EOFError:
            return
        seconds = CPU_SECONDS if computes else 4 * CPU_SECONDS  # of one that is forked
        limit(resource.RLIMIT_CPU, int(time.process_time()) + seconds)
        folder_of(root, case).mkdir(parents=True)
        try:
            judged = act(case, folder_of(root, case))
        except Exception:
            judged = Judged(case, "traceback", traceback.format_exc()[-2000:])
        connection.send((judged, number == CASES_OF_A_WORKER - 1))
        if computes:
            keras.config.set_dtype_policy("float32")
            keras.utils.clear_session()


def limit(what: int, value: int) -> None:
    """Set the soft limit of a resource."""
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (value if hard < 0 else min(value, hard), hard))


# ---- Commands.


def call(arguments: list[Any], folder: Path) -> Done:
    """Run the command in this process; what it writes to the terminal goes to files in `folder`."""
    return watch(lambda: main([str(each) for each in arguments]), folder)


def watch(act: Callable[[], int], folder: Path) -> Done:
    """Run a function that returns an exit status, as `call` runs the command."""
    folder.mkdir(exist_ok=True)
    kept = [os.dup(1), os.dup(2)]
    for number, name in ((1, "stdout"), (2, "stderr")):  # what C++ code writes, too
        file = os.open(folder / name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    try:
        status = act()
    except SystemExit as leaving:  # argparse's way
        status = leaving.code
    except BaseException:
        traceback.print_exc()
        status = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, own in enumerate(kept, 1):
            os.dup2(own, number)
            os.close(own)
    return Done(status or 0, _said(folder, "stdout"), _said(folder))


def fork(arguments: list[Any], folder: Path, first: Callable[[], Any] = lambda: None) -> int:
    """Run the command in a new process, in which `first` is called before; return its number."""
    number = os.fork()
    if number:
        return number
    status = 1
    try:
        first()
        status = call(arguments, folder).status
    finally:
        os._exit(status)


def ended(number: int, folder: Path) -> Done:
    """Wait for a process of `fork`."""
    status = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    return Done(status, "", _said(folder))


def _said(folder: Path, name: str = "stderr") -> str:
    said = folder / name
    return said.read_text("utf-8", "replace") if said.exists() else ""


def outcome_of(done: Done, is_same: bool, may_differ: bool, lines: int = MOST_LINES) -> str:
    """Return the word for what a command did; a refusal may have so many lines."""
    if any(word in done.err for word in ("MemoryError", "OOM when", "bad_alloc")):
        return "memory"
    if done.status not in (0, 2, 3) or "Traceback (most recent" in done.err:
        return "traceback"
    if done.status:
        said = done.err.strip()
        is_short = 0 < len(said) <= MOST_LETTERS and said.count("\n") < lines
        return "refused" if is_short else "long message"
    if is_same:
        return "same"
    return "other" if may_differ else "silent difference"


# ---- What was left behind.


def left_behind(run: Path) -> tuple:
    """Return all that a training leaves but times, to be compared."""
    try:
        arrays, *rest = commands.left_behind(run)
    except (AssertionError, ValueError, OSError) as error:  # a stranger's, taken as it was
        return "nothing that can be read", str(error)
    return [array.tobytes() for array in arrays], rest


def written(path: Path) -> Any:
    """Return what a verb wrote: a file, or the weights of a folder."""
    if not path.is_dir():
        return path.read_bytes() if path.exists() else None
    found = {}
    with h5py.File(path / "model.weights.h5") as file:

        def note(name, item):
            found[name] = item[()].tobytes() if isinstance(item, h5py.Dataset) else None

        file.visititems(note)
    return found


def tree(folder: Path) -> dict[str, str]:
    """Return what lies in a folder; links are not followed."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        content = str(stat.S_IFMT(mode))
        if stat.S_ISLNK(mode):
            content = os.readlink(path)
        elif stat.S_ISREG(mode):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path.relative_to(folder))] = content
    return found
