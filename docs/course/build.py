"""The course: from one source a lecture, a page and a notebook in English and in Chinese.

`python -m docs.course.build` runs the lectures and keeps what their cells show in `outputs/`. The
documentation is built from sources and outputs and runs nothing. A source is Python in cells
(jupytext's `py:percent`):

- `# %% [markdown] lang="en"`: prose, followed at once by the same in Chinese, `lang="zh"`;
- `# %%`: code of both languages, with what a figure shows as `en="..." zh="..."`;
- `answer=true`: the answer to an exercise, folded away on the page;
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


def run(path: Path, jobs: int = 1) -> dict:
    """Execute a lecture in a kernel of its own and write what its cells show.

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
    folder = OUTPUTS / path.stem
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.png"):
        old.unlink()
    shown = []
    for cell in notebook.cells:
        texts, images = _shown(cell.outputs)
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


def outputs(path: Path, found: list) -> dict:
    """What the code of a lecture showed when it was run."""
    place = OUTPUTS / path.stem / "outputs.json"
    result = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {"code": None}
    if result["code"] != digest(found):
        raise CourseError(
            f"{path.name}: its code was not run since it changed. Run `make course`, or this "
            f"lecture alone by `python -m docs.course.build {path.stem}`. Received: outputs of "
            f"code {result['code']}, expected {digest(found)}"
        )
    return result


def main(arguments: list[str] | None = None) -> int:
    """Run the lectures named, or all."""
    about = "Execute lectures, each in a kernel of its own, and write what their cells show."
    parser = argparse.ArgumentParser(prog="python -m docs.course.build", description=about)
    names = [path.stem for path in sources()]
    parser.add_argument("lecture", nargs="*", help="a lecture, such as 02_bahdanau; default: all")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once (default: 1)")
    options = parser.parse_args(arguments)
    chosen = options.lecture
    if options.jobs < 1:
        parser.error(f"--jobs is at least 1. Received: {options.jobs}")
    if unknown := set(chosen) - set(names):
        parser.error(f"The lectures are {', '.join(names)}. Received: {', '.join(unknown)}")
    start = time.perf_counter()
    paths = [path for path in sources() if not chosen or path.stem in chosen]
    with ProcessPoolExecutor(options.jobs) as pool:
        made = map if options.jobs == 1 else pool.map
        for path, result in zip(paths, made(partial(run, jobs=options.jobs), paths), strict=True):
            print(f"{path.stem}: {result['seconds']} s", flush=True)
    print(f"{time.perf_counter() - start:.0f} s in all; what was shown is in {OUTPUTS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
