"""Files fetched by URL into a cache, whole and with the right checksum or not at all.

pooch writes a download under another name and renames it once its checksum is right. This module
says where the cache is, and turns pooch's errors into one line.
"""

import os
import sys
import urllib.parse
from pathlib import Path

from ..errors import UserError, one_line, say
from .files import checksum

TIMEOUT = 30.0
"""Seconds without a byte from the server after which it counts as gone."""


def cache_folder() -> Path:
    """Return where downloads are kept: $KERAS_ATTENTION_CACHE, or a folder of Keras' home."""
    own = os.environ.get("KERAS_ATTENTION_CACHE")
    home = os.environ.get("KERAS_HOME") or "~/.keras"
    return Path(own or f"{home}/keras_attention").expanduser()


def fetch(url: str, sha256: str, subfolder: str = "") -> Path:
    """Return the path of the file at `url`, downloaded unless the cache has it.

    Its content has the checksum `sha256`. The `subfolder` of the cache is for data sets whose files
    have common names. Another process that fetches the same file does no harm; a cached file whose
    checksum is wrong is named on standard error and fetched again; an error leaves the cache as it
    was.
    """
    import pooch
    import requests

    name = Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path)).name
    if not name:
        raise UserError(f"Expected a URL that ends in a file's name. Received: {url!r}")
    path = cache_folder() / subfolder / name
    if path.is_file():
        if (found := checksum(path)) == sha256:
            return path
        say(f"{path}: damaged or out of date (SHA-256 {found}, expected {sha256}); fetching again")
    pooch.get_logger().setLevel("WARNING")

    def downloader(url, output, _):
        headers = {"Accept-Encoding": "identity"}  # a .gz stays one
        # pooch's own downloader leaves the connection open where the download breaks off.
        with requests.get(url, stream=True, timeout=TIMEOUT, headers=headers) as response:
            response.raise_for_status()
            size = int(response.headers.get("Content-Length", 0))
            is_shown = size and sys.stderr.isatty()
            with open(output, "wb") as file:
                for chunk in response.iter_content(1 << 16):
                    file.write(chunk)
                    if is_shown:
                        say(f"\r{file.tell() / size:.0%} of {size:,} bytes", end="")
            if is_shown:
                say()

    say(f"Fetching {url}")
    try:
        pooch.retrieve(url, f"sha256:{sha256}", path.name, path.parent, downloader=downloader)
    except requests.exceptions.HTTPError as error:
        answer = f"{error.response.status_code} {error.response.reason}"
        raise UserError(f"{url}: the server refused ({answer})") from error
    except requests.exceptions.RequestException as error:
        began = isinstance(error, requests.exceptions.ChunkedEncodingError)
        began = began or "Read timed out" in str(error)
        what = "the download broke off" if began else "the server cannot be reached"
        raise UserError(f"{url}: {what} ({one_line(error)}); nothing was kept") from error
    except OSError as error:
        raise UserError(f"Cannot write the download {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{url}: {one_line(error)}") from error
    return path
