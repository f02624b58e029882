"""Files: written whole or not at all, known by their checksums, and read without surprises.

Every file of the package is written by `replacing`, `write_text` or `new_folder`, which take paths
as `output_path` says. They write under
a name that nobody can guess and rename it at the end, so a symbolic link that lies in the folder
is never followed. Every file that people name is read by `read_bytes`, which refuses pipes and
devices.
"""

import codecs
import csv
import dataclasses
import errno
import glob
import gzip
import hashlib
import json
import os
import secrets
import shutil
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import filelock
import numpy as np

from keras_attention.paths import input_path, output_path

from ..errors import UserError, one_line, shown
from .bad_lines import BadLine, checked

CHECKSUMS = "CHECKSUMS"
"""The file of a folder that holds the checksums of the others: `hex  name` lines."""

MOST_JSON = 64 << 20
"""The largest JSON file of our own that is read, in bytes."""


# ---- Writing.


class NotWritten(UserError):
    """A file or folder that could not be written, and the `cause`; what was there before stays."""

    def __init__(self, path: Path | str, cause: str, advice: str = ""):
        super().__init__(f"{path} could not be written: {cause}.{advice and f' {advice}'}")
        self.cause = cause


@contextmanager
def replacing(path: Path | str, new: bool = False) -> Iterator[Path]:
    """Give a temporary path beside `path`, and rename it to `path` when the block succeeds.

    The contents reach the disk before the name does, so a kill or a power cut at any moment
    leaves either the old file or the new one. The temporary name ends as `path` does, because
    Keras chooses its format by that. With `new`, a file that came there meanwhile stays.
    """
    path = output_path(path)
    temporary = path.with_name(f".partial-{secrets.token_hex(8)}-{path.name}")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
    try:
        os.close(os.open(temporary, flags, 0o666))
    except OSError as error:
        raise NotWritten(path, error.strerror) from None
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        _put(temporary, path, new)
    except OSError as error:
        if cause := _full(error):
            raise NotWritten(path, cause, "Make room.") from None
        if path.is_dir():
            raise NotWritten(path, "it is a folder", "Move it away.") from None
        raise
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)


def _full(error: Exception) -> str | None:
    """Return the system's words for an error of a full disk, else None.

    Errors of HDF5 and TensorFlow have these words alone, no number.
    """
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        if getattr(error, "errno", None) == number or os.strerror(number) in str(error):
            return os.strerror(number)
    return None


def _put(temporary: Path, path: Path, new: bool) -> None:
    if new:
        try:
            os.link(temporary, path)  # which, unlike a rename, replaces nothing
            return
        except OSError:  # there is a file, or the file system knows no links
            refuse_existing_output(path)
    os.replace(temporary, path)


def _sync(folder: Path) -> None:
    """Make the names in `folder` durable, on systems where a folder can be opened."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def new_folder(output: Path | str, refuse: Callable[[Path], None] | None = None) -> Iterator[Path]:
    """Give a path to write a folder at, which becomes `output` as a whole or not at all.

    Where a kill left an unfinished folder behind, the next call for the same output removes it.
    `refuse` raises a UserError where something at `output` must stay: anything, if not given.
    """
    output, refuse = output_path(output), refuse or refuse_existing_output
    refuse(output)
    if not output.name:
        raise UserError(f"a new folder needs a name. Received: {output}.")
    for left in output.parent.glob(f".{glob.escape(output.name)}.*.preparing"):
        with suppress(OSError), _held(left):  # a lock of a living process is an OSError, too
            shutil.rmtree(left, ignore_errors=True)
    private = output.with_name(f".{output.name}.{secrets.token_hex(8)}.preparing")
    try:
        private.mkdir(parents=True)
        with _held(private):
            yield private / output.name
            (private / output.name).replace(output)
    except Exception as error:
        cause = _full(error)
        if cause is None and not isinstance(error, OSError):
            raise
        refuse(output)
        cause = cause or error.strerror or one_line(error)
        raise NotWritten(output, cause) from None
    finally:
        shutil.rmtree(private, ignore_errors=True)
    _sync(output.parent)


def _held(folder: Path) -> filelock.FileLock:
    """Return a lock on a folder in preparation, which ends with the process that holds it."""
    if folder.is_symlink():
        raise OSError(f"{folder} is a symbolic link")
    return filelock.FileLock(folder / "LOCK", timeout=0)


def write_text(path: Path | str, text: str, known: bool = False) -> None:
    """Write `text` as UTF-8 to `path`; `known` notes its checksum, where the folder has them."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
        if known:
            note_checksum(output_path(path), temporary)


def refuse_existing_output(path: Path | str) -> None:
    path = output_path(path)
    if os.path.lexists(path):  # an empty path is the folder that we are in
        raise UserError(f"{path} already exists. Choose another name.")


def check_new_file(path: Path | str) -> None:
    """Refuse a file that cannot be written new, before work is done for it."""
    refuse_existing_output(path)
    folder = output_path(path).parent
    if not folder.is_dir():
        raise UserError(f"{path} cannot be written: there is no folder {folder}.")


def check_picture(output: Path | str, more: Sequence[str] = ()) -> None:
    """Refuse a file that no picture can be written to; `more` are suffixes for the message."""
    from matplotlib.backend_bases import FigureCanvasBase

    check_new_file(output)
    suffixes = sorted(f".{name}" for name in FigureCanvasBase.get_supported_filetypes())
    if Path(output).suffix.lower() not in suffixes:
        accepted = ", ".join([*more, *suffixes])
        raise UserError(f"the suffix of {output} must be one of {accepted}.")


@contextmanager
def output_file(path: Path | str | None) -> Iterator[TextIO]:
    """Give a new file to write results to, whole or not at all; or standard output.

    A file whose name ends in .gz is compressed.
    """
    try:
        if path is None:
            if hasattr(sys.stdout, "reconfigure"):  # not where it is redirected in Python
                sys.stdout.reconfigure(encoding="utf-8")
            yield sys.stdout
        else:
            with replacing(path, new=True) as temporary:
                opened = gzip.open if temporary.suffix == ".gz" else open
                with opened(temporary, "wt", encoding="utf-8") as file:
                    yield file
    except UnicodeEncodeError as error:
        raise UserError(
            f"{path or 'standard output'}: a text holds {error.object[error.start]!r}, half a "
            "surrogate pair, which no UTF-8 file can hold. Mend the input."
        ) from None


# ---- Checksums.


MOST_READ = {"files": 300_000, "bytes": 1 << 36}
"""A checksum reads no more, as a folder from elsewhere may name the root of the file system."""


def checksum(path: str | os.PathLike) -> str:
    """Return the SHA-256 of a file, or of a folder's files and their names, in hexadecimal."""
    path = Path(path)
    sha, size = hashlib.sha256(), 0
    for each in _files_in(path) if path.is_dir() else [path]:
        if path.is_dir():
            sha.update(os.fsencode(each.relative_to(path)))
        with open_regular(each) as file:
            size += os.fstat(file.fileno()).st_size
            if size > MOST_READ["bytes"]:
                raise UserError(f"{path} has more than the {MOST_READ['bytes']:,} bytes of data.")
            while block := file.read(1 << 20):
                sha.update(block)
    return sha.hexdigest()


def _files_in(folder: Path) -> list[Path]:
    """Return the files of a folder at any depth, in order."""
    found = []
    for seen, path in enumerate(folder.rglob("*")):
        if seen >= MOST_READ["files"]:
            raise UserError(f"{folder} has more than {seen:,} files: it is no folder of data.")
        if path.is_file():
            found.append(path)
    return sorted(found)


def digest(value: Any) -> str:
    """Return the SHA-256 of data at hand: texts and numbers, in lists, arrays and dataclasses."""
    sha = hashlib.sha256()

    def add(value):
        if dataclasses.is_dataclass(value):
            value = vars(value)
        if isinstance(value, Mapping):
            value = [part for item in value.items() for part in item]
        if isinstance(value, (np.ndarray, np.generic)):
            value = value.tolist()
        if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            sha.update(b"%d:" % len(value))
            for each in value:
                add(each)
        else:
            sha.update(f"{value!r};".encode("utf-8", "surrogatepass"))

    add(value)
    return sha.hexdigest()


def write_checksums(folder: Path, but: Sequence[str] = ()) -> None:
    """Note the checksum of every file in a folder, at any depth, but for some names."""
    but = {CHECKSUMS, *but}
    files = sorted(each for each in folder.rglob("*") if each.is_file() and each.name not in but)
    names = {each.relative_to(folder).as_posix(): [checksum(each)] for each in files}
    _write_checksums(folder, names)


def note_checksum(path: Path, content: Path) -> None:
    """Note that `path` is about to become what `content` is, where its folder has checksums.

    Until the next note both the old and the new content count as right, so a kill between this
    note and the renaming leaves a folder that is whole.
    """
    folder = path.parent
    if not (folder / CHECKSUMS).exists():
        return
    known = known_checksums(folder)
    own = checksum(path) if path.is_file() else None
    kept = [each for each in known.get(path.name, []) if each == own]
    _write_checksums(folder, known | {path.name: [*kept, checksum(content)]})


def known_checksums(folder: Path) -> dict[str, list[str]]:
    """Return the checksums that a file may have, by its name; `{}` where none were noted."""
    path = folder / CHECKSUMS
    if not path.exists():
        return {}
    known: dict[str, list[str]] = {}
    content = read_bytes(path, MOST_JSON)
    try:
        for line in content.decode("utf-8").splitlines():
            digest, name = line.split("  ", 1)
            if len(bytes.fromhex(digest)) != 32:
                raise ValueError
            known.setdefault(name, []).append(digest)
    except ValueError:
        raise UserError(f"{path} is damaged: expected `SHA-256  name` on each line.") from None
    return known


def verify_checksum(path: Path, folder: Path | None = None) -> None:
    """Refuse a file whose content is not what its folder's checksums say.

    A file without a checksum passes.
    """
    folder = folder or path.parent
    name = path.relative_to(folder).as_posix()
    if name not in known_checksums(folder):
        return
    found = checksum(path) if path.is_file() else None
    # Read anew: a training that replaced the file meanwhile noted its checksum before.
    if found not in known_checksums(folder).get(name, []):
        raise UserError(
            f"{path} is damaged or was changed: its SHA-256 is not the one in "
            f"{folder / CHECKSUMS}. Restore the file from a copy."
        )


def _write_checksums(folder: Path, known: dict[str, list[str]]) -> None:
    lines = [f"{digest}  {name}\n" for name, digests in known.items() for digest in digests]
    write_text(folder / CHECKSUMS, "".join(lines))


# ---- Reading.


def open_regular(path: Path | str) -> BinaryIO:
    """Open a file for reading; refuse pipes and devices, which may never end."""
    path = input_path(path)
    try:
        # Without O_NONBLOCK, opening a pipe waits for its writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.") from None
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}.") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        found = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise UserError(f"Cannot read {path}: expected a file. Received: {found}.")
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path | str, limit: int) -> bytes:
    """Return the content of a file, which has at most `limit` bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise UserError(f"{path} should have at most {limit:,} bytes. Received: {size:,}.")
        try:
            return file.read()
        except OSError as error:
            raise UserError(f"Cannot read {path}: {error.strerror}.") from error


LONGEST_FIELD = 2**31 - 1
"""Of CSV; Python's own limit, 131,072 characters, is less than a long text."""
MOST_INFLATED = (64 << 20, 200)
"""A `.gz` may inflate to so many bytes, and to so many times its size beyond that."""


def lines_of(path: str | Path, encoding: str = "utf-8", keep_ends: bool = False) -> Iterator[str]:
    """Yield the lines of a text file, plain or `.gz`, one at a time, without ends if not kept.

    Only line feeds end a line (and a carriage return before one goes with it), so that files
    which are parallel by line for other programs are so here. A byte order mark is dropped. The
    encoding is one that writes a line feed as one byte, like UTF-8 and ISO 8859-1.
    """
    path, text = input_path(path), None
    try:
        with open_regular(path) as file:
            lines = _inflated(file, path) if path.suffix == ".gz" else file
            for text in decoded(lines, path, encoding, keep_ends=keep_ends):
                yield text
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror or error}.") from error
    if text is None:
        raise UserError(f"{path} is empty: expected at least one line.")


def decoded(
    lines: Iterable[bytes],
    name: Path | str,
    encoding: str = "utf-8",
    is_file: bool = True,
    keep_ends: bool = False,
) -> Iterator[str]:
    """Yield lines as text, without their ends, if not kept, and a byte order mark at the beginning.

    Where a line of a file is in another encoding, the rest is looked through for more of them; of
    what is typed or piped, no more is read.

    Raises:
        UserError: naming the lines in another encoding, or UTF-16 or UTF-32 for what is that.
    """
    head = b""

    def decode(numbered):
        nonlocal head
        number, line = numbered
        if len(head) < LONGEST_HEAD:
            head += line[:LONGEST_HEAD]
            refuse_wide(head, name)
        text = line.removesuffix(b"\n")
        end = line[len(text.removesuffix(b"\r")) :].decode("ascii") if keep_ends else ""
        return decode_line(text, name, number, encoding) + end

    def without_mark():
        for number, line in enumerate(lines):
            line = line if number else line.removeprefix(codecs.BOM_UTF8)
            if number or line:  # a mark may be all that there is
                yield line

    numbered = enumerate(without_mark(), 1)
    yield from checked(numbered, decode) if is_file else map(decode, numbered)


LONGEST_HEAD = 1024
"""How many bytes at the beginning are looked at for another encoding."""
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def refuse_wide(head: bytes, name: Path | str) -> None:
    """Refuse a text in UTF-16 or UTF-32, by the mark at its beginning or by where its zeros are."""
    if found := _wide_encoding(head):
        raise UserError(
            f"{name} is {found[:6]} text. Expected: UTF-8. Convert it with iconv -f {found} "
            "-t UTF-8."
        )


def _wide_encoding(head: bytes) -> str | None:
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    for size in (4, 2) if b"\0" in head else ():  # a space or the end of a line has one
        units = np.frombuffer(head[: len(head) // size * size], np.uint8).reshape(-1, size)
        if len(units) < 4:
            continue
        # The upper bytes of most alphabets are smaller than those of any text in UTF-8.
        small = (units < MOST_OF_UPPER_BYTES).mean(axis=0)
        if small[: size // 2].min() >= 0.5 and small[-1] <= 0.1:
            return f"UTF-{8 * size}BE"
        if small[size // 2 :].min() >= 0.5 and small[0] <= 0.1:
            return f"UTF-{8 * size}LE"
    return None


MOST_OF_UPPER_BYTES = 9
"""Below it are the control characters that no text has, and the blocks from Latin to Arabic."""


def records(
    path: str | Path, lines: Iterable[str], quoted: bool = True
) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the first line of each record, and its fields; none of an empty line.

    In CSV (`quoted`) a field in double quotes may hold commas and line feeds; TSV has no quoting.
    """
    if not quoted:
        yield from enumerate((line.split("\t") if line else [] for line in lines), 1)
        return
    csv.field_size_limit(LONGEST_FIELD)
    reader, first = csv.reader((f"{line}\n" for line in lines), strict=True), 1
    try:
        for fields in reader:
            yield first, fields
            first = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{path}, line {first}: no CSV record begins here ({error}).") from None


def _inflated(file: BinaryIO, path: Path) -> Iterator[bytes]:
    base, times = MOST_INFLATED
    size = os.fstat(file.fileno()).st_size
    left = limit = base + times * size
    try:
        with gzip.GzipFile(fileobj=file) as inflating:
            while line := inflating.readline(left + 1):
                left -= len(line)
                if left < 0:
                    raise UserError(
                        f"{path} inflates to more than {limit:,} bytes from {size:,}: it is no "
                        "text. Unpack it yourself if it is."
                    )
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is no whole gzip file ({error}).") from error


def decode_line(line: bytes, path: Path | str, number: int, encoding: str = "utf-8") -> str:
    """Return one line as text, without a carriage return at its end."""
    try:
        return line.removesuffix(b"\r").decode(encoding)
    except UnicodeDecodeError as error:
        byte = f"the byte 0x{line[error.start]:02x} in column {error.start + 1}"
        problem = f"expected {encoding.upper()} text. Received: {byte}"
        other = "UTF-16" if b"\0" in line else "LATIN1"
        advice = f"convert the file, for instance with iconv -f {other} -t UTF-8"
        raise BadLine(f"{path}, line {number}", problem, advice) from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it has {shown(repeated)} twice")
    return found


def json_object(text: str | bytes, where: str, unique: bool = False) -> dict[str, Any]:
    """Return the object that a JSON text holds; `where` names file and line for the message.

    `unique` refuses a key that an object has twice, of which only the last would count.
    """
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats if unique else None)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"{error.object[error.start]!r}, half a surrogate pair"
        raise BadLine(where, f"expected Unicode text. Received: {half}") from None
    except json.JSONDecodeError as error:
        near = shown(error.doc[max(error.pos - 20, 0) :][:60])
        problem = f"expected a JSON object ({error.msg}, column {error.colno}). Received: {near}"
        raise BadLine(where, problem) from None
    except (ValueError, RecursionError) as error:
        raise BadLine(where, f"not JSON that can be read ({one_line(error)})") from None
    if not isinstance(value, dict):
        raise BadLine(where, f"expected a JSON object. Received: {type(value).__name__}")
    return value
