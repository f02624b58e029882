"""Reading a saved tokenizer of any kind."""

import base64
import binascii
import json
import lzma
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_attention.text.files import sha256
from keras_attention.text.sentencepiece_tokenizer import SentencePieceTokenizer
from keras_attention.text.tokenizer import FORMAT, Tokenizer
from keras_attention.text.word_tokenizer import WordTokenizer

LARGEST_VOCABULARY = 2**28
"""Bytes that a vocabulary may have, so that a file from elsewhere cannot fill the memory."""
KINDS = {kind.kind: kind for kind in (SentencePieceTokenizer, WordTokenizer)}


def load_tokenizer(folder: str | os.PathLike, name: str = "tokenizer") -> Tokenizer:
    """Return the tokenizer that `Tokenizer.save` left in `folder` under `name`.

    Args:
        folder: the folder that was given to `save`.
        name: the name that was given to `save`.

    Returns:
        A tokenizer of the class that was saved.

    Raises:
        ValueError: where a file is missing, damaged, altered since it was saved, or written by a
            newer version of the package.

    Example:

    ```python
    tokenizer = WordTokenizer.train(["the cat", "the dog"], vocabulary_size=20)
    tokenizer.save("run", "source")
    assert load_tokenizer("run", "source").vocabulary_size == tokenizer.vocabulary_size
    ```
    """
    path = Path(folder) / f"{name}.json"
    description = _description(path)
    kind = _kind(description, path)
    vocabulary = Path(folder) / f"{name}{kind.suffix}"
    content = _read(vocabulary)
    if sha256(content) != description.get("sha256"):
        raise ValueError(
            f"{vocabulary}: not the vocabulary that was saved with {path.name} (its checksum "
            "differs); a model's ids mean nothing with another vocabulary. Restore the file."
        )
    return kind._restore(content, description)


def tokenizer_from_config(config: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer that `Tokenizer.get_config` described.

    Args:
        config: what `get_config` returned.

    Returns:
        A tokenizer of the same class, with the same vocabulary and options.

    Raises:
        ValueError: where the description names no kind of tokenizer or its vocabulary is damaged.

    Example:

    ```python
    tokenizer = WordTokenizer.train(["the cat", "the dog"], vocabulary_size=20)
    assert tokenizer_from_config(tokenizer.get_config()).vocabulary == tokenizer.vocabulary
    ```
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


def _kind(description: Mapping[str, Any], where: Path | str) -> type[Tokenizer]:
    kind = KINDS.get(description.get("kind"))
    if kind is None:
        raise ValueError(
            f"{where}: expected a tokenizer of kind {sorted(KINDS)}. "
            f"Received: {description.get('kind')!r}"
        )
    return kind


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"Cannot read the tokenizer's file {path}: {error.strerror}") from error


def _description(path: Path) -> dict:
    try:
        description = json.loads(_read(path))
    except ValueError as error:
        if str(path) in str(error):
            raise
        raise ValueError(f"{path}: damaged, expected a JSON object ({error})") from error
    if not isinstance(description, dict):
        raise ValueError(f"{path}: damaged, expected a JSON object. Received: {description!r}")
    if not isinstance(description.get("format"), int) or description["format"] > FORMAT:
        raise ValueError(
            f"{path}: expected a tokenizer of format {FORMAT} or older. Received: format "
            f"{description.get('format')!r}; a newer keras-attention reads it."
        )
    return description
