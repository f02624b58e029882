"""Where the tests find real data, which is never shipped with the package."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def data_folder(name: str) -> Path:
    """Return the folder of the named data set, or skip the test with the reason."""
    root = Path(os.environ.get("KERAS_ATTENTION_DATA", REPOSITORY.parent / "shared" / "data"))
    folder = root / name
    if not folder.is_dir():
        pytest.skip(f"real data absent: no folder {folder} (set KERAS_ATTENTION_DATA)")
    return folder
