"""The course: from one source a lecture, a page and a notebook in English and in Chinese.

`python -m docs.course.build` runs the lectures and writes their notebooks into `runs/course`; with
`--keep` it keeps what their cells show in `outputs/`, and renders the pages and notebooks beside
the sources anew. The documentation is built from sources and outputs and runs nothing. A source is
Python in cells (jupytext's `py:percent`):

- `# %% [markdown] lang="en"`: prose, followed at once by the same in Chinese, `lang="zh"`;
- `# %%`: code of both languages, with what a figure shows as `en="..." zh="..."`;
- `exercise=true`: where the reader's answer goes; what it shows is not kept;
- `answer=true`: the answer to an exercise, folded away on the page;
- `predict=true`: a figure that the reader guesses first, folded away;
- `tiny="SIZE = 3"`: stands for the line `SIZE = ...` where the tests run the lecture in small;
- `trained=true`: asserts what only a lecture trained whole reaches; the tests leave it out.
"""

import argparse
import base64
import hashlib
import json
import os
import platform
import re
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path

import jupytext
import nbformat

HERE = Path(__file__).resolve().parent
OUTPUTS = HERE / "outputs"
OWN = HERE.parents[1] / "runs" / "course"
"""Where runs go that are not kept; git ignores it."""
LANGUAGES = ("en", "zh")


class CourseError(ValueError):
    """A lecture that cannot be built, and why."""


def sources() -> list[Path]:
    """The lectures in their order."""
    return sorted(HERE.glob("[0-9]*.py"))


def cells(path: Path) -> list:
    """The cells of a lecture, each text of which was seen to have both languages."""
    found = jupytext.read(path).cells
    languages = [cell.metadata.get("lang", "") for cell in found if cell.cell_type == "markdown"]
    kinds = "".join({"en": "e", "zh": "z"}.get(cell.metadata.get("lang"), "c") for cell in found)
    if set(languages) - set(LANGUAGES) or re.search("e(?!z)|(?<!e)z", kinds):
        texts = [cell.source.strip().split("\n")[0] for cell in found if "lang" in cell.metadata]
        raise CourseError(
            f"{path.name}: each English text must be followed by the same in Chinese, cells marked "
            f'lang="en" and lang="zh". Received: {languages} of the texts {texts}'
        )
    return found


def code(found: list) -> list:
    """The cells that run."""
    return [cell for cell in found if cell.cell_type == "code"]


def digest(found: list) -> str:
    """Which code the outputs belong to: prose may change without running anything."""
    return hashlib.sha256("\0".join(c.source for c in code(found)).encode()).hexdigest()[:16]


def named(lecture: str) -> Path:
    """Return the lecture called `2`, `02`, `bahdanau` or `02_bahdanau`."""
    for path in sources():
        number, name = path.stem.split("_", 1)
        names = {path.stem, name, number, str(int(number))}
        if lecture in names:
            return path
    known = ", ".join(path.stem for path in sources())
    raise CourseError(f"Expected a lecture by its number or name: {known}. Received: {lecture}")


def run(path: Path, jobs: int = 1, into: Path = OUTPUTS) -> dict:
    """Execute a lecture in a kernel of its own and write what its cells show into a folder.

    `jobs` lectures share the processor's cores.
    """
    from nbclient import NotebookClient

    found = cells(path)
    notebook = nbformat.v4.new_notebook(cells=code(found))
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=1200, kernel_name="python3", resources=resources).execute()
    seconds = round(time.perf_counter() - start)
    packages = ", ".join(f"{name} {version(name)}" for name in ("keras", "tensorflow"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = max(1, cores // jobs)
    how = f"{packages}, Python {platform.python_version()}, {cores} CPU core{'s'[: cores != 1]}"
    folder = into / path.stem
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.png"):
        old.unlink()
    shown = []
    for cell in notebook.cells:
        texts, images = _shown([] if cell.metadata.get("exercise") else cell.outputs)
        names = [f"{len(shown)}-{k}.png" for k in range(len(images))]
        for name, png in zip(names, images, strict=True):
            (folder / name).write_bytes(png)
        shown.append({"text": texts, "images": names})
    result = {"code": digest(found), "seconds": seconds, "how": how, "cells": shown}
    text = json.dumps(result, ensure_ascii=False, indent=1)
    (folder / "outputs.json").write_text(text + "\n", encoding="utf-8")
    return result


def _shown(outputs: list) -> tuple[str, list[bytes]]:
    text, images = "", []
    for output in outputs:
        data = output.get("data", {})
        if "image/png" in data:
            images.append(base64.b64decode(data["image/png"]))
        elif output.output_type == "stream" and output.name == "stdout":
            text += re.sub(r"^WARNING:.*\n", "", output.text, flags=re.MULTILINE)  # of TensorFlow
        elif "text/plain" in data:
            text += data["text/plain"] + "\n"
    return text, images


def run_tiny(path: Path) -> int:
    """Execute a lecture in this process in its small size; return how many cells ran."""
    names: dict = {"__name__": "__lecture__"}
    chosen = [cell for cell in code(cells(path)) if not cell.metadata.get("trained")]
    for cell in chosen:
        source = re.sub(r"^%.*$", "", cell.source, flags=re.MULTILINE)  # magics
        if small := cell.metadata.get("tiny"):
            line = re.escape(small.split("=")[0]) + "=.*"
            source, count = re.subn(f"^{line}$", small, source, flags=re.MULTILINE)
            if count != 1:
                raise CourseError(
                    f"{path.name}: tiny={small!r} must stand for one line of its cell"
                )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")
            exec(compile(source, f"{path.name}: {cell.source[:60]!r}", "exec"), names)
    if "plt" in names:
        names["plt"].close("all")
    return len(chosen)


def outputs(path: Path, found: list, kept: Path | None = None) -> dict:
    """What the code of a lecture showed when it was run; `kept` is the folder, if another."""
    place = (kept or OUTPUTS) / path.stem / "outputs.json"
    result = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {"code": None}
    if result["code"] != digest(found):
        raise CourseError(
            f"{path.name}: its code was not run since it changed. Run "
            f"`make course KEEP=1 LECTURES={path.stem}`. Received: outputs of "
            f"code {result['code']}, expected {digest(found)}"
        )
    return result


def main(arguments: list[str] | None = None) -> int:
    """Run the lectures named, or all, or render those that were kept."""
    from docs.course import pages

    about = "Execute lectures, each in a kernel of its own, and write their notebooks."
    parser = argparse.ArgumentParser(prog="python -m docs.course.build", description=about)
    parser.add_argument("lecture", nargs="*", help="such as 2 or 02_bahdanau; default: all")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once (default: 1)")
    parser.add_argument(
        "--keep", action="store_true", help="keep what is shown in docs/course, and render it"
    )
    parser.add_argument(
        "--render", action="store_true", help="run nothing: render what was kept, in docs/course"
    )
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error(f"--jobs is at least 1. Received: {options.jobs}")
    try:
        chosen = [named(each) for name in options.lecture for each in name.split(",")]
        paths = sorted(set(chosen)) or sources()
        if not options.render:
            into = OUTPUTS if options.keep else OWN / "outputs"
            _run_all(paths, options.jobs, into)
        kept = options.keep or options.render
        folder = HERE if kept else OWN
        for path in paths:
            pages.render(path, folder, None if kept else OWN / "outputs")
    except ValueError as error:  # a CourseError, also of this module under its other name
        parser.error(str(error))
    print(f"The notebooks are in {folder}")
    return 0


def _run_all(paths: list[Path], jobs: int, into: Path) -> None:
    start = time.perf_counter()
    with ProcessPoolExecutor(jobs) as pool:
        made = map if jobs == 1 else pool.map
        results = made(partial(run, jobs=jobs, into=into), paths)
        for path, result in zip(paths, results, strict=True):
            print(f"{path.stem}: {result['seconds']} s", flush=True)
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    sys.exit(main())
