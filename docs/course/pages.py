"""The pages and notebooks of the lectures, made from their sources and what `build` kept."""

import base64
import re
from pathlib import Path
from textwrap import indent
from urllib.parse import quote

import nbformat

from docs.course import build
from docs.course.build import CourseError
from docs.translation import BREAK

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


def page(path: Path, language: str, repository: str = "") -> str:
    """The page of a lecture in Markdown."""
    found = build.cells(path)
    made = build.outputs(path, found)
    shown = iter(made["cells"])
    answer, *_ = WORDS[language]
    parts = []
    for cell in found:
        if cell.cell_type == "markdown":
            if cell.metadata["lang"] == language:
                parts.append(BREAK.sub("", cell.source))
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
    found = build.cells(path)
    made = build.outputs(path, found)
    shown = iter(made["cells"])
    kept = []
    for cell in found:
        if cell.cell_type == "code":
            kept.append(_notebook_cell(path, cell, next(shown)))
        elif cell.metadata["lang"] == language:
            text = BREAK.sub("", cell.source)
            text = re.sub(r" \{ #[\w-]+ \}$", "", text, flags=re.MULTILINE)  # anchors
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
        png = base64.b64encode((build.OUTPUTS / path.stem / name).read_bytes()).decode()
        made.append(nbformat.v4.new_output("display_data", data={"image/png": png}))
    hidden = {"jupyter": {"source_hidden": True}} if cell.metadata.get("answer") else {}
    return nbformat.v4.new_code_cell(cell.source, outputs=made, metadata=hidden)
