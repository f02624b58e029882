"""Puts the course into the site; the build fails where a page lacks one of its two languages."""

import re
import sys
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.course import build, pages  # noqa: E402


def on_files(files: Files, config) -> Files:
    """Add the pages and notebooks of all lectures."""
    repository = config.extra.get("repository", "")
    try:
        for path in build.sources():
            for language in build.LANGUAGES:
                page = pages.page(path, language, repository)
                notebook = pages.notebook(path, language, repository)
                for name, content in (
                    (pages.page_name(path, language), page),
                    (f"{path.stem}.{language}.ipynb", notebook),
                ):
                    files.append(File.generated(config, f"course/{name}", content=content))
        for name in config.extra.get("bilingual", []):
            found = [files.get_file_from_path(each) for each in (name, pages.translated(name))]
            pages.compare(*(page and page.content_string for page in found), name)
    except build.CourseError as error:
        raise PluginError(str(error)) from None
    return files


def on_page_markdown(markdown: str, page, **_) -> str:
    """Join the lines of Chinese, which has no spaces between words."""
    is_chinese = page.file.src_uri.endswith(".zh.md")
    return pages.BREAK.sub("", markdown) if is_chinese else markdown


def on_post_page(output: str, page, **_) -> str:
    """Tell browsers, search engines and screen readers the language of a Chinese page."""
    if page.file.src_uri.endswith(".zh.md"):
        output = re.sub(r'<html lang="[^"]*"', '<html lang="zh-Hans"', output, count=1)
    return output
