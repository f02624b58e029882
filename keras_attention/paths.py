"""Paths that users give: `~` is their home folder, and an address such as `gs://...` is no path.

Every function of the package that writes takes its path from `output_path`, and every one that
reads from `input_path`.
"""

import os
import re
from pathlib import Path

# A `Path` writes the two slashes of an address as one. A drive has one letter.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def input_path(path: str | os.PathLike) -> Path:
    """Return a path to read from, with `~` as the user's home folder.

    Raises:
        ValueError: If it is an address, such as `s3://bucket/file`, and no file of that name is
            there.
    """
    given = os.path.expanduser(os.fspath(path))
    if is_address(given) and not os.path.exists(given):
        raise ValueError(
            "Expected a path on this machine: copy the file or folder here first, with a tool of "
            f"that storage. Received: {os.fspath(path)}"
        )
    return Path(given)


def output_path(path: str | os.PathLike, is_preset: bool = False) -> Path:
    """Return a path to write to, with `~` as the user's home folder.

    Args:
        path: The path.
        is_preset: Whether a preset is written there, which KerasHub can upload.

    Raises:
        ValueError: If it is an address, such as `gs://bucket/file`: nothing is written there, and
            a local folder of that name would look as if it were.
    """
    given = os.path.expanduser(os.fspath(path))
    if is_address(given):
        way = "copy it from there with a tool of that storage"
        if is_preset:
            way = (
                "upload it from there with `keras_hub.upload_preset('hf://user/name', folder)` "
                "('kaggle://...' likewise), or with a tool of the storage"
            )
        raise ValueError(
            f"Expected an output on this machine: write to a path here, and {way}. "
            f"Received: {os.fspath(path)}"
        )
    return Path(given)


def is_address(path: str | os.PathLike) -> bool:
    """Return whether a path begins with a scheme, as `hf://user/name` does."""
    return _ADDRESS.match(os.fspath(path)) is not None
