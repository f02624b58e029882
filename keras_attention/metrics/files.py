"""Reading the files that metrics compare with."""

import os
import stat
from pathlib import Path


def read_regular(path: str | os.PathLike) -> bytes:
    """Return the content of a file; refuse a pipe or a device, which may never end."""
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # reading a folder says what it is
        raise ValueError(f"Cannot read {path}: expected a file. Received: a pipe or a device.")
    return Path(path).read_bytes()
