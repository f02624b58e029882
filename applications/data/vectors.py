"""Pretrained vectors of words: their files, and the vectors that a training starts from."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import UserError, counted, say
from ..store.files import lines_of, verify_checksum
from ..text import SPECIAL_TOKENS, WordTokenizer, nfc

JOINER = "￭"
FILE = "vectors.npy"
"""The vectors that training starts from, in a run folder."""


@dataclass(frozen=True)
class VectorFile:
    """The vectors of a file by their words, in its order, and how many lines were left out."""

    path: str
    vectors: dict[str, np.ndarray]
    broken: int
    """Lines without a word and as many numbers as the others have."""
    first_broken: int
    """The first such line, from 1; 0 where there is none."""
    repeated: int
    """Lines whose word came before."""

    def __str__(self) -> str:
        broken = f"broken lines left out (first: line {self.first_broken})"
        counts = {broken: self.broken, "words that came before left out": self.repeated}
        return counted(f"{self.path}: {len(self.vectors):,} vectors", counts)


def read_vectors(path: str | os.PathLike, size: int) -> VectorFile:
    """Read vectors in text form: a word and its numbers on each line, spaces or tabs between.

    A first line of two whole numbers, as word2vec writes it, is passed over.

    Args:
        path: the file, plain or .gz.
        size: how many numbers a vector must have.

    Raises:
        UserError: if there is no such file, or its vectors have another size.
    """
    lines = list(lines_of(path))
    header = lines[0].split()
    skipped = int(len(header) == 2 and all(word.isdigit() for word in header))
    vectors: dict[str, np.ndarray] = {}
    broken, repeated, widths = [], 0, Counter()
    for number, line in enumerate(lines[skipped:], skipped + 1):
        word, *numbers = nfc(line).replace("\t", " ").rstrip(" ").split(" ")
        try:
            vector = np.array(numbers, "float32")
        except ValueError:
            vector = np.full(size, np.nan, "float32")
        else:
            widths[len(numbers)] += 1
        if vector.shape != (size,) or not np.isfinite(vector).all() or not word:
            broken.append(number)
        elif word in vectors:
            repeated += 1
        else:
            vectors[word] = vector
    del widths[0]  # a word alone does not say how many numbers the others have
    usual = widths.most_common(1)[0][0] if widths else size
    if usual != size:
        raise UserError(
            f"{path} has vectors of {usual} numbers, and model.embedding_size is {size}: set it to "
            "the file's, or name another file."
        )
    if not vectors:
        raise UserError(f"{path} has no line with a word and {size} finite numbers.")
    return VectorFile(str(path), vectors, len(broken), min(broken, default=0), repeated)


def with_words(tokenizer: WordTokenizer, words: Iterable[str]) -> WordTokenizer:
    """Return a tokenizer that knows more words, those that the tokenizer keeps in one piece."""
    known = dict.fromkeys(tokenizer.vocabulary[len(SPECIAL_TOKENS) :])
    known |= {word: None for word in map(nfc, words) if tokenizer.tokens(word) == [word]}
    return WordTokenizer(list(known), tokenizer.lowercase, tokenizer.split)


def read_first_words(
    path: str | os.PathLike, size: int, tokenizer: WordTokenizer, extra_words: int = 0
) -> tuple[VectorFile, WordTokenizer]:
    """Return the vectors of a file, and a tokenizer that knows its first words, too.

    Args:
        path: the file, as for `read_vectors`.
        size: how many numbers a vector must have.
        tokenizer: the tokenizer of the training text.
        extra_words: how many of the file's first words it is to know.
    """
    file = read_vectors(path, size)
    say(str(file))
    if extra := list(file.vectors)[:extra_words]:
        tokenizer = with_words(tokenizer, extra)
    return file, tokenizer


def start_vectors(
    tokenizer: WordTokenizer,
    count: int,
    size: int,
    seed: int,
    known: Mapping[str, np.ndarray] | None = None,
    where: str = "",
    length: float | None = None,
) -> tuple[np.ndarray, str]:
    """Return vectors `(count, size)` to start training from, and a line on where they come from.

    Words that `known` lacks, in lower case too, and ids beyond the vocabulary get random vectors,
    as long as the others in the mean; padding gets zeros. With `length` those of `known` are scaled
    to it first.
    """
    random = np.random.default_rng(seed)
    vectors = random.normal(0.0, 1.0, (count, size)).astype("float32")
    vectors /= np.sqrt(size)  # of length 1 or so
    vectors[0] = 0.0
    if known is None:
        return vectors, f"{len(vectors):,} random vectors"
    known = {nfc(word): vector for word, vector in reversed(list(known.items()))}  # the first wins
    found = {}
    for index, word in enumerate(tokenizer.vocabulary):
        bare = word.strip(JOINER)
        spellings = (each for each in (word, bare, bare.lower()) if each in known)
        if index >= len(SPECIAL_TOKENS) and (spelling := next(spellings, None)) is not None:
            found[index] = known[spelling]
    if found:
        given = np.stack(list(found.values()))
        lengths = np.linalg.norm(given, axis=1, keepdims=True)
        if length is not None:
            given *= length / np.where(lengths > 0, lengths, 1)
        vectors *= float(lengths.mean()) if length is None else length
        vectors[list(found)] = given
    vocabulary = tokenizer.vocabulary_size - len(SPECIAL_TOKENS)
    return vectors, (
        f"{len(found):,} of the vocabulary's {vocabulary:,} words have a vector from {where}, "
        f"{vocabulary - len(found):,} a random one"
    )


def read_start(folder: Path) -> np.ndarray | None:
    """Return the vectors that a run folder holds to start from, or None."""
    path = folder / FILE
    if not path.is_file():
        return None
    verify_checksum(path)
    try:  # mapped, so that a header cannot ask for more memory than the file has bytes
        return np.array(np.load(path, mmap_mode="r"))
    except Exception as error:  # an altered file fails in many ways
        raise UserError(f"{path} is damaged: no vectors ({type(error).__name__}).") from None


def write_start(folder: Path, vectors: np.ndarray | None) -> None:
    """Write vectors to start from into a run folder, where there are any."""
    if vectors is not None:
        np.save(folder / FILE, vectors)
