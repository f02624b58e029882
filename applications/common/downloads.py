"""Files fetched by URL into a cache, whole and with the right checksum or not at all.

`keras.utils.get_file` would do but for three things: it writes under the final name while it
downloads, so that a killed process leaves a part there and other processes read it; a file whose
checksum is wrong stays there too; and a server that falls silent is waited for without end.
"""

import contextlib
import hashlib
import http.client
import os
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import keras

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.messages import say

TIMEOUT = 30.0
"""Seconds without a byte from the server after which it counts as gone."""

_CHUNK = 1 << 16


def cache_folder() -> Path:
    """Return where downloads are kept.

    That is the environment variable KERAS_ATTENTION_CACHE, or the folder `keras_attention` of
    Keras' home (KERAS_HOME, or `~/.keras`).
    """
    own = os.environ.get("KERAS_ATTENTION_CACHE")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser() / "keras_attention"


def fetch(
    url: str,
    sha256: str,
    subfolder: str = "",
    folder: str | os.PathLike | None = None,
    timeout: float = TIMEOUT,
) -> Path:
    """Return the path of the file at `url`, downloaded unless the cache has it.

    The download goes to a temporary name beside the final one, which it gets only when its
    checksum is right; another process that fetches the same file does no harm. A cached file
    whose checksum is wrong is named on standard error and fetched again.

    Args:
        url: what to fetch; the last part of its path names the file.
        sha256: the checksum that the content must have, in hexadecimal.
        subfolder: a folder inside the cache, for data sets whose files have common names.
        folder: the cache, `cache_folder()` when not given.
        timeout: seconds without a byte from the server after which to give up.

    Returns:
        The path of the whole file.

    Raises:
        UserError: where the server cannot be reached or refuses, the download is cut short, or
            its checksum is another. The message names the URL; the cache is as it was before.
    """
    path = Path(cache_folder() if folder is None else folder) / subfolder / _name(url)
    if path.is_file():
        found = checksum(path)
        if found == sha256:
            return path
        say(f"{path}: damaged or out of date (SHA-256 {found}, expected {sha256}); fetching again")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _temporary(path) as part:
            received = _download(url, part, timeout)
            if received != sha256:
                raise UserError(
                    f"{url}: expected a file with SHA-256 {sha256}. Received: {received}; nothing "
                    "was kept. It was altered on the way or replaced at its source."
                )
            os.replace(part, path)
    except OSError as error:
        raise UserError(f"Cannot write the download {path}: {error.strerror or error}") from error
    return path


def checksum(path: str | os.PathLike) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _name(url: str) -> str:
    name = Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path)).name
    if not name:
        raise UserError(f"Expected a URL that ends in a file's name. Received: {url!r}")
    return name


@contextlib.contextmanager
def _temporary(path: Path):
    """Give a new name beside `path`, and remove what is left there at the end."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _download(url: str, path: Path, timeout: float) -> str:
    """Write what `url` gives to `path`, and return its SHA-256."""
    try:
        with urllib.request.urlopen(url, timeout=timeout) as response, open(path, "wb") as file:
            return _copy(response, file, url)
    except urllib.error.HTTPError as error:
        error.close()
        raise UserError(f"{url}: the server refused ({error.code} {error.reason})") from error
    except urllib.error.URLError as error:
        raise UserError(f"{url}: the server cannot be reached ({error.reason})") from error
    except (TimeoutError, ConnectionError, http.client.HTTPException) as error:
        raise UserError(
            f"{url}: the download broke off ({error or type(error).__name__}); nothing was kept"
        ) from error


def _copy(response, file, url: str) -> str:
    expected = response.headers.get("Content-Length")
    expected = None if expected is None else int(expected)
    say(f"Fetching {url}")
    progress = keras.utils.Progbar(expected) if sys.stderr.isatty() and expected else None
    digest = hashlib.sha256()
    size = 0
    while chunk := response.read(_CHUNK):
        file.write(chunk)
        digest.update(chunk)
        size += len(chunk)
        if progress:
            progress.update(min(size, expected))
    if expected is not None and size != expected:
        raise UserError(
            f"{url}: the download broke off (expected {expected} bytes). Received: {size}; "
            "nothing was kept"
        )
    return digest.hexdigest()
