"""Pages in Chinese: none is missing, and none differs from its English page."""

import re
from pathlib import Path

import pytest
import yaml

from docs import translation
from docs.course.build import CourseError

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
NAMES = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
EXTRA = yaml.safe_load(re.sub(r"!!\S+", "", (ROOT / "mkdocs.yml").read_text("utf-8")))["extra"]
PAGES = [f"docs/{name}" for name in translation.bilingual(EXTRA["bilingual"], NAMES)]

ENGLISH = """\
# A title

Text of `value`, $x$ and [another](other.md#part).

$$
y = x
$$

```python
x = 1
```

| `a` | 1 |

![A picture](a.png)
"""
CHINESE = """\
# 标题

`value`、$x$ 和[另一页](other.zh.md)的文字。

[公式](own.md)

[代码](own.md)

| `a` | 一 |

![一张图](a.png)
"""


@pytest.mark.parametrize("name", ["README.md", *PAGES])
def test_a_page_has_its_translation(name):
    path = ROOT / translation.translated(name)
    chinese = path.read_text("utf-8") if path.exists() else None
    whole = translation.compare((ROOT / name).read_text("utf-8"), chinese, name)
    if name in PAGES:
        translation.check_links(whole, name.removeprefix("docs/"), NAMES)


def test_every_layer_page_is_declared():
    layers = [name for name in NAMES if name.startswith("layers/") and ".zh." not in name]
    assert len(layers) > 15 and {f"docs/{name}" for name in layers} <= set(PAGES)


def test_code_and_formulas_come_from_the_english_page():
    whole = translation.compare(ENGLISH, CHINESE, "layers/own.md")
    assert "```python\nx = 1\n```" in whole and "$$\ny = x\n$$" in whole
    assert "标题" in whole and "](own.md)" not in whole


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[代码](own.md)", "", "blocks of code"),
        ("[代码](own.md)", "[代码](own.md)\n\n[代码](own.md)", "expected 1 lines.*Received: 2"),
        ("[代码](own.md)", "[代码](other.md)", "expected 1 lines.*Received: 0"),
        ("[代码](own.md)", "```python\nx = 2\n```", "blocks of code"),
        ("[公式](own.md)", "$$\ny = z\n$$", "formulas"),
        ("a.png", "b.png", "pictures.*lacks 'a.png' and has more 'b.png'"),
        ("# 标题", "## 标题", "headings"),
        ("| `a` | 一 |", "| `b` | 一 |", "rows of tables"),
        ("| `a` | 一 |", "| `a` | 一 |\n| | 二 |", "rows of tables.*Received: 2, expected 1"),
        ("`value`", "值", "words set as code.*lacks '`value`'"),
        ("、$x$", "、$z$", r"words set as code.*has more '\$z\$'"),
        ("(other.zh.md)", "(third.md)", "links.*lacks 'other.md'"),
    ],
)
def test_a_translation_that_differs_is_refused(old, new, message):
    assert old in CHINESE
    with pytest.raises(CourseError, match=message):
        translation.compare(ENGLISH, CHINESE.replace(old, new), "layers/own.md")


def test_a_missing_page_is_refused():
    for texts in ((ENGLISH, None), (None, CHINESE)):
        with pytest.raises(CourseError, match="declared bilingual"):
            translation.compare(*texts, "own.md")
    with pytest.raises(CourseError, match=r"Received: layer/\*"):
        translation.bilingual(["layer/*.md"], NAMES)


def test_a_link_leads_to_the_translation_where_there_is_one():
    names = ["layers/own.md", "layers/other.md", "layers/other.zh.md"]
    translation.check_links(CHINESE, "layers/own.md", names)
    with pytest.raises(CourseError, match=r"Received: other.md, expected other.zh.md"):
        translation.check_links(CHINESE.replace(".zh", ""), "layers/own.md", names)


def test_headings_keep_the_anchors_of_the_english_page():
    pytest.importorskip("markdown")  # comes with the requirements of the pages
    english = "# `A` title\n## Part\n```\n# code\n```\n## Part\n## Own\n"
    chinese = "# 标题\n## 部分\n```\n# code\n```\n## 部分\n## 自己 {: #mine }\n"
    assert translation.with_anchors(english, chinese).splitlines() == [
        "# 标题 {: #a-title }",
        "## 部分 {: #part }",
        *("```", "# code", "```"),
        "## 部分 {: #part_1 }",
        "## 自己 {: #mine }",
    ]
