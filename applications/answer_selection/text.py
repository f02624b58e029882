"""Words to ids, those of the vocabulary and the others."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_attention.text import UNK_ID, WordTokenizer


@dataclasses.dataclass(frozen=True)
class Coverage:
    """How much of a text the vocabulary has.

    Args:
        words: words of the text.
        unknown: those without a vector of their own.
        cut: texts longer than the longest read.
    """

    words: int
    unknown: int
    cut: int

    def __str__(self) -> str:
        part = self.unknown / max(self.words, 1)
        text = f"{part:.1%} of {self.words:,} words are unknown and share vectors"
        return text + (f", {self.cut:,} texts are cut" if self.cut else "")


class WordIds(tf.Module):
    """Text to ids: of the vocabulary, and for unknown words one of a few buckets.

    The bucket of a word is a hash of its letters, so that a word which the vocabulary lacks has
    the same id in a question and in an answer (and shares it with other unknown words).

    Args:
        tokenizer: the vocabulary.
        buckets: ids for unknown words, which come after those of the vocabulary.
        max_length: words of a text that are read.
    """

    def __init__(self, tokenizer: WordTokenizer, buckets: int, max_length: int):
        super().__init__()
        self.tokenizer = tokenizer
        self.buckets = buckets
        self.max_length = max_length
        self._graph = None

    @property
    def size(self) -> int:
        """The number of ids."""
        return self.tokenizer.vocabulary_size + self.buckets

    def tokens(self, text: str) -> list[str]:
        """Return the words of a text that are read."""
        return self.tokenizer.tokens(text)[: self.max_length]

    def encode(self, texts: Sequence[str]) -> tuple[list[list[int]], Coverage]:
        """Return the ids of each text, and how much of it the vocabulary has."""
        rows = self.tokenizer.encode(texts)
        unknown = [
            word
            for text, row in zip(texts, rows, strict=True)
            if UNK_ID in row
            for word, index in zip(self.tokenizer.tokens(text), row, strict=True)
            if index == UNK_ID
        ]
        hashed = iter(self._bucket(tf.constant(unknown, tf.string)).numpy().tolist())
        ids = [[next(hashed) if index == UNK_ID else index for index in row] for row in rows]
        coverage = Coverage(
            words=sum(map(len, rows)),
            unknown=len(unknown),
            cut=sum(len(row) > self.max_length for row in rows),
        )
        return [row[: self.max_length] for row in ids], coverage

    def in_graph(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Return the ids of strings (B,), as `encode` gives them, from a graph's operations."""
        if self._graph is None:
            self._graph = self.tokenizer.in_graph()
        tokens = self._graph.tokens(texts)
        ids = self._graph.encode(texts)
        ids = tf.where(ids.values == UNK_ID, self._bucket(tokens.values), ids.values)
        return tokens.with_values(ids)[:, : self.max_length]

    def _bucket(self, words: tf.Tensor) -> tf.Tensor:
        bucket = tf.strings.to_hash_bucket_fast(words, self.buckets)
        return tf.cast(bucket, tf.int32) + self.tokenizer.vocabulary_size


def padded(rows: Sequence[Sequence[int]], multiple_of: int = 8) -> np.ndarray:
    """Return ids (B, T), padded with 0 to a multiple of some length, so that few shapes occur."""
    longest = max(max(map(len, rows), default=0), 1)
    ids = np.zeros((len(rows), -(-longest // multiple_of) * multiple_of), np.int32)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = row
    return ids
