"""Puts the course into the site; the build fails where a page lacks one of its two languages."""

import re
import sys
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.course import build  # noqa: E402

CODE = re.compile(r"^```(?:python|bash)\n.*?^```$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config) -> Files:
    """Add the pages and notebooks of all lectures."""
    repository = config.extra.get("repository", "")
    try:
        for path in build.sources():
            for language in build.LANGUAGES:
                page = build.page(path, language, repository)
                notebook = build.notebook(path, language, repository)
                for name, content in (
                    (build.page_name(path, language), page),
                    (f"{path.stem}.{language}.ipynb", notebook),
                ):
                    files.append(File.generated(config, f"course/{name}", content=content))
        check_translations(config.extra.get("bilingual", []), files)
    except build.CourseError as error:
        raise PluginError(str(error)) from None
    return files


def check_translations(names: list[str], files: Files) -> None:
    """Raise an error unless each page has a Chinese one with the same code and as many headings."""
    for name in names:
        chinese = name.removesuffix(".md") + ".zh.md"
        pages = [files.get_file_from_path(each) for each in (name, chinese)]
        if None in pages:
            raise build.CourseError(
                f"{name} is declared bilingual in mkdocs.yml. Expected it and {chinese} in docs/"
            )
        compare(*(page.content_string for page in pages), chinese)


def compare(english: str, chinese: str, name: str) -> None:
    """Raise an error where code or structure of a translated page differ from the original's."""
    if CODE.findall(english) != CODE.findall(chinese):
        raise build.CourseError(
            f"{name}: its code must be that of the English page, block by block"
        )
    headings = [
        re.findall(r"^#+ ", CODE.sub("", text), re.MULTILINE) for text in (english, chinese)
    ]
    if headings[0] != headings[1]:
        raise build.CourseError(
            f"{name}: its headings must be those of the English page. "
            f"Received: {len(headings[1])} headings, expected {len(headings[0])}"
        )


def on_post_page(output: str, page, **_) -> str:
    """Tell browsers, search engines and screen readers the language of a Chinese page."""
    if page.file.src_uri.endswith(".zh.md"):
        output = re.sub(r'<html lang="[^"]*"', '<html lang="zh-Hans"', output, count=1)
    return output
