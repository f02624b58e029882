"""Pages in two languages: `NAME.zh.md` holds the prose of `NAME.md` in Chinese, nothing twice.

A line `[代码](NAME.md)` of the translation stands for the next block of code of the English page,
and `[公式](NAME.md)` for its next displayed formula; read as a file, each is a link to where that
stands. A translation that must be whole by itself, as README.zh.md, repeats the code instead.
Either way `compare` refuses what differs.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Collection
from fnmatch import fnmatch

from docs.course.build import CourseError

# A line's end between two Chinese characters, which a browser would show as a space.
BREAK = re.compile(r"(?<=[\u3000-\u9fff\uff00-\uffef])\n(?=[\u3000-\u9fff\uff00-\uffef])")
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r"^\$\$\n.*?^\$\$$", re.MULTILINE | re.DOTALL)
PLACE = re.compile(r"^\[(代码|公式)\]\(([\w.]+)\)$", re.MULTILINE)
HEADING = re.compile(r"^(#+) (.*)$", re.MULTILINE)
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)]+)\)")
LINK = re.compile(r"(?<!!)(?<=\])(?:\(([^)\s]+)\)|\[([\w.]+)\])")
CODE_SPAN, FORMULA_SPAN = re.compile(r"`[^`\n]+`"), re.compile(r"(?<![$\\])\$[^$\n]+\$")
ROW = re.compile(r"^\|.*\|$", re.MULTILINE)


def translated(name: str) -> str:
    """The file of a page's translation: `index.zh.md` of `index.md`."""
    return name.removesuffix(".md") + ".zh.md"


def bilingual(patterns: list[str], names: Collection[str]) -> list[str]:
    """The pages, of those named, that must have a translation, by patterns: `layers/*.md`."""
    own = [name for name in names if name.endswith(".md") and not name.endswith(".zh.md")]
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in own):
            raise CourseError(f"extra.bilingual: no page is called so. Received: {pattern}")
    return [name for name in own if any(fnmatch(name, pattern) for pattern in patterns)]


def fill(english: str, chinese: str, name: str) -> str:
    """The whole translation: code and formulas of the English page in the places for them.

    Args:
        english, chinese: The two texts.
        name: The page, for messages.
    """
    own = name.rsplit("/", 1)[-1]
    blocks = {"代码": CODE.findall(english), "公式": FORMULA.findall(CODE.sub("", english))}
    places = PLACE.findall(chinese)
    for kind in {kind for kind, _ in places}:
        count = sum(each == (kind, own) for each in places)
        if count != len(blocks[kind]):
            raise CourseError(
                f"{translated(name)}: expected {len(blocks[kind])} lines [{kind}]({own}), one for "
                f"each block of the English page. Received: {count}"
            )
    following = {kind: iter(found) for kind, found in blocks.items()}
    return PLACE.sub(lambda place: next(following[place[1]]), chinese)


def compare(english: str | None, chinese: str | None, name: str) -> str:
    """Return the whole translation of a page; raise an error where it lacks or adds anything.

    These must be the same, in this order: blocks of code, displayed formulas, pictures, levels of
    headings; in each row of a table, and then on the page, what is set as code or as a formula; and
    where links lead to.

    Args:
        english, chinese: The two texts; None where there is no such page.
        name: The page, for messages.
    """
    if english is None or chinese is None:
        raise CourseError(
            f"{name} is declared bilingual. Expected it and {translated(name)} beside it"
        )
    chinese = fill(english, chinese, name)
    ours, theirs = (_contents(text) for text in (english, chinese))
    for kind, expected in ours.items():
        received = theirs[kind]
        if expected != received:
            lacks, adds = Counter(expected), Counter(received)
            raise CourseError(
                f"{translated(name)}: its {kind} must be those of the English page, in their order."
                f" It lacks {_some(lacks - adds)} and has more {_some(adds - lacks)}. "
                f"Received: {len(received)}, expected {len(expected)}"
            )
    return chinese


def check_links(chinese: str, name: str, names: Collection[str]) -> None:
    """Raise an error where a translation leads to an English page that has a translation itself."""
    folder = posixpath.dirname(name)
    for link in links(chinese):
        target = posixpath.normpath(posixpath.join(folder, link))
        is_own = target == name  # "English"
        if target.endswith(".md") and not is_own and translated(target) in names:
            raise CourseError(
                f"{translated(name)}: a link leads to the English page. "
                f"Received: {link}, expected {translated(link)}"
            )


def with_anchors(english: str, chinese: str) -> str:
    """The translation, whose headings answer to the names of the English ones."""
    from markdown.extensions.toc import slugify, unique

    used: set[str] = set()
    titles = [title for _, title in HEADING.findall(CODE.sub("", english))]
    named = iter([unique(slugify(title, "-"), used) for title in titles])

    def heading(found: re.Match) -> str:
        name = next(named)
        return found[0] if "{" in found[2] else f"{found[0]} {{: #{name} }}"

    parts = re.split(f"({CODE.pattern})", chinese, flags=CODE.flags)
    return "".join(
        part if number % 2 else HEADING.sub(heading, part) for number, part in enumerate(parts)
    )


def _contents(text: str) -> dict[str, list[str]]:
    prose = FORMULA.sub("", CODE.sub("", text))
    return {
        "blocks of code": CODE.findall(text),
        "formulas": FORMULA.findall(CODE.sub("", text)),
        "pictures": PICTURE.findall(prose),
        "headings": [level for level, _ in HEADING.findall(prose)],
        "rows of tables": [" ".join(sorted(_spans(row))) for row in ROW.findall(prose)],
        "words set as code or formula": sorted(set(_spans(prose))),
        "links": sorted({place.replace(".zh.md", ".md") for place in links(prose)}),
    }


def _spans(text: str) -> list[str]:
    """Return the code and the formulas within the lines of a text."""
    code = CODE_SPAN.findall(text)
    return code + FORMULA_SPAN.findall(CODE_SPAN.sub("", text))


def links(text: str) -> list[str]:
    """Where the links of a text lead to, without anchors, which differ in the lectures."""
    found = LINK.findall(CODE_SPAN.sub("", CODE.sub("", text)))
    return [place.split("#")[0] or name for place, name in found]


def _some(found: Counter) -> str:
    shown = [part if len(part) < 60 else part[:57] + "..." for part in list(found)[:3]]
    return ", ".join(map(repr, shown)) or "nothing"
