"""The trial: thousands of damaged, odd and hostile inputs, and trainings that are disturbed.

    python -m tests.trial --mutations 5000 --faults 200 --jobs 2
    python -m tests.trial --only stranger:17       # one case again: what was done, and what came

Every task is trained once, tiny, by the real command. Each mutation changes a copy of a run folder,
a preset, a `.keras` file, a configuration or a data file, and runs a verb on it in a worker with
limits; each fault disturbs a training. A case depends on its kind and seed alone.
"""

import argparse
import collections
import functools
import gc
import importlib
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", MPLBACKEND="agg", KERAS_BACKEND="tensorflow")
for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"  # before TensorFlow is imported

import tensorflow as tf  # noqa: E402

from keras_attention.applications.command import TASKS  # noqa: E402
from keras_attention.applications.command.cli import load_task  # noqa: E402
from tests.applications import cluster  # noqa: E402
from tests.applications.commands import Done  # noqa: E402
from tests.trial import workers  # noqa: E402
from tests.trial.mutations import Mutations  # noqa: E402
from tests.trial.subjects import load_keras, write_data  # noqa: E402
from tests.trial.workers import BAD, GOOD, Case, Judged, call, outcome_of  # noqa: E402

# ---- What is tried: a tiny run of each task.

SMALL = "--model.embedding_size=6 --model.units=6 --model.dropout=0.1 --training.batch_size=6 "
SMALL += "--training.epochs=3 --training.early_stopping=loss"
TRAINS = {
    "answer-selection": "answer-selection --data.train {data}/train.tsv --data.dev {data}/dev.tsv "
    "--tokenizer.unknown_buckets=5 --training.negatives=1",
    "texts": "classification --data.train {data}/train.csv --data.dev {data}/dev.csv "
    "--model.architecture=han",
    "pairs": "classification --data.train {data}/train.csv --data.dev {data}/dev.csv "
    "--data.second_column second --model.architecture=cross --model.encoder=convolution",
    "translation": "translation --data.train_source {data}/train.source "
    "--data.train_target {data}/train.target --data.dev_source {data}/dev.source "
    "--data.dev_target {data}/dev.target --tokenizer.vocabulary_size=40 "
    "--decoding.max_length=3 --decoding.beam_size=2",
    "summarization": "summarization --data.train {data}/train.jsonl "
    "--data.dev {data}/dev.jsonl --decoding.max_length=3 --decoding.beam_size=2",
}
"""The command line of each training; its first word is the task."""
TABLE = {
    "predict": "predict {run} --input {data}/dev.csv",
    "evaluate": "evaluate {run} --input {data}/dev.csv --json",
}
USES = {
    "answer-selection": {
        "predict": "predict {run} --question two --candidates {data}/dev.source",
        "evaluate": "evaluate {run} --input {data}/dev.tsv --json",
    },
    "texts": TABLE,
    "pairs": TABLE,
    "translation": {
        "predict": "predict {run} --input {data}/dev.source --output {out}",
        "evaluate": "score {run} --source {data}/dev.source --target {data}/dev.target",
    },
    "summarization": {
        "predict": "predict {run} --input {data}/dev.source",
        "evaluate": "evaluate {run} --input {data}/dev.jsonl --json",
    },
}


class Trial:
    """The runs that the cases damage, and what their verbs answer undamaged.

    Args:
        root: a folder for all of it.
        subjects: names in TRAINS.
    """

    def __init__(self, root: Path, subjects: Sequence[str]):
        self.root = root
        self.subjects = list(subjects)
        self.data = root / "data"
        self.trains, self.uses, self.load_keras = TRAINS, USES, load_keras
        self.answers: dict[tuple[str, str], Any] = {}
        if not self.data.exists():
            write_data(self.data)
        elif (root / "answers").exists():
            self.answers = pickle.loads((root / "answers").read_bytes())

    def missing(self) -> list[Case]:
        """Return a case for each subject that is not trained yet."""
        names = enumerate(self.subjects)
        return [Case("prepare", n) for n, name in names if (name, "once") not in self.answers]

    def remember(self, answers: dict[tuple[str, str], Any]) -> None:
        self.answers |= answers
        (self.root / "answers").write_bytes(pickle.dumps(self.answers))

    def run_of(self, subject: str, form: str = "run") -> Path:
        return self.root / f"{subject}-{form}"

    def prepare(self, case: Case, folder: Path) -> Judged:
        """Train the subject of a number; return what its verbs answer."""
        workers.limit(resource.RLIMIT_CPU, 3600)
        subject = self.subjects[case.seed]
        run, keras_file = self.run_of(subject), self.run_of(subject, "file.keras")
        tf.config.run_functions_eagerly(False)
        done = call(self.training(subject, run), folder / "train")
        assert done.status == 0, done.err
        tf.config.run_functions_eagerly(True)
        task = load_task(TRAINS[subject].split()[0]).from_preset(run)
        task.save_to_preset(self.run_of(subject, "preset"))
        task.save(keras_file)
        answers = {"trained": workers.left_behind(run), "keras": load_keras(keras_file, subject)}
        for verb in USES[subject]:
            answers[verb] = self.use(subject, verb, run, folder / verb)[1]
        copy = shutil.copytree(run, folder / "copy")
        for verb in ("average", "resume"):
            answers[verb] = self.use(subject, verb, copy, folder / verb)[1]
        once = self.once(subject, folder / "once.yaml")
        answers["once"] = self.train_once(subject, once, folder / "once")[1]
        results = {(subject, k): v for k, v in answers.items()}
        return Judged(case, "same", "", (subject,), results)

    def training(self, subject: str, run: Path) -> list[str]:
        """Return the command that trains a subject, or goes on with it."""
        line = f"train {TRAINS[subject]} {SMALL} --resume --output {run}"
        return line.format(data=self.data).split()

    def once(self, subject: str, path: Path) -> Path:
        """Write a complete configuration of a training of one step."""
        text = (self.run_of(subject) / "config.yaml").read_text("utf-8")
        text = re.sub(r"(steps_per_epoch|\n  epochs|  max_minutes): (3|null)", r"\1: 1", text)
        path.write_text(text, "utf-8")
        return path

    def train_once(self, subject, config, folder, data=None) -> tuple[Done, Any]:
        """Train by a configuration file; return what was said, and the trained weights."""
        task, *given = TRAINS[subject].format(data=data).split()
        arguments = ["train", task, "--config", config, "--output", folder / "run"]
        done = call([*arguments, *(given if data else [])], folder)
        return done, workers.left_behind(folder / "run")[0] if done.status == 0 else None

    def use(self, subject, verb, run, folder, data=None, renamed=("", "")) -> tuple[Done, Any]:
        """Run a verb on a run folder or preset; return what was said, and the results."""
        folder.mkdir()
        if verb == "resume":
            tf.config.run_functions_eagerly(False)  # as it was trained, to the bit
            done = call(self.training(subject, run), folder)
            tf.config.run_functions_eagerly(True)
            return done, workers.left_behind(run) if done.status == 0 else None
        line = USES[subject].get(verb, "average {run} --output {out}")
        line = line.format(run=run, data=data or self.data, out=folder / "out")
        done = call([renamed[1] if each == renamed[0] else each for each in line.split()], folder)
        said = done.out.replace(str(data or self.data), "DATA").replace(".gz", "")
        return done, (said, workers.written(folder / "out"))


# ---- Faults.

MOMENTS = {
    "before a checkpoint": ("keras.callbacks.CallbackList.on_train_batch_end", 4),
    "in a write": ("os.replace", 25),
    "in a flush": ("os.fsync", 40),
    "in a checkpoint": ("numpy.savez", 3),
    "in evaluation": ("keras_attention.distribute.workers.Workers.from_chief", 3),
}
"""What a process that is to be killed calls, and how often at most."""
KILLED, WORKERS_STOPPED = (0, 143, -signal.SIGKILL, -signal.SIGTERM), 4
EXPORT = ("tensorflow.saved_model.save", 1), ("os.fsync", 1), ("pathlib.Path.replace", 1)


class Faults:
    """One method for each kind: disturbs a training or another verb; what it leaves must be right.

    Each command runs in a process of its own, forked from this one, which computes nothing.
    """

    computes = False

    def __init__(self, trial: Trial):
        self.trial = trial

    def __call__(self, case: Case, folder: Path) -> Judged:
        chance = Random(str(case))
        subject = chance.choice(self.trial.subjects)
        outcome, note, *moments = getattr(self, case.kind)(subject, chance, folder)
        return Judged(case, outcome, f"{subject}, {note}", (subject, *moments))

    def kill(self, subject, chance, folder):
        """SIGKILL or SIGTERM, once or more, at any moment of a training."""
        told, hit = [], []
        for number in range(chance.choice([1, 1, 2, 3])):
            moment = chance.choice(list(MOMENTS))
            first = _killer(*MOMENTS[moment], chance)
            done = self._train(subject, folder, f"killed{number}", first)
            told.append(f"{moment}: {done.status}")
            hit += [f"kill {moment}"] if done.status else []
            if done.status not in KILLED:
                return "traceback", f"{told}: {done.err[-300:]}"
        return *self._goes_on(subject, folder, ", ".join(told)), *hit

    def kill_workers(self, subject, chance, folder):
        """SIGKILL or SIGTERM of one of two or three workers; then all are started again."""
        count, moment = chance.choice([2, 3]), chance.choice(list(MOMENTS))
        unbroken = self.trial.run_of(subject, f"{count}-workers")
        if not unbroken.exists():
            done = self._train_together(subject, folder / "unbroken", count)
            assert not any(each.status for each in done), [each.err for each in done]
            (folder / "unbroken" / "run").replace(unbroken)
        killed = chance.randrange(count), _killer(*MOMENTS[moment], chance)
        done = self._train_together(subject, folder / "killed", count, *killed)
        told = f"worker {killed[0]} of {count}, {moment}: {[each.status for each in done]}"
        if any(each.status not in (*KILLED, WORKERS_STOPPED) for each in done):
            return "traceback", f"{told}: {[each.err[-200:] for each in done]}"
        hit = [f"kill one of {count} workers"] if any(each.status for each in done) else []
        done = self._train_together(subject, folder / "killed", count)
        if any(each.status for each in done):
            return "traceback", f"{told}; the resume: {[each.err[-200:] for each in done]}"
        run = folder / "killed" / "run"
        is_same = workers.left_behind(run) == workers.left_behind(unbroken)
        return "same" if is_same else "silent difference", told, *hit

    def kill_export(self, subject, chance, folder):
        """SIGKILL or SIGTERM within `export`, which then leaves nothing or all."""
        subject = self.trial.subjects[0]
        arguments = ["export", self.trial.run_of(subject), "--output", folder / "out"]
        place, most = chance.choice(EXPORT)
        first = _killer(place, most, chance)
        done = self._run(arguments, folder / "one", first)
        is_whole = (folder / "out").exists()
        if is_whole:
            shutil.rmtree(folder / "out")
        again = self._run(arguments, folder / "two")
        left = [each.name for each in folder.glob(".out*")]
        is_right = workers.tree(folder / "out").keys() >= {"saved_model.pb"} and not left
        note = f"{place}: {done.status}, whole: {is_whole}, {left} {again.err[-200:]}"
        return (
            outcome_of(again, is_right, False),
            note,
            *(["kill in export"] if done.status else []),
        )

    def full_disk(self, subject, chance, folder):
        """No room, at any byte of a file, or of a small disk where one can be mounted."""
        small = folder / "run"
        small.mkdir()
        size = chance.randrange(4096, 200_000)  # room for what it says
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size // 4096 + 1}p", "trial", str(small)]
        is_mounted = chance.random() < 0.5 and subprocess.run(mount, stderr=-3).returncode == 0
        what = f"{'disk' if is_mounted else 'file'} of {size} bytes"
        try:
            first = None if is_mounted else lambda: workers.limit(resource.RLIMIT_FSIZE, size)
            done = self._train(subject, folder, "full", first, small / "run")
            if (outcome := outcome_of(done, True, False, 40)) not in GOOD:
                return outcome, f"{what}: {done.err[-300:]}"
            if is_mounted:
                subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
            return self._goes_on(subject, folder, f"{what}: {done.status}", small / "run")
        finally:
            if is_mounted:
                subprocess.run(["umount", "-l", str(small)], check=False)

    def permission(self, subject, chance, folder):
        """A file or folder of a run that may not be read or written."""
        run = shutil.copytree(self.trial.run_of(subject), folder / "run")
        path = chance.choice([run, *sorted(run.rglob("*"))])
        verb = chance.choice(["predict", "train"])
        mode = chance.choice([0, 0o444])
        if os.getuid() == 0:  # whom no permission stops
            for each in (folder, run, *run.rglob("*")):
                os.chown(each, NOBODY, NOBODY)
        path.chmod(mode)
        if verb == "train":
            done = self._train(subject, folder, "said", _as_nobody, run)
        else:
            line = USES[subject]["predict"].format(run=run, data=self.trial.data, out=folder / "o")
            done = self._run(line.split(), folder / "said", _as_nobody)
        path.chmod(0o700)  # so that it can be removed
        what = f"{verb}, {mode:o} on {path.relative_to(folder)}"
        return outcome_of(done, True, False, 40), f"{what}: {done.err[-300:]}"

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
        out = folder / "out"
        arguments = ["average", self.trial.run_of(subject), "--output", out]
        if chance.random() < 0.5:
            arguments = self.trial.training(subject, folder / "run")
        pids = []
        for number in range(2):
            time.sleep(chance.choice([0, 0, 0.1, 1, 5]))
            pids.append(workers.fork(arguments, folder / f"{number}"))
        ends = [workers.ended(pid, folder / f"{n}") for n, pid in enumerate(pids)]
        what = f"{arguments[0]}: {[end.status for end in ends]}"
        for end in ends:
            if (outcome := outcome_of(end, True, False, 40)) not in GOOD:
                return outcome, f"{what}: {end.err[-300:]}"
        if all(end.status for end in ends):
            return "silent difference", f"{what}: nobody won: {ends[0].err[-200:]}"
        if arguments[0] == "train":
            return self._goes_on(subject, folder, what)
        is_same = workers.written(out) == self.trial.answers[subject, "average"][1]
        return "same" if is_same else "silent difference", what

    def _train(self, subject, folder, name, first=None, run=None) -> Done:
        arguments = self.trial.training(subject, run or folder / "run")
        return self._run(arguments, folder / name, first)

    def _train_together(self, subject, folder, count, killed=None, killer=None) -> list[Done]:
        """Train in so many workers, one of which is to be killed."""
        folder.mkdir(exist_ok=True)
        addresses, numbers = cluster.free_addresses(count), range(count)
        arguments = [*self.trial.training(subject, folder / "run"), *cluster.MULTI_WORKER]

        def join(number):
            os.environ["TF_CONFIG"] = cluster.tf_config(addresses, number)
            if number == killed:
                killer()

        firsts = [functools.partial(join, number) for number in numbers]
        pids = [workers.fork(arguments, folder / f"{n}", firsts[n]) for n in numbers]
        return [workers.ended(pids[n], folder / f"{n}") for n in numbers]

    def _run(self, arguments, folder, first=None) -> Done:
        return workers.ended(workers.fork(arguments, folder, first or (lambda: None)), folder)

    def _goes_on(self, subject, folder, what, run=None):
        """Resume what was disturbed; compare it with what an undisturbed training left."""
        run = run or folder / "run"
        done = self._train(subject, folder, "resumed", None, run)
        if done.status:
            return "traceback", f"{what}; the resume: {done.err[-300:]}"
        is_same = workers.left_behind(run) == self.trial.answers[subject, "trained"]
        left = [each.name for each in (*run.parent.glob(".run*"), *run.rglob(".partial*"))]
        return "same" if is_same and not left else "silent difference", f"{what} {left or ''}"


NOBODY = 65534


def _as_nobody() -> None:
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def _killer(place: str, most: int, chance: Random) -> Callable[[], None]:
    """Return what makes a process kill itself in, or soon after, the n-th call of a function."""
    count, number = chance.randint(1, most), chance.choice([signal.SIGKILL, signal.SIGTERM])
    delay = chance.choice([0, 0, chance.uniform(0, 0.5)])
    parts = place.split(".")

    def first():
        owner, left = importlib.import_module(parts[0]), parts[1:]
        for part in left[:-1]:
            with suppress(ImportError):
                importlib.import_module(f"{owner.__name__}.{part}")
            owner = getattr(owner, part)
        function, calls = getattr(owner, left[-1]), iter(range(1, 10**9))

        def counting(*arguments, **settings):
            if next(calls) == count:
                if delay:
                    threading.Timer(delay, os.kill, (os.getpid(), number)).start()
                else:
                    os.kill(os.getpid(), number)
            return function(*arguments, **settings)

        setattr(owner, left[-1], counting)

    return first


# ---- The command line.

SHARES = {"bytes": 35, "stranger": 25, "keras_file": 8, "config": 17, "data": 15}
SHARES |= {"arguments": 5}
FAULT_SHARES = {"kill": 60, "kill_workers": 4, "kill_export": 8, "full_disk": 12}
FAULT_SHARES |= {"permission": 6, "clock": 4, "together": 6}


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.trial", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--mutations", type=int, default=5000, metavar="N")
    parser.add_argument("--faults", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="another S, other cases")
    parser.add_argument("--only", nargs="*", metavar="KIND[:SEED]", help="these cases or kinds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("--minutes", type=float, default=1e9, metavar="M", help="end after so many")
    parser.add_argument("--made", metavar="D", help="keep the trained runs here; use them again")
    parser.add_argument("--tasks", nargs="+", choices=TRAINS, default=list(TRAINS))
    return parser.parse_args()


def _cases(options: argparse.Namespace, number: int, shares: dict[str, int]) -> list[Case]:
    """Return so many cases, spread over the kinds as their shares say."""
    only = options.only or []
    exact = [each.partition(":") for each in only if ":" in each]
    cases = [Case(kind, int(seed)) for kind, _, seed in exact if kind in shares]
    kinds = {k: share for k, share in shares.items() if not only or k in only}
    spread = [kind for kind, share in kinds.items() for _ in range(share)]
    Random(options.seed).shuffle(spread)
    first = options.seed * 1_000_000
    counted = (spread[index % len(spread)] for index in range(number if spread else 0))
    return cases + [Case(kind, first + index) for index, kind in enumerate(counted)]


def _table(ends: list[Judged]) -> str:
    """Return the counts of each outcome, by kind, and by task and moment."""
    counts = collections.Counter((end.case.kind, end.outcome) for end in ends)
    counts.update((group, end.outcome) for end in ends for group in end.groups)
    groups = sorted({group for end in ends for group in end.groups})
    names = [name for name in (*SHARES, *FAULT_SHARES) if any(name == k for k, _ in counts)]
    rows = [["", *GOOD, *BAD]]
    rows += [[name, *(str(counts[name, each]) for each in GOOD + BAD)] for name in names + groups]
    totals = [sum(counts[name, each] for name in names) for each in GOOD + BAD]
    rows.insert(1 + len(names), ["all", *map(str, totals)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(map(str.rjust, row, widths)) for row in rows)


def main() -> int:
    """Run the trial; return 1 where a case went wrong."""
    options = _parsed()
    deadline = time.monotonic() + 60 * options.minutes
    for task in TASKS.values():  # in the parent, once: a fork has it all
        importlib.import_module(f"{load_task(task.name).__module__.rpartition('.')[0]}.verbs")
    gc.freeze()  # a worker need not look through all that was imported after each case
    with tempfile.TemporaryDirectory(prefix="trial-") as name:
        made = Path(options.made or f"{name}/made").absolute()
        trial = Trial(made, options.tasks)
        for end in workers.judge_all(trial.missing(), trial.prepare, options.jobs, Path(name)):
            if end.outcome != "same":
                print(f"the undamaged training failed: {end.note}")
                return 1
            trial.remember(end.result)
        ends = []
        for act, number, shares in (
            (Mutations(trial), options.mutations, SHARES),
            (Faults(trial), options.faults, FAULT_SHARES),
        ):
            cases = _cases(options, number, shares)
            where = Path(name)
            where.chmod(0o755)
            for end in workers.judge_all(cases, act, options.jobs, where, deadline):
                ends.append(end)
                if len(ends) % 50 == 0:
                    print(f"{len(ends)} done", file=sys.stderr, flush=True)
                shutil.rmtree(workers.folder_of(where, end.case), ignore_errors=True)
                if options.only or end.outcome in BAD:
                    print(f"{end.outcome}: {end.case} {end.note}", flush=True)
    print(_table(ends))
    bad = sorted((end.outcome, str(end.case)) for end in ends if end.outcome in BAD)
    for outcome, case in bad:
        print(f"{outcome}: python -m tests.trial --tasks {' '.join(options.tasks)} --only {case}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
