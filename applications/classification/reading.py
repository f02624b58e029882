"""From a text to ids: flat, or in sentences with a mark between them."""

import re
from collections.abc import Sequence

import numpy as np

from keras_attention.applications.classification.config import TokenizerConfig
from keras_attention.text import END_ID, PAD_ID, SentencePieceTokenizer, Tokenizer, WordTokenizer

# In the syntax that Python and TensorFlow share: a stop, what may close it, and a space after it.
SENTENCE_END = ("([.!?][\"')\\]]*)[ \\t]+", "\\1\n")


class Reader:
    """A tokenizer, and where sentences end if the model reads sentences.

    Ids come as one flat list a text; between sentences stands `END_ID`, which no tokenizer gives.

    Args:
        tokenizer: the tokenizer.
        config: the `tokenizer` section.
        in_sentences: whether the model reads sentences.
    """

    def __init__(self, tokenizer: Tokenizer, config: TokenizerConfig, in_sentences: bool):
        self.tokenizer = tokenizer
        self.config = config
        self.in_sentences = in_sentences

    def ids(self, text: str, max_length: int | None = None) -> list[int]:
        """Return the ids of a text, of its first `max_length` tokens where this is given."""
        rows = [row[:] for row in self.tokenizer.encode(self._sentences(text))]
        return _joined(self._cut(rows, max_length))

    def tokens(self, text: str, max_length: int | None = None) -> list[list[str]]:
        """Return the written tokens of each sentence; a text that is not cut is one sentence."""
        rows = [self.tokenizer.tokens(sentence) for sentence in self._sentences(text)]
        return self._cut(rows, max_length)

    def _sentences(self, text: str) -> list[str]:
        if not self.in_sentences:
            return [text]
        if self.config.sentences == "punctuation":
            text = re.sub(*SENTENCE_END, text)
        return text.split("\n")

    def _cut(self, rows, max_length):
        """Cut sentences to their longest length, then the text to its own; drop empty ones."""
        kept, left = [], max_length
        for row in rows:
            size = self.config.max_sentence_length if self.in_sentences else max(1, len(row))
            row = row if left is None else row[:left]
            left = None if left is None else left - len(row)
            kept += [row[first : first + size] for first in range(0, len(row), size)]
        return kept


def _joined(rows: Sequence[Sequence[int]]) -> list[int]:
    flat: list[int] = []
    for number, row in enumerate(rows):
        flat += [END_ID, *row] if number else row
    return flat


def length_of(ids: Sequence[int]) -> int:
    """Return how many tokens there are in the ids of a text."""
    return sum(token != END_ID for token in ids)


def in_sentences(ids: np.ndarray) -> np.ndarray:
    """Cut flat ids `(B, S)` at their marks, into `(B, N, W)` padded with 0."""
    is_mark = ids == END_ID
    number = np.cumsum(is_mark, axis=1)
    is_word = (ids != PAD_ID) & ~is_mark
    place = np.arange(ids.shape[1])
    begin = np.maximum.accumulate(np.where(is_mark, place + 1, 0), axis=1)
    row, column = np.nonzero(is_word)
    sentence, word = number[row, column], column - begin[row, column]
    shape = (len(ids), max(1, sentence.max(initial=0) + 1), max(1, word.max(initial=0) + 1))
    result = np.full(shape, PAD_ID, ids.dtype)
    result[row, sentence, word] = ids[row, column]
    return result


def train_tokenizer(config: TokenizerConfig, texts: Sequence[str]) -> Tokenizer:
    """Train the tokenizer of the training texts."""
    common = {"vocabulary_size": config.vocabulary_size, "lowercase": config.lowercase}
    if config.kind == "words":
        return WordTokenizer.train(texts, min_count=config.min_count, split=config.split, **common)
    return SentencePieceTokenizer.train(texts, model_type=config.model_type, **common)
