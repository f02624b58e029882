"""Translators that others have trained: each format in a file of its own, found by its files."""

from pathlib import Path
from types import ModuleType

from . import marian

READERS: tuple[ModuleType, ...] = (marian,)


def reader_of(folder: Path) -> ModuleType | None:
    """Return the reader of the format that a folder holds; None where it holds none of them."""
    return next((each for each in READERS if each.matches(folder)), None)
