"""The interface of a tokenizer, and how one is kept in a folder or in a configuration."""

import abc
import base64
import binascii
import hashlib
import itertools
import json
import lzma
import os
import stat
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from keras_attention.paths import input_path, output_path

if TYPE_CHECKING:
    import tensorflow as tf

FORMAT = 1
LARGEST_VOCABULARY = 2**28  # bytes, so that a file from elsewhere cannot fill the memory

# The ids that every tokenizer of the package reserves, whatever its kind.
PAD_ID, UNK_ID, START_ID, END_ID = range(4)
SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")
"""How the special ids are shown; position is id. Text that spells one is ordinary text."""
Rules = tuple[tuple[str, str], ...]
"""Regular expressions, each with its replacement."""


class Tokenizer(abc.ABC):
    """Text to ids and back, in Python and inside a TensorFlow graph.

    The ids 0, 1, 2 and 3 are padding, unknown, start and end. `encode` never gives padding, start
    or end: "</s>" typed by a user is ordinary text. Text in any form of Unicode's letters gives the
    ids of its form C (`nfc`).
    """

    kind: ClassVar[str]
    suffix: ClassVar[str]

    @property
    @abc.abstractmethod
    def vocabulary_size(self) -> int:
        """The number of ids, the four special ones included."""

    @property
    @abc.abstractmethod
    def vocabulary(self) -> list[str]:
        """The token of each id, in the order of the ids."""

    @abc.abstractmethod
    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of each line, without start and end."""

    @abc.abstractmethod
    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each row of ids up to its first end, padding and start left out."""

    @abc.abstractmethod
    def tokens(self, line: str) -> list[str]:
        """Return the tokens of `line`, one for each id, as the text writes them."""

    @abc.abstractmethod
    def join(self, tokens: Sequence[str]) -> str:
        """Return the text that written tokens, as `tokens` gives them, stand for."""

    @abc.abstractmethod
    def in_graph(self) -> "tf.Module":
        """Return the same tokenizer as a `tf.Module`, which a SavedModel can hold.

        Its methods take and give tensors: `encode` (B,) strings to a ragged (B, None) int32,
        `decode` ragged or padded (B, L) ids to (B,) strings, `tokens` (B,) strings to ragged
        strings, and `join` ragged strings to (B,) strings.
        """

    def in_web(self) -> dict[str, Any]:
        """Return the same tokenizer as JSON types, by which a page in a browser cuts text.

        Raises:
            ValueError: where the script of the page does not know how the tokenizer cuts text.
        """
        raise ValueError(
            "A page in a browser cuts text as WordTokenizer and SentencePieceTokenizer do. "
            f"Received: {type(self).__name__}"
        )

    @abc.abstractmethod
    def _content(self) -> bytes:
        """Return the content of the vocabulary's file."""

    def _options(self) -> dict:
        """Return what the vocabulary's file does not say, as JSON types."""
        return {}

    @classmethod
    @abc.abstractmethod
    def _restore(cls, content: bytes, options: dict) -> "Tokenizer":
        """Return the tokenizer that `_content` and `_options` describe."""

    def get_config(self) -> dict[str, Any]:
        """Return the whole tokenizer as JSON types, which `tokenizer_from_config` reads back."""
        content = base64.b64encode(lzma.compress(self._content())).decode()
        return {"kind": self.kind, "vocabulary": content, **self._options()}

    def save(self, folder: str | os.PathLike, name: str = "tokenizer") -> None:
        """Write a vocabulary file and a JSON file called `name` into a folder, made if missing."""
        folder, content = output_path(folder), self._content()
        description = {
            "format": FORMAT,
            "kind": self.kind,
            "vocabulary_size": self.vocabulary_size,
            "sha256": hashlib.sha256(content).hexdigest(),
            **self._options(),
        }
        _write_atomically(folder / f"{name}{self.suffix}", content)
        text = json.dumps(description, indent=2) + "\n"
        _write_atomically(folder / f"{name}.json", text.encode())


def load_tokenizer(folder: str | os.PathLike, name: str = "tokenizer") -> Tokenizer:
    """Return the tokenizer that `Tokenizer.save` left in `folder` under `name`.

    Raises:
        ValueError: where a file is missing, damaged, altered since it was saved, or written by a
            newer version of the package.

    Example:

    >>> from keras_attention.applications.text import WordTokenizer
    >>> WordTokenizer(["the", "cat"]).save("run", "source")
    >>> load_tokenizer("run", "source").vocabulary[4:]
    ['the', 'cat']
    """
    folder = input_path(folder)
    path = folder / f"{name}.json"
    content = _read(path)
    try:
        description = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: damaged, expected a JSON object ({error})") from error
    if not isinstance(description, dict):
        raise ValueError(f"{path}: damaged, expected a JSON object. Received: {description!r}")
    if not isinstance(description.get("format"), int) or description["format"] > FORMAT:
        raise ValueError(
            f"{path}: expected a tokenizer of format {FORMAT} or older. Received: format "
            f"{description.get('format')!r}; a newer keras-attention reads it."
        )
    kind = _kind(description, path)
    vocabulary = folder / f"{name}{kind.suffix}"
    content = _read(vocabulary)
    if hashlib.sha256(content).hexdigest() != description.get("sha256"):
        raise ValueError(
            f"{vocabulary}: not the vocabulary that was saved with {path.name} (its checksum "
            "differs); a model's ids mean nothing with another vocabulary. Restore the file."
        )
    try:
        return kind._restore(content, description)
    except (KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: damaged, or its vocabulary is ({error!r}).") from None


def tokenizer_from_config(config: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer whose `Tokenizer.get_config` returned `config`.

    Raises:
        ValueError: where the description names no kind of tokenizer or its vocabulary is damaged.

    Example:

    >>> from keras_attention.applications.text import WordTokenizer
    >>> config = WordTokenizer(["the", "cat"]).get_config()
    >>> tokenizer_from_config(config).vocabulary[4:]
    ['the', 'cat']
    """
    kind = _kind(config, "The configuration")
    try:
        packed = base64.b64decode(config["vocabulary"], validate=True)
        unpacker = lzma.LZMADecompressor()
        content = unpacker.decompress(packed, LARGEST_VOCABULARY)
        if not unpacker.eof:
            raise lzma.LZMAError(f"more than {LARGEST_VOCABULARY:,} bytes, or cut")
        return kind._restore(content, dict(config))
    except (KeyError, TypeError, UnicodeDecodeError, binascii.Error, lzma.LZMAError) as error:
        raise ValueError(
            f"The configuration of a tokenizer of kind {kind.kind} is damaged. Received: {error!r}"
        ) from None


def until_end(ids: Sequence[Sequence[int]], vocabulary_size: int) -> list[list[int]]:
    """Return the ids of each row before its first end, without padding and start."""
    before_end = (itertools.takewhile(lambda token: token != END_ID, row) for row in ids)
    rows = [[int(i) for i in row if i not in (PAD_ID, START_ID)] for row in before_end]
    wrong = [token for row in rows for token in row if not 0 <= token < vocabulary_size]
    if wrong:
        raise ValueError(
            "Expected ids of at least 0 and below the vocabulary's size "
            f"{vocabulary_size}. Received: {wrong[0]}"
        )
    return rows


def check_lines(lines: Iterable[str], where: str) -> None:
    """Raise a ValueError for a single string where a list of lines is wanted."""
    if isinstance(lines, str | bytes):
        raise ValueError(
            f"`{where}` wants a list of lines. Received: one {type(lines).__name__}; "
            "put it in a list."
        )


def _kind(description: Mapping[str, Any], where: Path | str) -> type[Tokenizer]:
    kinds = {kind.kind: kind for kind in Tokenizer.__subclasses__() if hasattr(kind, "kind")}
    kind = kinds.get(description.get("kind", ""))
    if kind is None:
        raise ValueError(
            f"{where}: expected a tokenizer of kind {sorted(kinds)}. "
            f"Received: {description.get('kind')!r}"
        )
    return kind


def _read(path: Path) -> bytes:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # a pipe or a device may never end
            raise ValueError(f"Cannot read the tokenizer's file {path}: it is no regular file.")
        if found.st_size > LARGEST_VOCABULARY:
            raise ValueError(
                f"Cannot read the tokenizer's file {path}: expected at most "
                f"{LARGEST_VOCABULARY:,} bytes. Received: {found.st_size:,}"
            )
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"Cannot read the tokenizer's file {path}: {error.strerror}") from error


def _write_atomically(path: Path, content: bytes) -> None:
    """Write through another file in the folder: a reader finds the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
