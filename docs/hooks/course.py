"""Puts the course into the site; the build fails where a page lacks one of its two languages."""

import os
import re
import sys
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.utils import meta

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs import translation  # noqa: E402
from docs.course import build, pages  # noqa: E402

LANGUAGES = {"en": "[English]({}){{ .language }}", "zh": "[中文]({}){{ .language }}"}
whole: dict[str, str] = {}
"""The texts of the bilingual pages, by their files."""


def on_files(files: Files, config) -> Files:
    """Add the pages and notebooks of all lectures; look at the translations of the other pages."""
    # In a workflow of GitHub the notebooks are those of the repository that it runs in.
    repository = config.extra.get("repository") or os.environ.get("GITHUB_REPOSITORY", "")
    whole.clear()
    try:
        for path in build.sources():
            for language in build.LANGUAGES:
                page = pages.page(path, language, repository)
                notebook = pages.notebook(path, language, repository, on_site=True)
                for name, content in (
                    (pages.page_name(path, language), page),
                    (pages.notebook_name(path, language), notebook),
                ):
                    if old := files.get_file_from_path(f"course/{name}"):
                        files.remove(old)
                    files.append(File.generated(config, f"course/{name}", content=content))
        names = list(files.src_uris)
        for name in translation.bilingual(config.extra.get("bilingual", []), names):
            whole.update(_both(name, files, names))
        for path in build.sources():
            name = f"course/{pages.page_name(path, 'en')}"
            translation.check_links(pages.page(path, "zh"), name, names)
    except build.CourseError as error:
        raise PluginError(str(error)) from None
    return files


def _both(name: str, files: Files, names: list[str]) -> dict[str, str]:
    found = [files.get_file_from_path(each) for each in (name, translation.translated(name))]
    # Without what stands before the title for the theme.
    english, chinese = (file and meta.get_data(file.content_string)[0] for file in found)
    chinese = translation.compare(english, chinese, name)
    translation.check_links(chinese, name, names)
    return {name: english, translation.translated(name): translation.with_anchors(english, chinese)}


def on_page_markdown(markdown: str, page, **_) -> str:
    """Complete a bilingual page; join the lines of Chinese, which has no spaces between words."""
    name = page.file.src_uri
    is_chinese = name.endswith(".zh.md")
    if name in whole:
        other = name.replace(".zh.md", ".md") if is_chinese else translation.translated(name)
        other = other.rsplit("/", 1)[-1]
        markdown = whole[name]
        if other not in translation.links(markdown):
            title, _, rest = markdown.partition("\n")
            link = LANGUAGES["en" if is_chinese else "zh"].format(other)
            markdown = f"{title}\n\n{link}\n{rest}"
    return translation.BREAK.sub("", markdown) if is_chinese else markdown


def on_post_page(output: str, page, **_) -> str:
    """Tell browsers, search engines and screen readers the language of a Chinese page."""
    if page.file.src_uri.endswith(".zh.md"):
        output = re.sub(r'<html lang="[^"]*"', '<html lang="zh-Hans"', output, count=1)
    return output
