"""Writing files so that a reader finds the old content or the new, never a part."""

import hashlib
import os
import tempfile
from pathlib import Path


def write_atomically(path: str | os.PathLike, content: bytes) -> None:
    """Write `content` to `path` through a temporary file in the same folder.

    Args:
        path: the file to write; its folder is made when missing.
        content: the bytes of the whole file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp's 0600 would hide it from colleagues
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def sha256(content: bytes) -> str:
    """Return the SHA-256 of `content` in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
