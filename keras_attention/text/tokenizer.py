"""The interface of a tokenizer, and how one is kept in a folder."""

import abc
import base64
import json
import lzma
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from keras_attention.text.files import sha256, write_atomically
from keras_attention.text.special import END_ID, PAD_ID, START_ID

if TYPE_CHECKING:
    import tensorflow as tf

FORMAT = 1


class Tokenizer(abc.ABC):
    """Text to ids and back, in Python and inside a TensorFlow graph.

    The ids 0, 1, 2 and 3 are padding, unknown, start and end in every tokenizer.
    `encode` never gives padding, start or end, whatever the text spells: "</s>" typed by a
    user is ordinary text.

    A saved tokenizer is two files: the vocabulary (`suffix` says which kind) and a small JSON
    file with the options and the checksum of the vocabulary. The JSON file is written last, so
    that a tokenizer is there as a whole or not at all.
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
        """Return the written tokens of `line`, one for each id that `encode` gives.

        A token that the vocabulary lacks is shown as the text writes it.
        """

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

    @abc.abstractmethod
    def _content(self) -> bytes:
        """Return the content of the vocabulary's file."""

    @abc.abstractmethod
    def _options(self) -> dict:
        """Return what the vocabulary's file does not say, as JSON types."""

    @classmethod
    @abc.abstractmethod
    def _restore(cls, content: bytes, options: dict) -> "Tokenizer":
        """Return the tokenizer that `_content` and `_options` describe."""

    def get_config(self) -> dict[str, Any]:
        """Return the whole tokenizer as JSON types, which `tokenizer_from_config` reads back."""
        content = base64.b64encode(lzma.compress(self._content())).decode()
        return {"kind": self.kind, "vocabulary": content, **self._options()}

    def save(self, folder: str | os.PathLike, name: str = "tokenizer") -> None:
        """Write the tokenizer into `folder` under `name`.

        Args:
            folder: where to write; made when missing.
            name: the name of the files, without their endings.
        """
        content = self._content()
        description = {
            "format": FORMAT,
            "kind": self.kind,
            "vocabulary_size": self.vocabulary_size,
            "sha256": sha256(content),
            **self._options(),
        }
        write_atomically(Path(folder) / f"{name}{self.suffix}", content)
        text = json.dumps(description, indent=2) + "\n"
        write_atomically(Path(folder) / f"{name}.json", text.encode())


def until_end(ids: Sequence[int]) -> list[int]:
    """Return the ids before the first end, without padding and start."""
    kept = []
    for token in ids:
        if token == END_ID:
            break
        if token not in (PAD_ID, START_ID):
            kept.append(int(token))
    return kept


def check_lines(lines: Sequence[str], where: str) -> None:
    """Refuse a single string where a list of lines is wanted."""
    if isinstance(lines, str | bytes):
        raise ValueError(
            f"`{where}` wants a list of lines. Received: one {type(lines).__name__}; "
            "put it in a list."
        )
