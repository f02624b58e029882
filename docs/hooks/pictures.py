"""Draws the pictures of the pages with the package's own layers when the site is built."""

import os
import sys
from functools import cache
from pathlib import Path

from mkdocs.structure.files import File, Files

PICTURES = Path(__file__).resolve().parent.parent / "pictures"
sys.path.insert(0, str(PICTURES.parent.parent))


@cache
def draw() -> dict[str, bytes]:
    """Return the PNG of every picture by its name."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from docs.pictures import draw_all

    return draw_all()


def on_files(files: Files, config) -> Files:
    """Add the pictures to the site."""
    for name, png in draw().items():
        files.append(File.generated(config, f"pictures/{name}.png", content=png))
    return files
