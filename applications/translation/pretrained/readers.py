"""The formats of translators that others have trained, found by the files of a folder."""

from pathlib import Path
from types import ModuleType

from . import ctranslate2, hugging_face, marian

READERS: tuple[ModuleType, ...] = (hugging_face, ctranslate2, marian)


def reader_of(folder: Path) -> ModuleType | None:
    """Return the reader of the format that a folder holds; None where it holds none of them."""
    return next((each for each in READERS if each.matches(folder)), None)
