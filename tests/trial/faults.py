"""Faults: kills, full disks, permissions, clocks that jump, and two processes at once."""

import itertools
import os
import pkgutil
import resource
import shutil
import signal
import threading
import time
from collections.abc import Callable
from random import Random

from tests.trial import workers
from tests.trial.subjects import Kinds
from tests.trial.workers import GOOD, MOST_LINES_OF_A_TRAINING, outcome_of

MOMENTS = {
    "before a checkpoint": ("keras.callbacks.CallbackList.on_train_batch_end", 4),
    "in a write": ("os.replace", 25),
    "in a flush": ("os.fsync", 40),
    "in a checkpoint": ("numpy.savez", 3),
    "in evaluation": ("keras_attention.distribute.workers.Workers.from_chief", 3),
}
"""What a process that is to be killed calls, and how often at most."""
EXPORT = ("tensorflow.saved_model.save", 1), ("os.fsync", 1), ("pathlib.Path.replace", 1)
NOBODY = 65534


class Faults(Kinds):
    """One method for each kind: disturbs a training or another verb; what it leaves must be right.

    Each command runs in a process of its own, forked from this one, which computes nothing.
    """

    computes = False

    def kill(self, subject, chance, folder):
        """SIGKILL or SIGTERM, once or more, at any moment of a training."""
        told = []
        for number in range(chance.choice([1, 1, 2, 3])):
            moment = chance.choice(list(MOMENTS))
            first = _killer(*MOMENTS[moment], chance)
            done = self._train(subject, folder, f"killed{number}", first)
            told.append(f"{moment}: {done.status}")
            if done.status not in (0, 143, -signal.SIGKILL, -signal.SIGTERM):
                return "traceback", f"{told}: {done.err[-300:]}"
        return self._goes_on(subject, folder, ", ".join(told))

    def kill_export(self, subject, chance, folder):
        """SIGKILL or SIGTERM within `export`, which then leaves nothing or all."""
        line = self.trial.line(subject, "export", self.trial.run_of(subject), folder / "out")
        place, most = chance.choice(EXPORT)
        done = self._run(line, folder / "one", _killer(place, most, chance))
        if is_whole := (folder / "out").exists():
            shutil.rmtree(folder / "out")
        again = self._run(line, folder / "two")
        left = [each.name for each in folder.glob(".out*")]
        is_right = workers.tree(folder / "out").keys() >= {"saved_model.pb"} and not left
        outcome = outcome_of(again, is_right, False)
        return outcome, f"{place}: {done.status}, whole: {is_whole}, {left} {again.err[-200:]}"

    def full_disk(self, subject, chance, folder):
        """No room, at any byte of a file."""
        size = chance.randrange(4096, 200_000)  # room for what it says

        def first():
            workers.limit(resource.RLIMIT_FSIZE, size)

        done = self._train(subject, folder, "full", first)
        if (outcome := outcome_of(done, True, False, MOST_LINES_OF_A_TRAINING)) not in GOOD:
            return outcome, f"{size} bytes: {done.err[-300:]}"
        return self._goes_on(subject, folder, f"{size} bytes: {done.status}")

    def permission(self, subject, chance, folder):
        """A file or folder of a run that may not be read or written."""
        run = shutil.copytree(self.trial.run_of(subject), folder / "run")
        path = chance.choice([run, *sorted(run.rglob("*"))])
        verb, mode = chance.choice(["predict", "resume"]), chance.choice([0, 0o444])
        if os.getuid() == 0:  # whom no permission stops
            for each in (folder, run, *run.rglob("*")):
                os.chown(each, NOBODY, NOBODY)
        path.chmod(mode)
        line = self.trial.line(subject, verb, run, folder / "out")
        done = self._run(line, folder / "said", _as_nobody)
        path.chmod(0o700)  # so that it can be removed
        what = f"{verb}, {mode:o} on {path.relative_to(folder)}"
        return outcome_of(done, True, False, MOST_LINES_OF_A_TRAINING), f"{what}: {done.err[-300:]}"

    def clock(self, subject, chance, folder):
        """A clock that jumps by years, both ways, at any time."""
        real = time.time

        def jump():
            time.time = lambda: real() + chance.choice([0, 1e6, -1e6, 1e9, -1e9])

        done = self._train(subject, folder, "jumps", jump)
        if done.status:
            return outcome_of(done, False, False), done.err[-300:]
        return self._goes_on(subject, folder, "jumps")

    def together(self, subject, chance, folder):
        """Two processes that train one run, or write one output, at once."""
        out, verb = folder / "out", chance.choice(["average", "resume"])
        run = self.trial.run_of(subject) if verb == "average" else folder / "run"
        pids = []
        for number in range(2):
            time.sleep(chance.choice([0, 0, 0.1, 1, 5]))
            line = self.trial.line(subject, verb, run, out)
            pids.append(workers.fork(line, folder / f"{number}"))
        ends = [workers.ended(pid, folder / f"{n}") for n, pid in enumerate(pids)]
        what = f"{verb}: {[end.status for end in ends]}"
        for end in ends:
            if (outcome := outcome_of(end, True, False, MOST_LINES_OF_A_TRAINING)) not in GOOD:
                return outcome, f"{what}: {end.err[-300:]}"
        if all(end.status for end in ends):
            return "silent difference", f"{what}: nobody won: {ends[0].err[-200:]}"
        if verb == "resume":
            return self._goes_on(subject, folder, what)
        is_same = workers.written(out) == self.trial.answers[subject, "average"][1]
        return "same" if is_same else "silent difference", what

    def _train(self, subject, folder, name, first=None):
        return self._run(self.trial.line(subject, "resume", folder / "run"), folder / name, first)

    def _run(self, line, folder, first=None):
        return workers.ended(workers.fork(line, folder, first), folder)

    def _goes_on(self, subject, folder, what):
        """Resume what was disturbed; compare it with what an undisturbed training left."""
        done = self._train(subject, folder, "resumed")
        if done.status:
            return "traceback", f"{what}; the resume: {done.err[-300:]}"
        run = folder / "run"
        is_same = workers.left_behind(run) == self.trial.answers[subject, "trained"]
        left = [each.name for each in (*folder.glob(".run*"), *run.rglob(".partial*"))]
        return "same" if is_same and not left else "silent difference", f"{what} {left or ''}"


def _as_nobody() -> None:
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def _killer(place: str, most: int, chance: Random) -> Callable[[], None]:
    """Return what makes a process kill itself in, or soon after, the n-th call of a function."""
    count, number = chance.randint(1, most), chance.choice([signal.SIGKILL, signal.SIGTERM])
    delay = chance.choice([0, 0, chance.uniform(0, 0.5)])

    def first():
        owner, _, name = place.rpartition(".")
        owner = pkgutil.resolve_name(owner)
        function, calls = getattr(owner, name), itertools.count(1)

        def counting(*arguments, **settings):
            if next(calls) == count:
                kill = threading.Timer(delay, os.kill, (os.getpid(), number))
                (kill.start if delay else kill.run)()
            return function(*arguments, **settings)

        setattr(owner, name, counting)

    return first
