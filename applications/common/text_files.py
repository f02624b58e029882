"""Lines of text that users name: read with errors that say which file and line, and written."""

import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import replacing


def read_lines(path: str | Path, encoding: str = "utf-8") -> list[str]:
    """Return the lines of a text file, plain or `.gz`, without their ends.

    Only line feeds end a line (and a carriage return before one goes with it), so that files
    which are parallel by line for other programs are so here. A byte order mark is dropped.

    Args:
        path: the file.
        encoding: one that writes a line feed as one byte, like UTF-8 and ISO 8859-1.

    Raises:
        UserError: where the file is missing, empty, in another encoding or a damaged archive.
    """
    path = Path(path)
    content = _content(path).removeprefix(b"\xef\xbb\xbf")
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if not lines:
        raise UserError(f"{path} is empty: expected one sentence a line.")
    return [decode_line(line, path, number, encoding) for number, line in enumerate(lines, 1)]


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.") from None
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}.") from error
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is no whole gzip file ({error}).") from error


def decode_line(line: bytes, path: Path | str, number: int, encoding: str = "utf-8") -> str:
    """Return one line as text, without a carriage return at its end.

    Raises:
        UserError: naming `path` and the line's `number`, where it is not in `encoding`.
    """
    try:
        return line.removesuffix(b"\r").decode(encoding)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}, line {number}: expected {encoding.upper()} text. Received: the byte "
            f"0x{line[error.start]:02x} in column {error.start + 1}; convert the file, for "
            "instance with iconv -f LATIN1 -t UTF-8."
        ) from None


@contextmanager
def output_file(path: Path | str | None) -> Iterator[TextIO]:
    """Give a file to write results to: at `path`, whole or not at all, or standard output."""
    if path is None:
        sys.stdout.reconfigure(encoding="utf-8")
        yield sys.stdout
    else:
        with replacing(Path(path)) as temporary, open(temporary, "w", encoding="utf-8") as file:
            yield file
