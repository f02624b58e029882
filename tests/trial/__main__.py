"""The trial: thousands of damaged, odd and hostile inputs, and trainings that are disturbed.

    python -m tests.trial --mutations 5000 --faults 200 --jobs 2
    python -m tests.trial --only stranger:17       # one case again: what was done, and what came

Every task is trained once, tiny, by the real command. Each mutation changes a copy of a run folder,
a preset, a `.keras` file, a configuration or a data file, and runs a verb on it in a worker with
limits; each fault disturbs a training. A case depends on its kind and seed alone.
"""

import argparse
import collections
import gc
import importlib
import itertools
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from random import Random

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", MPLBACKEND="agg", KERAS_BACKEND="tensorflow")
for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"  # before TensorFlow is imported

from keras_attention.applications.cli import load_task  # noqa: E402
from keras_attention.applications.command import TASKS  # noqa: E402
from tests.trial import workers  # noqa: E402
from tests.trial.faults import Faults  # noqa: E402
from tests.trial.mutations import Mutations  # noqa: E402
from tests.trial.subjects import TRAINS, Trial  # noqa: E402
from tests.trial.workers import BAD, GOOD, Case, Judged  # noqa: E402

SHARES = {"bytes": 35, "stranger": 25, "keras_file": 8, "config": 17, "data": 15}
FAULT_SHARES = {"kill": 62, "kill_export": 8, "full_disk": 12, "permission": 6, "clock": 4}
FAULT_SHARES |= {"together": 8}


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


def _table(ends: list[tuple[str, str]]) -> str:
    """Return the counts of (name, outcome) pairs."""
    counts = collections.Counter(ends)
    names = list(dict.fromkeys(name for name, _ in ends))
    rows = [["", *GOOD, *BAD]]
    rows += [[name, *(str(counts[name, each]) for each in GOOD + BAD)] for name in names]
    totals = [sum(counts[name, each] for name in names) for each in GOOD + BAD]
    rows.append(["all", *map(str, totals)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(map(str.rjust, row, widths)) for row in rows)


def main() -> int:
    """Run the trial; return 1 where a case went wrong."""
    options = _parsed()
    for task in TASKS.values():  # in the parent, once: a fork has it all
        importlib.import_module(f"{load_task(task.name).__module__.rpartition('.')[0]}.verbs")
    gc.freeze()  # a worker need not look through all that was imported after each case
    with tempfile.TemporaryDirectory(prefix="trial-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        trial = Trial(folder, Path(options.made or folder / "made").absolute(), options.tasks)
        for end in workers.judge_all(trial.missing(), trial.prepare, options.jobs, folder):
            if end.outcome != "same":
                print(f"the undamaged training failed: {end.note}")
                return 1
            trial.remember(end.result)
        start, ends = time.monotonic(), []
        for kinds, part, number, shares in (
            (Faults, 0.45, options.faults, FAULT_SHARES),
            (Mutations, 1.0, options.mutations, SHARES),
        ):
            end_of_time = start + 60 * options.minutes * part
            ends += _tried(kinds(trial), _cases(options, number, shares), end_of_time, options)
    order = [*SHARES, *FAULT_SHARES]
    ends.sort(key=lambda end: order.index(end.case.kind))
    print(_table([(end.case.kind, end.outcome) for end in ends]))
    print(_table(sorted((end.subject, end.outcome) for end in ends)))
    bad = sorted((end.outcome, str(end.case)) for end in ends if end.outcome in BAD)
    for outcome, case in bad:
        print(f"{outcome}: python -m tests.trial --tasks {' '.join(options.tasks)} --only {case}")
    return 1 if bad else 0


def _tried(kinds: Faults | Mutations, cases, end_of_time, options) -> list[Judged]:
    """Try cases until the time is over; print what went wrong."""
    ends, folder = [], kinds.trial.folder
    in_time = itertools.takewhile(lambda _: time.monotonic() < end_of_time, cases)
    for end in workers.judge_all(in_time, kinds, options.jobs, folder):
        ends.append(end)
        if len(ends) % 50 == 0:
            print(f"{len(ends)} done", file=sys.stderr, flush=True)
        shutil.rmtree(workers.folder_of(folder, end.case), ignore_errors=True)
        if options.only or end.outcome in BAD:
            print(f"{end.outcome}: {end.case} {end.subject}, {end.note}", flush=True)
    return ends


if __name__ == "__main__":
    sys.exit(main())
