"""Files of named arrays, which are checked against their size before anything is read."""

import abc
import math
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError, one_line
from .files import open_regular

MOST_TENSORS = 100_000
LONGEST_NAME = 4096
MOST_AXES = 8
LARGEST_INFLATION = 4
"""A compressed file may hold so many times its own size."""


class Tensors(abc.ABC):
    """Named arrays of a file: their shapes are known at once, an array is made when it is read.

    Args:
        path: the file.
    """

    def __init__(self, path: Path):
        self.path = path
        self.shapes: dict[str, tuple[int, ...]] = {}

    @abc.abstractmethod
    def _read(self, name: str) -> np.ndarray:
        """Return an array as the file holds it."""

    def read(self, name: str) -> np.ndarray:
        """Return an array of numbers in float32; refuse one with numbers that are not finite."""
        with np.errstate(over="ignore", invalid="ignore"):  # which is refused below
            array = np.asarray(self._read(name))
            if array.dtype.kind not in "fiu":
                raise self.damaged(f"{name} holds {array.dtype}, which are no numbers")
            array = array.astype("float32")
        if not np.isfinite(array).all():
            raise self.damaged(f"{name} holds numbers that are NaN or infinite")
        return array

    def read_integers(self, name: str) -> np.ndarray:
        """Return an array of integers in int64."""
        array = np.asarray(self._read(name))
        if array.dtype.kind not in "iu":
            raise self.damaged(f"{name} holds {array.dtype}, which are no integers")
        return array.astype("int64")

    def text(self, name: str) -> str:
        """Return the text that an array of bytes holds, up to a zero."""
        array = np.asarray(self._read(name))
        if array.dtype.itemsize != 1:
            raise self.damaged(f"{name} holds {array.dtype} in place of bytes")
        try:
            return array.tobytes().split(b"\0")[0].decode("utf-8")
        except UnicodeDecodeError:
            raise self.damaged(f"{name} is no UTF-8") from None

    def note(self, name: str, shape: tuple[int, ...]) -> None:
        """Take up a name and its shape, which has to be checked against the file already."""
        if name in self.shapes:
            raise self.damaged(f"it has {name!r} twice")
        if len(self.shapes) >= MOST_TENSORS:
            raise self.damaged(f"it has more than {MOST_TENSORS:,} arrays")
        self.shapes[name] = shape

    def check_numbers(self, kinds: Iterable[str]) -> None:
        """Refuse a file with both of the types of 16 bits, as a model has one of them."""
        if {"<f2", "<u2"} <= set(kinds):
            raise self.damaged("it holds both float16 and bfloat16")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn what a library raises for a damaged file into one line that names it."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:  # an OSError, too: of a position before the file's beginning
            raise self.damaged(f"{type(error).__name__}: {one_line(error)[:120]}") from None

    def damaged(self, cause: str) -> UserError:
        return UserError(f"{self.path} is damaged, or of another format ({cause}).")


class Buffer:
    """A file in memory; a read beyond its end is refused.

    Args:
        path: the file.
    """

    def __init__(self, path: Path):
        self.path = path
        with open_regular(path) as file:
            self.content = memoryview(file.read())
        self.position = 0

    def take(self, count: int) -> memoryview:
        """Return the next bytes."""
        left = len(self.content) - self.position
        if not 0 <= count <= left:
            raise UserError(
                f"{self.path} is damaged, or of another format (it says that {count:,} bytes "
                f"follow at {self.position:,}, and {left:,} do)."
            )
        self.position += count
        return self.content[self.position - count : self.position]

    def end(self) -> None:
        """Refuse bytes after the last that were read."""
        if left := len(self.content) - self.position:
            raise UserError(
                f"{self.path} is damaged, or of another format ({left:,} bytes follow its end)."
            )

    def numbers(self, count: int, dtype: str) -> np.ndarray:
        """Return the next numbers, little-endian."""
        size = np.dtype(dtype).itemsize
        return np.frombuffer(self.take(int(count) * size), dtype)

    def number(self, dtype: str = "<u8") -> int:
        """Return the next number."""
        return int(self.numbers(1, dtype)[0])

    def string(self, count: int) -> str:
        """Return the next bytes as a text, without a zero at the end."""
        raw = bytes(self.take(count))
        try:
            return raw.removesuffix(b"\0").decode("utf-8")
        except UnicodeDecodeError:
            raise UserError(
                f"{self.path} is damaged, or of another format ({raw[:40]!r})."
            ) from None


class NpzTensors(Tensors):
    """NumPy's `.npz`; nothing in it is unpickled."""

    def __init__(self, path: Path):
        super().__init__(path)
        limit = LARGEST_INFLATION * path.stat().st_size
        open_regular(path).close()
        with self.reading(), zipfile.ZipFile(path) as file:
            sizes = {each.filename: each.file_size for each in file.infolist()}
            for name, size in sizes.items():
                limit -= size
                if limit < 0:
                    raise self.damaged("it holds many times its own size")
                with file.open(name) as entry:
                    shape, dtype = _npy_header(entry)
                if dtype.hasobject:
                    raise self.damaged(f"{name} holds Python objects, which are never unpickled")
                if math.prod(shape) * dtype.itemsize > size:
                    raise self.damaged(f"{name} is shorter than it says")
                self.note(name.removesuffix(".npy"), shape)

    def _read(self, name: str) -> np.ndarray:
        with self.reading(), np.load(self.path, allow_pickle=False) as file:
            return file[name]


def _npy_header(file: Any) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0}
    read[(2, 0)] = np.lib.format.read_array_header_2_0
    shape, _, dtype = read[version](file)
    return shape, dtype
