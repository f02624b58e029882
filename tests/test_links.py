"""Links of the pages, as GitHub shows them, lead to files that are in the repository."""

import posixpath
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^( *)(`{3,}).*?^\1\2`*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")
LINKS = (
    re.compile(r"(?<=\])\(<?([^)\s>]+)>?(?:\s[^)]*)?\)"),  # [text](file), ![text](file "title")
    re.compile(r"^\[[^\]]+\]:\s*(\S+)", re.MULTILINE),  # [text]: file
    re.compile(r"<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)=[\"']([^\"']+)[\"']"),
)
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:|//|#")


def files() -> set[str]:
    """The files of the repository; of an unpacked sdist, all that there are."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    try:
        found = subprocess.run(command, capture_output=True, check=True, text=True).stdout
        return set(found.split("\0")) - {""}
    except (OSError, subprocess.CalledProcessError):
        return {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*") if path.is_file()}


def broken(text: str, name: str, known: set[str]) -> list[str]:
    """The links of a page that lead to nothing."""
    prose = CODE.sub("", FENCE.sub("", text))
    folders = {posixpath.dirname(each) for each in known}
    folders |= {str(parent) for each in folders for parent in Path(each).parents}
    found = [link for pattern in LINKS for link in pattern.findall(prose)]
    targets = {
        link: posixpath.normpath(posixpath.join(posixpath.dirname(name), link.split("#")[0]))
        for link in found
        if not ADDRESS.match(link)
    }
    return [link for link, target in targets.items() if target not in known | folders]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("[a](b.md)", []),
        ("[a](b.md#part) [c](../x.py) [d](../docs) [e](#here) [f](https://a.b/c)", []),
        ("[a](c.md)", ["c.md"]),
        ('![a](b.png "title")', ["b.png"]),
        ("see [a][1]\n\n[1]: c.md", ["c.md"]),
        ('<img alt="x" src="b.png">', ["b.png"]),
        ("```text\n[a](c.md)\n```\n`[a](c.md)`", []),
    ],
)
def test_a_link_to_nothing_is_found(text, missing):
    assert broken(text, "docs/a.md", {"docs/a.md", "docs/b.md", "x.py"}) == missing


def test_every_link_leads_to_a_file_of_the_repository():
    known = files()
    pages = sorted(name for name in known if name.endswith(".md"))
    assert "README.md" in pages and "docs/course/02_bahdanau.zh.md" in pages
    wrong = {name: broken((ROOT / name).read_text(encoding="utf-8"), name, known) for name in pages}
    assert not {name: links for name, links in wrong.items() if links}
