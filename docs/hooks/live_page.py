"""Makes the live example of the page, from the package's own preset, at each build."""

import os
from functools import cache

from mkdocs.structure.files import File, Files

PLACE = "live/dates.html"
LINK = f"[Open it by itself]({PLACE}){{ target=_blank }}"
EXAMPLES = ("den 3. Mai 1984", "4 juin 1999")


@cache
def content() -> str:
    """Return the page with what the preset `dates` answers to the examples."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from keras_attention.applications.show.explanation import page
    from keras_attention.applications.translation import Translator

    translator = Translator.from_preset("dates")
    return page([translator.explain(text, beam_size=3) for text in EXAMPLES])


def on_files(files: Files, config) -> Files:
    """Add the page to the site."""
    files.append(File.generated(config, PLACE, content=content()))
    return files


def on_page_markdown(markdown: str, **_) -> str:
    """Put a link under the frame that shows the page. The file is there only once it is built."""
    frame, end, rest = markdown.partition("</iframe>")
    return f"{frame}{end}\n\n{LINK}{rest}" if PLACE in frame and end else markdown
