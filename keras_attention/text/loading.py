"""Reading a saved tokenizer of any kind."""

import json
import os
from pathlib import Path

from keras_attention.text.files import sha256
from keras_attention.text.sentencepiece_tokenizer import SentencePieceTokenizer
from keras_attention.text.tokenizer import FORMAT, Tokenizer
from keras_attention.text.word_tokenizer import WordTokenizer

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
    kind = KINDS.get(description.get("kind"))
    if kind is None:
        raise ValueError(
            f"{path}: expected a tokenizer of kind {sorted(KINDS)}. "
            f"Received: {description.get('kind')!r}"
        )
    vocabulary = Path(folder) / f"{name}{kind.suffix}"
    content = _read(vocabulary)
    if sha256(content) != description.get("sha256"):
        raise ValueError(
            f"{vocabulary}: not the vocabulary that was saved with {path.name} (its checksum "
            "differs); a model's ids mean nothing with another vocabulary. Restore the file."
        )
    return kind._restore(content, description)


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
