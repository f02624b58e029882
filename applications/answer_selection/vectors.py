"""The first vectors of words: drawn at random, read from a file, or trained by gensim."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from keras_attention.text import SPECIAL_TOKENS, WordTokenizer

from ..common.errors import UserError
from ..common.files import read_lines, write_text
from .config import VectorsConfig
from .preprocessor import AnswerPreprocessor

JOINER = "￭"


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
        parts = [f"{self.path}: {len(self.vectors):,} vectors"]
        if self.broken:
            parts.append(f"{self.broken:,} broken lines left out (first: line {self.first_broken})")
        if self.repeated:
            parts.append(f"{self.repeated:,} words that came before left out")
        return ", ".join(parts)


def read_vectors(path: str | os.PathLike, size: int) -> VectorFile:
    """Read vectors in text form: a word and its numbers on each line, spaces between.

    A first line of two whole numbers, as word2vec writes it, is passed over.

    Args:
        path: the file, plain or .gz.
        size: how many numbers a vector must have.

    Raises:
        UserError: if there is no such file, or its vectors have another size.
    """
    lines = read_lines(path)
    header = lines[0].split()
    skipped = int(len(header) == 2 and all(word.isdigit() for word in header))
    vectors: dict[str, np.ndarray] = {}
    broken, repeated, widths = [], 0, Counter()
    for number, line in enumerate(lines[skipped:], skipped + 1):
        word, *numbers = line.rstrip(" ").split(" ")
        widths[len(numbers)] += 1
        try:
            vector = np.array(numbers, "float32")
        except ValueError:
            vector = np.full(size, np.nan, "float32")
        if vector.shape != (size,) or not np.isfinite(vector).all() or not word:
            broken.append(number)
        elif word in vectors:
            repeated += 1
        else:
            vectors[word] = vector
    usual = widths.most_common(1)[0][0] if widths else size
    if usual != size or not vectors:
        raise UserError(
            f"{path} has vectors of {usual} numbers, and model.embedding_size is {size}: set it to "
            "the file's, or name another file."
        )
    return VectorFile(str(path), vectors, len(broken), min(broken, default=0), repeated)


def first_vectors(
    config: VectorsConfig,
    preprocessor: AnswerPreprocessor,
    size: int,
    seed: int,
    texts: Sequence[str],
    file: VectorFile | None = None,
) -> tuple[np.ndarray, str]:
    """Return the vectors that training starts from, and a line on where they come from.

    Words that the file (of source file) or gensim (trained on `texts`, of source train) has no
    vector for get random ones, as long as the others in the mean.
    """
    random, tokenizer = np.random.default_rng(seed), preprocessor.tokenizer
    vectors = random.normal(0.0, 1.0, (preprocessor.vocabulary_size, size)).astype("float32")
    vectors /= np.sqrt(size)  # of length 1 or so
    vectors[0] = 0.0
    if config.source == "random":
        return vectors, f"{len(vectors):,} random vectors"
    options = (config.epochs, config.window, tokenizer.lowercase)
    known = file.vectors if file else train_vectors(texts, size, seed, *options)
    found = {
        index: known[word.strip(JOINER) if word not in known else word]
        for index, word in enumerate(tokenizer.vocabulary)
        if index >= len(SPECIAL_TOKENS) and (word in known or word.strip(JOINER) in known)
    }
    if found:
        given = np.stack(list(found.values()))
        vectors *= float(np.linalg.norm(given, axis=1).mean())
        vectors[list(found)] = given
    where = file.path if file else "gensim"
    vocabulary = tokenizer.vocabulary_size - len(SPECIAL_TOKENS)
    return vectors, (
        f"{len(found):,} of the vocabulary's {vocabulary:,} words have a vector from {where}, "
        f"{vocabulary - len(found):,} a random one"
    )


def train_vectors(
    texts: Sequence[str],
    size: int,
    seed: int,
    epochs: int = 10,
    window: int = 5,
    lowercase: bool = True,
) -> dict[str, np.ndarray]:
    """Return vectors that gensim's Word2Vec (skip-gram) trains on texts, by their words.

    Args:
        texts: sentences.
        size: the size of a vector.
        seed: the seed; the same one gives the same vectors.
        epochs: how often to go over the texts.
        window: how many words to each side are a word's context.
        lowercase: make the texts lower case first.

    Raises:
        UserError: where gensim is not installed.
    """
    try:
        from gensim.models import Word2Vec
    except ImportError:
        raise UserError(
            "vectors.source train needs gensim: install it (pip install "
            "'keras-attention[vectors]'), or set vectors.source to random or file."
        ) from None
    splitter = WordTokenizer([], lowercase=lowercase)
    model = Word2Vec(
        [splitter.tokens(text) for text in texts],
        vector_size=size,
        window=window,
        min_count=1,
        sg=1,
        epochs=epochs,
        seed=seed,
        workers=1,  # with more, the same seed gives other vectors
    )
    return {word: model.wv[word] for word in model.wv.index_to_key}


def write_vectors(path: str | os.PathLike, vectors: dict[str, np.ndarray]) -> None:
    """Write vectors in text form, which `read_vectors` and vectors.source file read."""
    size = len(next(iter(vectors.values())))
    lines = [f"{len(vectors)} {size}"]
    lines += [" ".join([word, *map(str, vector.tolist())]) for word, vector in vectors.items()]
    write_text(Path(path), "\n".join(lines) + "\n")
