"""From questions and answers to the ids that the network reads: known words, and the others."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from ..base.preprocessor import TextPreprocessor, as_column, as_texts, check_equally_many, is_tensor
from ..data.vectors import with_words
from ..errors import check_counts, shown
from ..text import SPECIAL_TOKENS, UNK_ID, PackedIds, WordTokenizer


@dataclasses.dataclass(frozen=True)
class Coverage:
    """How many words a text has, how many of them are unknown, and how many texts are cut."""

    words: int
    unknown: int
    cut: int

    def __str__(self) -> str:
        part = self.unknown / max(self.words, 1)
        text = f"{part:.1%} of {self.words:,} words are unknown and share vectors"
        return text + (f", {self.cut:,} texts are cut" if self.cut else "")


@keras.saving.register_keras_serializable("keras_attention.answer_selection")
class AnswerPreprocessor(TextPreprocessor):
    """Turns questions and their candidates into ids, in Python and inside a TensorFlow graph.

    A word that the vocabulary lacks gets the id of one of a few buckets, chosen by a hash of its
    letters: it has the same id in a question and in an answer, and shares it with other unknown
    words. Ids are padded with 0 at the end, to a multiple of 8.

    Args:
        tokenizer: the vocabulary.
        unknown_buckets: ids for unknown words, which come after those of the vocabulary.
        max_length: words of a text that are read.
        **kwargs: `name` and the like of `keras.layers.Layer`.

    Call arguments:
        x: a dict of `"question"`, strings `(B,)`, and `"candidates"`, strings `(B, N)`, those of a
            question with fewer padded with `""`.
        y: labels `(B, N)`, 1 for a right candidate.
        sample_weight: weights `(B,)`.

    Returns:
        `{"question": (B, S), "candidates": (B, N, T)}`, with the labels and weights where given.

    Example:

    ```python
    from keras_attention.applications.answer_selection import AnswerPreprocessor

    preprocessor = AnswerPreprocessor.adapt(["who is it ?", "it is a dog ."])
    inputs = preprocessor({"question": ["who ?"], "candidates": [["a dog", "a cat"]]})
    assert inputs["question"].shape == (1, 8) and inputs["candidates"].shape == (1, 2, 8)
    ```
    """

    def __init__(
        self,
        tokenizer: WordTokenizer,
        unknown_buckets: int = 1000,
        max_length: int = 40,
        **kwargs: Any,
    ):
        super().__init__({"tokenizer": tokenizer}, **kwargs)
        check_counts(unknown_buckets=unknown_buckets, max_length=max_length)
        self.keep(unknown_buckets=unknown_buckets, max_length=max_length)

    @classmethod
    def adapt(
        cls,
        texts: Sequence[str],
        *,
        vocabulary_size: int = 50000,
        min_count: int = 1,
        lowercase: bool = True,
        extra_words: Sequence[str] = (),
        unknown_buckets: int = 1000,
        max_length: int = 40,
    ) -> "AnswerPreprocessor":
        """Return a preprocessor whose vocabulary comes from the texts given.

        Args:
            texts: questions and answers.
            vocabulary_size: most words of the texts with an id of their own.
            min_count: words that occur less often have none.
            lowercase: make the text lower case first.
            extra_words: more words with an id of their own, such as those of a vector file; what
                is no word of such a text is left out.
            unknown_buckets: as of the class.
            max_length: as of the class.

        Raises:
            ValueError: where there are no texts, or something is no string.
        """
        size = vocabulary_size + len(SPECIAL_TOKENS)
        tokenizer = WordTokenizer.train(as_texts(texts, "texts"), size, min_count, lowercase)
        return cls(with_words(tokenizer, extra_words), unknown_buckets, max_length)

    @property
    def vocabulary_size(self) -> int:
        """How many ids there are, padding and buckets included."""
        return self.tokenizer.vocabulary_size + self.unknown_buckets

    def entries(self):
        # A bucket has the same words where there are as many.
        buckets = [(self.unknown_buckets, bucket) for bucket in range(self.unknown_buckets)]
        return {"vocabulary_size": [*self.tokenizer.vocabulary, *buckets]}

    def tokens(self, text: str) -> list[str]:
        """Return the words of a text that are read."""
        return self.tokenizer.tokens(text)[: self.max_length]

    def encode(self, texts: Sequence[str]) -> tuple[PackedIds, Coverage]:
        """Return the ids of each text, and how much of it the vocabulary has."""
        rows = self.tokenizer.encode(texts)
        unknown = []
        for text, row in zip(texts, rows, strict=True):
            if UNK_ID in row:
                words = zip(self.tokenizer.tokens(text), row, strict=True)
                unknown += [word for word, index in words if index == UNK_ID]
        letters = [word.encode("utf-8", "surrogatepass") for word in unknown]
        hashed = iter(np.asarray(self._bucket(letters)).tolist() if unknown else ())
        ids = PackedIds(
            [next(hashed) if index == UNK_ID else index for index in row] for row in rows
        )
        cut = sum(len(row) > self.max_length for row in rows)
        coverage = Coverage(sum(map(len, rows)), len(unknown), cut)
        return ids.cut(self.max_length), coverage

    def unknown(self, text: str) -> tuple[int, ...]:
        """Return the indices of the words of a text that the vocabulary lacks."""
        (ids,) = self.tokenizer.encode([text])
        read = enumerate(ids[: self.max_length])
        return tuple(place for place, token in read if token == UNK_ID)

    def encode_in_graph(self, texts):
        """Return the ids of a tensor of strings `(B,)`, as `encode` gives them, ragged."""
        import tensorflow as tf

        graph = self.in_graph("tokenizer")
        tokens, ids = graph.tokens(texts), graph.encode(texts)
        ids = tf.where(ids.values == UNK_ID, self._bucket(tokens.values), ids.values)
        return tokens.with_values(ids)[:, : self.max_length]

    def as_source(self, x):
        question, rows = _columns(x)
        if not question:
            raise ValueError("`predict` needs at least one question. Received: none")
        if len(counts := {len(row) for row in rows}) > 1:
            raise ValueError(
                '`candidates` should have equally many for each question: pad with "". '
                f"Received: from {min(counts)} to {max(counts)}"
            )
        return {"question": question, "candidates": rows}

    def call(self, x, y=None, sample_weight=None):
        if _has_columns(x) and is_tensor(x["question"]):
            inputs = self._padded_in_graph(x["question"], x["candidates"])
        else:
            question, rows = _columns(x)
            width = max(map(len, rows), default=0)
            filled = [text for row in rows for text in (*row, *[""] * (width - len(row)))]
            answers = padded(self.encode(filled)[0])
            answers = answers.reshape(len(rows), width, answers.shape[1])
            inputs = {"question": padded(self.encode(question)[0]), "candidates": answers}
        return keras.utils.pack_x_y_sample_weight(inputs, y, sample_weight)

    def _padded_in_graph(self, question, candidates):
        import tensorflow as tf

        def dense(texts):
            ids = self.encode_in_graph(texts).to_tensor(0)
            length = tf.maximum(8, -(-tf.shape(ids)[1] // 8) * 8)
            return tf.pad(ids, [[0, 0], [0, length - tf.shape(ids)[1]]])

        ids = dense(tf.reshape(candidates, [-1]))
        shape = tf.concat([tf.shape(candidates), tf.shape(ids)[1:]], 0)
        return {"question": dense(question), "candidates": tf.reshape(ids, shape)}

    def _bucket(self, words):
        import tensorflow as tf

        bucket = tf.strings.to_hash_bucket_fast(tf.convert_to_tensor(words), self.unknown_buckets)
        return tf.cast(bucket, tf.int32) + self.tokenizer.vocabulary_size


def _has_columns(x: Any) -> bool:
    return isinstance(x, Mapping) and {"question", "candidates"} <= set(x)


def _columns(x: Any) -> tuple[list[str], list[list[str]]]:
    """Return the questions of a dict, and the candidates of each, checked."""
    if not _has_columns(x):
        raise ValueError(
            '`x` should be a dict of "question", strings (B,), and "candidates", strings (B, N). '
            f"Received: x={shown(x)}"
        )
    question = as_texts(x["question"], "question")
    wanted = "a sequence of the candidates of each question"
    candidates = as_column(x["candidates"], "candidates", wanted)
    rows = [as_texts(row, f"candidates[{place}]") for place, row in enumerate(candidates)]
    check_equally_many(question=question, candidates=rows)
    return question, rows


def padded(ids: PackedIds) -> np.ndarray:
    """Return ids (B, T), padded with 0 to a multiple of 8, so that few shapes occur."""
    length = int(ids.lengths.max(initial=1))
    return ids.padded(np.arange(len(ids)), length + -length % 8)
