"""Lets the search rank the pages that a user reads before records of measurements and decisions."""

import re

RECORDS = re.compile(r"^(lab/|adr/)")
BOOST = 0.1
"""Of a record; other pages have 1. A word in a heading counts far more than one in the text, so a
heading such as "Alignment error rates" came first for "learning rate"."""


def on_page_markdown(markdown: str, page, **_) -> None:
    """Lower the rank of a record, unless the page says a rank itself."""
    if RECORDS.match(page.file.src_uri):
        page.meta.setdefault("search", {}).setdefault("boost", BOOST)
