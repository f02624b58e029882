"""Refuses to build the pages with pictures that were drawn by other code than there is now."""

import sys
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from docs.pictures.kept import PicturesError, check_drawn  # noqa: E402


def on_files(files: Files, config) -> Files:
    """Look whether the pictures are there, drawn by the code that there is."""
    try:
        check_drawn()
    except PicturesError as error:
        raise PluginError(str(error)) from None
    return files
