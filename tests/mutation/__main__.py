"""Change one line of the package at a time, and see whether a test notices.

    python -m tests.mutation --number 300 --seed 2
    python -m tests.mutation --files 'keras_attention/ops/*' --again

TensorFlow is imported once, and no operation is run: each mutant is tried in a fork of this
process, which loads the changed source in place of the file. No file of the repository is touched.
A first pass notes which lines each test runs; a mutant meets the quickest of the tests that run its
line. `equivalent.json` beside this file holds the changes that change no result, each with the
reason. Every other survivor needs a test. Results are kept in `--output`, and a second run goes on.
"""

import argparse
import hashlib
import importlib.machinery
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from random import Random

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", MPLBACKEND="agg")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"  # before TensorFlow is imported

import keras_hub  # noqa: E402, F401 - imported once for all mutants, with TensorFlow and Keras
import pytest  # noqa: E402

from tests.mutation.coverage import Coverage  # noqa: E402
from tests.mutation.operators import Mutant, mutants  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("keras_attention", "applications")
FILES = [f"keras_attention/{area}/*" for area in ("ops", "layers", "decoding", "losses", "metrics")]
FILES += ["applications/*/preprocessor.py", "applications/training/callbacks.py"]
FILES += ["applications/training/fit.py", "applications/store/weights.py"]
FILES += ["applications/*/batches.py", "applications/*/results.py", "applications/*/vectors.py"]
FILES += ["applications/*/data.py", "applications/*/encoders.py", "applications/*/layers.py"]
TESTS = ["ops", "metrics", "decoding", "layers", "test_losses.py", "text", "contracts"]
TESTS += ["applications"]
KNOWN = Path(__file__).with_name("equivalent.json")
KILLED = "killed"
SURVIVED = "survived"


def main(arguments: list[str] | None = None) -> int:
    options = parsed(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    tests = map_tests(options)
    done = read_results(options.output)
    chosen = choose(options, done)
    survivors = 0
    for number, mutant in enumerate(chosen, 1):
        names = tests_of(mutant, tests, options.seconds)
        outcome, seconds = try_mutant(mutant, names, options.output)
        result = {"file": mutant.file, "line": mutant.line, "after": mutant.after}
        result |= {"outcome": outcome, "tests": len(names), "seconds": round(seconds, 1)}
        with open(options.output / "results.jsonl", "a", encoding="utf-8") as file:
            print(json.dumps(result | {"diff": mutant.diff()}), file=file)
        survivors += outcome == SURVIVED
        print(f"{number}/{len(chosen)} {outcome} {mutant.file}:{mutant.line} {seconds:.1f} s")
        if outcome == SURVIVED:
            print(f"{mutant.diff()}\n({len(names)} tests)")
        sys.stdout.flush()
    print(f"{len(chosen)} lines changed, {survivors} changes survived.")
    return int(survivors > 0)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--files", nargs="+", default=FILES, help="patterns of files to change")
    parser.add_argument("--number", type=int, default=300, help="how many lines to change")
    parser.add_argument("--seed", type=int, default=1, help="which lines")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="files and folders of tests/")
    parser.add_argument("--seconds", type=float, default=30, help="time of the tests of a mutant")
    parser.add_argument("--again", action="store_true", help="try earlier survivors again")
    default = Path(tempfile.gettempdir()) / "keras-attention-mutation"
    parser.add_argument("--output", type=Path, default=default, help="folder of maps and results")
    return parser.parse_args(arguments)


# ---- Which lines are changed.


def choose(options: argparse.Namespace, done: dict[tuple, str]) -> list[Mutant]:
    """Take one line of each file in turn, at random, until there are enough."""
    known = {(entry["file"], entry["change"]) for entry in json.loads(KNOWN.read_text("utf-8"))}
    chance = Random(options.seed)
    waiting = []
    for file in files(options.files):
        found = mutants(file, (ROOT / file).read_text("utf-8"))
        chance.shuffle(found)
        lines: dict[int, Mutant] = {}
        for mutant in found:
            lines.setdefault(mutant.line, mutant)
        candidates = list(found if options.again else lines.values())
        waiting += [(turn, mutant) for turn, mutant in enumerate(candidates)]
    waiting.sort(key=lambda pair: pair[0])
    chosen = []
    for _, mutant in waiting:
        earlier = done.get((mutant.file, mutant.line, mutant.after))
        wanted = earlier == SURVIVED if options.again else earlier is None
        if wanted and (mutant.file, change(mutant)) not in known:
            chosen.append(mutant)
    return chosen[: options.number]


def change(mutant: Mutant) -> str:
    """The changed lines, without their numbers: these change with every edit above them."""
    return mutant.diff().partition("\n")[2]


def files(patterns: list[str]) -> list[str]:
    found = [path for source in SOURCES for path in (ROOT / source).rglob("*.py")]
    names = sorted(str(path.relative_to(ROOT)) for path in found if path.name != "__init__.py")
    return [name for name in names if any(fnmatch(name, pattern) for pattern in patterns)]


def read_results(output: Path) -> dict[tuple, str]:
    """Return the last outcome of each mutant that was tried."""
    path = output / "results.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    results = [json.loads(line) for line in lines]
    return {(each["file"], each["line"], each["after"]): each["outcome"] for each in results}


# ---- Which tests can see a line.


def map_tests(options: argparse.Namespace) -> dict[str, dict]:
    """Run each file of tests once, unless it and the sources are the same as when it was run."""
    sources = hashlib.sha256()
    for file in files(["*"]):
        sources.update((ROOT / file).read_bytes())
    tests: dict[str, dict] = {}
    for name in options.tests:
        path = ROOT / "tests" / name
        for file in sorted(path.rglob("test_*.py")) if path.is_dir() else [path]:
            digest = sources.copy()
            digest.update(file.read_bytes())
            digest.update(os.environ["KERAS_BACKEND"].encode())
            kept = options.output / f"{file.stem}-{digest.hexdigest()[:16]}.json"
            if not kept.exists():
                print(f"Note which lines {file.relative_to(ROOT)} runs.", flush=True)
                run_tests([str(file)], options.output / "log", 1200, plugins=(kept,))
            if kept.exists():
                tests |= json.loads(kept.read_text("utf-8"))
    return tests


def tests_of(mutant: Mutant, tests: dict[str, dict], limit: float) -> list[str]:
    """Return the quickest tests that run a mutant's line, as many as the limit has time for."""
    found = []
    for name, test in tests.items():
        lines = test["lines"].get(mutant.file, [])
        if any(mutant.first <= line <= mutant.last for line in lines) or (
            lines and not mutant.last
        ):
            found.append((test["seconds"], name))
    chosen: list[str] = []
    for seconds, name in sorted(found):
        limit -= seconds
        if limit < 0 and chosen:
            break
        chosen.append(name)
    by_file = list(dict.fromkeys(name.partition("::")[0] for name in chosen))
    return sorted(chosen, key=lambda name: by_file.index(name.partition("::")[0]))


# ---- A mutant is tried.


class ChangedSource:
    """A finder of modules that gives a changed source for one file."""

    def __init__(self, path: Path, source: str, changed: Path):
        self.path = str(path)
        self.changed = changed
        changed.write_text(source, encoding="utf-8")

    def find_spec(self, name: str, path=None, target=None):
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.origin == self.path:
                    spec.loader = ChangedLoader(name, self.path, self.changed)
                return spec
        return None


class ChangedLoader(importlib.machinery.SourceFileLoader):
    """Load another source in place of a file's, and write no bytecode of it."""

    def __init__(self, name: str, path: str, changed: Path):
        super().__init__(name, path)
        self.changed = changed

    def get_code(self, fullname):
        # Under its own name, so that whoever reads the source of a function sees the change.
        return compile(self.changed.read_bytes(), str(self.changed), "exec", dont_inherit=True)


def try_mutant(mutant: Mutant, names: list[str], output: Path) -> tuple[str, float]:
    """Run the tests on a mutant; one that no test runs, survives."""
    if not names:
        return SURVIVED, 0.0
    path = output / "mutant" / Path(mutant.file).name
    path.parent.mkdir(exist_ok=True)

    def install() -> None:
        sys.meta_path.insert(0, ChangedSource(ROOT / mutant.file, mutant.source, path))

    start = time.monotonic()
    code = run_tests(names, output / "log", 300, prepare=install)
    return (SURVIVED if code == 0 else KILLED), time.monotonic() - start


def run_tests(
    names: list[str],
    log: Path,
    limit: float,
    prepare: Callable[[], None] = lambda: None,
    plugins: tuple[Path, ...] = (),
) -> int:
    """Run tests in a fork, up to the first that fails. One that is not back in time has failed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setsid()
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, 1)
            os.dup2(file, 2)
            os.chdir(ROOT)
            prepare()
            options = ["-q", "-p", "no:cacheprovider", "--no-header"]
            options += [] if plugins else ["-x"]
            coverage = [Coverage(ROOT, SOURCES, kept) for kept in plugins]
            code = int(pytest.main([*options, *names], plugins=coverage))
        finally:
            os._exit(code)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            return status
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 1


if __name__ == "__main__":
    sys.exit(main())
