"""The first vectors of words: drawn at random, read from a file, or trained by gensim."""

import os
from collections.abc import Sequence

import numpy as np

from ..data.vectors import VectorFile, read_vectors, start_vectors
from ..errors import UserError
from ..store.files import output_file
from ..text import WordTokenizer
from .config import VectorsConfig
from .preprocessor import AnswerPreprocessor

__all__ = ["first_vectors", "read_vectors", "train_vectors", "write_vectors"]


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
    tokenizer, count = preprocessor.tokenizer, preprocessor.vocabulary_size
    if config.source == "random":
        return start_vectors(tokenizer, count, size, seed)
    options = (config.epochs, config.window, tokenizer.lowercase)
    known = file.vectors if file else train_vectors(texts, size, seed, *options)
    return start_vectors(tokenizer, count, size, seed, known, file.path if file else "gensim")


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
            "vectors.source train needs gensim: install it (pip install gensim), or set "
            "vectors.source to random or file."
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
    """Write vectors in text form, which `read_vectors` and vectors.source file read.

    Raises:
        ValueError: where the file exists.
    """
    size = len(next(iter(vectors.values())))
    lines = [f"{len(vectors)} {size}"]
    lines += [" ".join([word, *map(str, vector.tolist())]) for word, vector in vectors.items()]
    with output_file(path) as file:
        file.writelines(f"{line}\n" for line in lines)
