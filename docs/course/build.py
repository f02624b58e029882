"""The course: from one source a lecture, a page and a notebook in English and in Chinese.

`python -m docs.course.build` runs the lectures and keeps what their cells show in `outputs/`. The
documentation is built from sources and outputs and runs nothing. A source is Python in cells
(jupytext's `py:percent`):

- `# %% [markdown] lang="en"`: prose, followed at once by the same in Chinese, `lang="zh"`;
- `# %%`: code of both languages, with what a figure shows as `en="..." zh="..."`;
- `answer=true`: the answer to an exercise, folded away on the page;
- `tiny="SIZE = 3"`: a line that follows the cell where the tests run the lecture in a small size;
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
from importlib.metadata import version
from pathlib import Path
from textwrap import indent
from urllib.parse import quote

import jupytext
import nbformat

HERE = Path(__file__).resolve().parent
OUTPUTS = HERE / "outputs"
LANGUAGES = ("en", "zh")
BRANCH = "gh-pages"  # where `mkdocs gh-deploy` puts the site, and the notebooks with it
WORDS = {
    "en": ("Answer", "Notebook", "Open in Colab", "Open in Binder", "中文"),
    "zh": ("答案", "下载笔记本", "在 Colab 中打开", "在 Binder 中打开", "English"),
}
MADE = {
    "en": "The figures of this page were made by its code in {seconds} s: {how}.",
    "zh": "本页的图和数字由页中代码运行得到，用时 {seconds} 秒：{how}。",
}
INSTALL = """\
import importlib.util
if importlib.util.find_spec("keras_attention") is None:
    %pip install --quiet "git+https://github.com/{repository}"
"""


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


def run(path: Path) -> dict:
    """Execute a lecture in a kernel of its own and write what its cells show."""
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
            text += output.text
        elif "text/plain" in data:
            text += data["text/plain"] + "\n"
    return text, images


def run_tiny(path: Path) -> int:
    """Execute a lecture in this process in its small size; return how many cells ran."""
    names: dict = {"__name__": "__lecture__"}
    chosen = [cell for cell in code(cells(path)) if not cell.metadata.get("trained")]
    for cell in chosen:
        source = cell.source + "\n" + cell.metadata.get("tiny", "")
        exec(compile(source, f"{path.name}: {cell.source[:60]!r}", "exec"), names)
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


def page(path: Path, language: str, repository: str = "") -> str:
    """The page of a lecture in Markdown."""
    found = cells(path)
    made = outputs(path, found)
    shown = iter(made["cells"])
    answer, *_ = WORDS[language]
    parts = []
    for cell in found:
        if cell.cell_type == "markdown":
            if cell.metadata["lang"] == language:
                parts.append(cell.source)
            continue
        part = _code_and_output(path, cell, next(shown), language)
        if cell.metadata.get("answer"):
            part = f'??? success "{answer}"\n\n' + indent(part, "    ")
        parts.append(part)
    parts.insert(1, links(path, language, repository))
    parts.append("---\n\n*" + MADE[language].format(**made) + "*")
    return "\n\n".join(parts) + "\n"


def _code_and_output(path: Path, cell, shown: dict, language: str) -> str:
    parts = [f"```python\n{cell.source}\n```"]
    if shown["text"]:
        parts.append(f"```{{ .text .output }}\n{shown['text'].rstrip()}\n```")
    for name in shown["images"]:
        caption = cell.metadata.get(language)
        if not caption:
            raise CourseError(
                f'{path.name}: a cell that draws says what it shows as {language}="...". '
                f"Received: {cell.source[:60]!r}"
            )
        parts.append(f"![{caption}](outputs/{path.stem}/{name})\n\n*{caption}*")
    return "\n\n".join(parts)


def links(path: Path, language: str, repository: str) -> str:
    """The notebook, where it opens, and the lecture in the other language."""
    _, download, colab, binder, other_name = WORDS[language]
    other = "zh" if language == "en" else "en"
    file = f"{path.stem}.{language}.ipynb"
    shown = [f"[{download}]({file}){{ .md-button download }}"]
    if repository:
        place = f"{repository}/blob/{BRANCH}/course/{file}"
        shown.append(f"[{colab}](https://colab.research.google.com/github/{place}){{ .md-button }}")
        pull = f"git-pull?repo=https://github.com/{repository}&branch={BRANCH}"
        pull += f"&urlpath=lab/tree/{repository.split('/')[-1]}/course/{file}"
        address = f"https://mybinder.org/v2/gh/{repository}/main?urlpath={quote(pull, safe='')}"
        shown.append(f"[{binder}]({address}){{ .md-button }}")
    shown.append(f"[{other_name}]({page_name(path, other)}){{ .md-button }}")
    return "\n".join(shown)


def page_name(path: Path, language: str) -> str:
    """The file of a lecture's page: the English one has the plain name."""
    return f"{path.stem}.md" if language == "en" else f"{path.stem}.{language}.md"


def notebook(path: Path, language: str, repository: str = "") -> str:
    """The notebook of a lecture as a file's text, with what its cells showed."""
    found = cells(path)
    made = outputs(path, found)
    shown = iter(made["cells"])
    kept = []
    for cell in found:
        if cell.cell_type == "code":
            kept.append(_notebook_cell(path, cell, next(shown)))
        elif cell.metadata["lang"] == language:
            text = re.sub(r" \{ #[\w-]+ \}$", "", cell.source, flags=re.MULTILINE)  # anchors
            text = re.sub(r"(\]\([^):]+)\.md(?=[)#])", r"\1.html", text)  # the pages beside it
            kept.append(nbformat.v4.new_markdown_cell(text))
    if repository:
        kept.insert(1, nbformat.v4.new_code_cell(INSTALL.format(repository=repository)))
    for number, cell in enumerate(kept):
        cell["id"] = f"cell-{number}"  # the same in every build
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.writes(nbformat.v4.new_notebook(cells=kept, metadata={"kernelspec": kernel}))


def _notebook_cell(path: Path, cell, shown: dict):
    made = []
    if shown["text"]:
        made.append(nbformat.v4.new_output("stream", name="stdout", text=shown["text"]))
    for name in shown["images"]:
        png = base64.b64encode((OUTPUTS / path.stem / name).read_bytes()).decode()
        made.append(nbformat.v4.new_output("display_data", data={"image/png": png}))
    hidden = {"jupyter": {"source_hidden": True}} if cell.metadata.get("answer") else {}
    return nbformat.v4.new_code_cell(cell.source, outputs=made, metadata=hidden)


def main(arguments: list[str] | None = None) -> int:
    """Run the lectures named, or all."""
    parser = argparse.ArgumentParser(prog="python -m docs.course.build", description=run.__doc__)
    names = [path.stem for path in sources()]
    parser.add_argument("lecture", nargs="*", help="a lecture, such as 02_bahdanau; default: all")
    chosen = parser.parse_args(arguments).lecture
    if unknown := set(chosen) - set(names):
        parser.error(f"The lectures are {', '.join(names)}. Received: {', '.join(unknown)}")
    start = time.perf_counter()
    for path in sources():
        if not chosen or path.stem in chosen:
            print(f"{path.stem}: {run(path)['seconds']} s", flush=True)
    print(f"{time.perf_counter() - start:.0f} s in all; what was shown is in {OUTPUTS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
