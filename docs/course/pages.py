"""The pages and notebooks of the lectures, made from their sources and what `build` kept."""

import base64
import posixpath
import re
from pathlib import Path
from urllib.parse import quote

import nbformat

from docs.course import build
from docs.course.build import CourseError
from docs.course.comments import in_chinese
from docs.translation import BREAK

SITE_BRANCH = "gh-pages"  # where the workflow `pages.yml` puts the site, and the notebooks with it
WORDS = {
    "en": {
        "answer": "Answer",
        "notebook": "Notebook",
        "colab": "Open in Colab",
        "binder": "Open in Binder",
        "other": "中文",
        "fold": "Answer: open the cell to see it",
        "guess": "I have a guess: show the figure",
        "made": "The figures of this page were made by its code in {seconds} s: {how}.",
    },
    "zh": {
        "answer": "答案",
        "notebook": "下载笔记本",
        "colab": "在 Colab 中打开",
        "binder": "在 Binder 中打开",
        "other": "English",
        "fold": "答案：展开单元格查看",
        "guess": "我猜好了：看图",
        "made": "本页的图和数字由页中代码运行得到，用时 {seconds} 秒：{how}。",
    },
}
RENDERED = "<!-- Rendered from {name} by `make notebooks`: change the source. -->"
INSTALL = """\
import importlib.util
if importlib.util.find_spec("keras_attention") is None:
    %pip install --quiet "git+https://github.com/{repository}"
"""
ANCHOR = re.compile(r"^(#+ .*?) \{:? #([\w-]+) \}$", re.MULTILINE)
PAGE_LINK = re.compile(r"(\]\()([^):]+)\.md(?=[)#])")
IMPORT = re.compile(r"^from keras_attention\.course import check$", re.MULTILINE)
IN_CHINESE = '\nuse_language("zh")'


def configured_repository() -> str:
    """OWNER/NAME on GitHub, where the project's mkdocs.yml says it."""
    text = (build.HERE.parents[1] / "mkdocs.yml").read_text(encoding="utf-8")
    return re.search(r'^  repository: "(.*)"$', text, re.MULTILINE)[1]


def render(path: Path, folder: Path, kept: Path | None = None) -> None:
    """Write the pages and notebooks of a lecture, as GitHub and Jupyter show them, into a folder.

    Args:
        path: The lecture.
        folder: Where they go.
        kept: The folder of what its cells showed, if another than that of the repository. There
            are no pages then, whose pictures stand beside those that are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in rendered(path, kept).items():
        if kept is None or name.endswith(".ipynb"):
            (folder / name).write_text(text, encoding="utf-8")


def rendered(path: Path, kept: Path | None = None) -> dict[str, str]:
    """The texts of the pages and notebooks of a lecture in the repository, by their files."""
    repository = configured_repository()
    found = {}
    for language in build.LANGUAGES:
        name = notebook_name(path, language)
        found[name] = notebook(path, language, repository, kept=kept) + "\n"
        if kept is None:
            found[page_name(path, language)] = page(path, language, repository)
    return found


def page(path: Path, language: str, repository: str = "") -> str:
    """The page of a lecture in Markdown."""
    found = build.cells(path)
    made = build.outputs(path, found)
    shown = iter(made["cells"])
    words = WORDS[language]
    parts = []
    for cell in found:
        if cell.cell_type == "markdown":
            if cell.metadata["lang"] == language:
                text = ANCHOR.sub(r'\1 <a id="\2"></a>', cell.source)
                parts.append(BREAK.sub("", text))
            continue
        code, output = _code_and_output(path, cell, next(shown), language)
        if cell.metadata.get("answer"):
            parts.append(_folded("success", words["answer"], [code, *output]))
        elif cell.metadata.get("predict"):
            parts += [code, _folded("question", words["guess"], output)]
        else:
            parts += [code, *output]
    parts.insert(1, links(path, language, repository))
    parts.append("---\n\n*" + words["made"].format(**made) + "*")
    parts.append(RENDERED.format(name=path.name))
    return "\n\n".join(parts) + "\n"


def _folded(kind: str, summary: str, parts: list[str]) -> str:
    opening = f'<details class="{kind}" markdown="1">\n<summary>{summary}</summary>'
    return "\n\n".join([opening, *parts, "</details>"])


def _code_and_output(path: Path, cell, shown: dict, language: str) -> tuple[str, list[str]]:
    parts = []
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
    return f"```python\n{_source(cell, language)}\n```", parts


def _source(cell, language: str) -> str:
    """The code of a cell; in Chinese its comments and the answers of checks are Chinese, too."""
    if language == "en":
        return cell.source
    source = in_chinese(cell.source)
    if IMPORT.search(source):
        source = IMPORT.sub(r"\g<0>, use_language", source) + IN_CHINESE
    return source


def links(path: Path, language: str, repository: str) -> str:
    """The notebook, where it opens, and the lecture in the other language."""
    words = WORDS[language]
    other = "zh" if language == "en" else "en"
    file = notebook_name(path, language)
    shown = [f"[{words['notebook']}]({file})"]
    if repository:
        place = f"{repository}/blob/{SITE_BRANCH}/course/{file}"
        shown.append(f"[{words['colab']}](https://colab.research.google.com/github/{place})")
        place = quote(f"lab/tree/docs/course/{file}", safe="")
        binder = f"https://mybinder.org/v2/gh/{repository}/HEAD?urlpath={place}"
        shown.append(f"[{words['binder']}]({binder})")
    shown.append(f"[{words['other']}]({page_name(path, other)})")
    return '<div class="buttons" markdown="1">\n\n' + " · ".join(shown) + "\n\n</div>"


def page_name(path: Path, language: str) -> str:
    """The file of a lecture's page: the English one has the plain name."""
    return f"{path.stem}.md" if language == "en" else f"{path.stem}.{language}.md"


def notebook_name(path: Path, language: str) -> str:
    """The file of a lecture's notebook."""
    return f"{path.stem}.{language}.ipynb"


def notebook(
    path: Path,
    language: str,
    repository: str = "",
    kept: Path | None = None,
    on_site: bool = False,
) -> str:
    """The notebook of a lecture as a file's text, with what its cells showed.

    Args:
        path: The lecture.
        language: `"en"` or `"zh"`.
        repository: OWNER/NAME on GitHub, from which it installs the package where that is missing.
        kept: The folder of what its cells showed, if another than that of the repository.
        on_site: Whether it lies beside the pages of the site, not beside their sources.
    """
    found = build.cells(path)
    made = build.outputs(path, found, kept)
    shown = iter(made["cells"])
    cells = []
    for cell in found:
        if cell.cell_type == "code":
            place = (kept or build.OUTPUTS) / path.stem
            cells.append(_notebook_cell(cell, next(shown), place, language))
        elif cell.metadata["lang"] == language:
            text = ANCHOR.sub(r"\1", BREAK.sub("", cell.source))
            text = _with_links(text, language, repository, on_site)
            cells.append(nbformat.v4.new_markdown_cell(text))
    if repository:
        cells.insert(1, nbformat.v4.new_code_cell(INSTALL.format(repository=repository)))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # the same in every build
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.writes(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}))


def _with_links(text: str, language: str, repository: str, on_site: bool) -> str:
    """Lead from a notebook to the other notebooks, and to the pages where they can be read."""
    lectures = {page_name(path, language): path for path in build.sources()}

    def link(found: re.Match) -> str:
        name = f"{found[2]}.md"
        if name in lectures:
            return found[1] + notebook_name(lectures[name], language)
        if repository:
            place = posixpath.normpath(posixpath.join("docs/course", name))
            return f"{found[1]}https://github.com/{repository}/blob/HEAD/{place}"
        return f"{found[1]}{found[2]}.html" if on_site else found[0]

    return PAGE_LINK.sub(link, text)


def _notebook_cell(cell, shown: dict, place: Path, language: str):
    made = []
    if shown["text"]:
        made.append(nbformat.v4.new_output("stream", name="stdout", text=shown["text"]))
    for name in shown["images"]:
        png = base64.b64encode((place / name).read_bytes()).decode()
        made.append(nbformat.v4.new_output("display_data", data={"image/png": png}))
    source, metadata = _source(cell, language), {}
    if cell.metadata.get("answer"):
        # JupyterLab shows the first line of a cell that is folded.
        source = f"# {WORDS[language]['fold']}\n{source}"
        metadata = {"jupyter": {"source_hidden": True}}
    elif cell.metadata.get("predict"):
        metadata = {"jupyter": {"outputs_hidden": True}}
    return nbformat.v4.new_code_cell(source, outputs=made, metadata=metadata)
