"""Tokenizers as TensorFlow modules, for exported models. Importing this imports TensorFlow.

`Tokenizer.in_graph` says what their methods take and give.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from .tokenizer import END_ID, PAD_ID, START_ID, UNK_ID, Rules


def nfc_in_graph(strings: Any) -> Any:
    """Return a tensor of strings in Unicode's form C, as `nfc` does."""
    import tensorflow_text

    return tensorflow_text.normalize_utf8(strings, "NFC")


class SentencePieceInGraph(tf.Module):
    """`SentencePieceTokenizer` inside a graph; readers import `tensorflow_text`."""

    def __init__(self, model: bytes) -> None:
        super().__init__()
        self._model = model

    def encode(self, strings: tf.Tensor) -> tf.RaggedTensor:
        return self._tokenizer(tf.int32).tokenize(nfc_in_graph(strings))

    def decode(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        return nfc_in_graph(self._tokenizer(tf.int32).detokenize(_until_end(ids)))

    def tokens(self, strings: tf.Tensor) -> tf.RaggedTensor:
        return self._tokenizer(tf.string).tokenize(nfc_in_graph(strings))

    def join(self, tokens: tf.RaggedTensor) -> tf.Tensor:
        text = tf.strings.reduce_join(tokens, axis=-1)
        return tf.strings.regex_replace(tf.strings.regex_replace(text, "\u2581", " "), "^ ", "")

    def _tokenizer(self, out_type: tf.DType) -> Any:
        """Return a tokenizer for one use: setting a seed would end one that is kept."""
        import tensorflow_text

        return tensorflow_text.SentencepieceTokenizer(model=self._model, out_type=out_type)


class OwnPiecesInGraph(SentencePieceInGraph):
    """`SentencePieceTokenizer` with `pieces`; `tag` is the form of a tag, where there are any."""

    def __init__(self, model: bytes, vocabulary: Sequence[str], tag: str | None) -> None:
        super().__init__(model)
        first = END_ID + 1
        pieces = tf.constant(list(vocabulary[first:]), tf.string)
        self._vocabulary = tf.constant(list(vocabulary))
        self._ids = _table(pieces, tf.range(first, len(vocabulary)), UNK_ID)
        self._tag = tag

    def encode(self, strings: tf.Tensor) -> tf.RaggedTensor:
        return tf.ragged.map_flat_values(self._ids.lookup, self.tokens(strings))

    def decode(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        pieces = tf.gather(self._vocabulary, _until_end(ids))
        text = self._tokenizer(tf.string).detokenize(pieces)
        text = tf.strings.regex_replace(text, "^\u2581", "")
        return nfc_in_graph(tf.strings.regex_replace(text, "\u2581", " "))

    def tokens(self, strings: tf.Tensor) -> tf.RaggedTensor:
        if self._tag is None:
            return super().tokens(strings)
        has_tag = tf.strings.regex_full_match(strings, f"(?s){self._tag}.*")
        rest = tf.strings.regex_replace(strings, f"^{self._tag}", "")
        tag = tf.strings.regex_replace(strings, f"(?s)^({self._tag}).*", r"\1")
        tags = tf.ragged.boolean_mask(tag[:, None], has_tag[:, None])
        return tf.concat([tags, super().tokens(rest)], axis=1)


class WordsInGraph(tf.Module):
    """`WordTokenizer` inside a graph; readers import `tensorflow_text`."""

    def __init__(
        self,
        vocabulary: Sequence[str],
        lowercase: Mapping[str, str],
        split_rules: Rules,
        join_rules: Rules,
    ) -> None:
        super().__init__()
        words = tf.constant(list(vocabulary[END_ID + 1 :]), tf.string)
        ids = tf.range(END_ID + 1, len(vocabulary))
        self._vocabulary = tf.constant(list(vocabulary))
        self._ids = _table(words, ids, UNK_ID)
        self._lowercase = None
        if lowercase:
            self._lowercase = _table(
                tf.constant(list(lowercase)), tf.constant(list(lowercase.values())), ""
            )
        self._split_rules = split_rules
        self._join_rules = join_rules

    def encode(self, strings: tf.Tensor) -> tf.RaggedTensor:
        return tf.ragged.map_flat_values(self._ids.lookup, self.tokens(strings))

    def decode(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        return self.join(tf.gather(self._vocabulary, _until_end(ids)))

    def tokens(self, strings: tf.Tensor) -> tf.RaggedTensor:
        if self._lowercase is not None:
            characters = tf.strings.unicode_split(strings, "UTF-8")
            lower = self._lowercase.lookup(characters.values)
            lower = tf.where(lower == "", characters.values, lower)
            strings = tf.strings.reduce_join(characters.with_values(lower), axis=-1)
        return tf.strings.split(_apply(self._split_rules, nfc_in_graph(strings)))

    def join(self, tokens: tf.RaggedTensor) -> tf.Tensor:
        return _apply(self._join_rules, tf.strings.reduce_join(tokens, axis=-1, separator=" "))


def _until_end(ids: tf.Tensor | tf.RaggedTensor) -> tf.RaggedTensor:
    """Return the ids before the first end, without padding and start, as a ragged tensor."""
    if isinstance(ids, tf.RaggedTensor):
        ids = ids.to_tensor(PAD_ID)
    ids = tf.cast(ids, tf.int32)
    before = tf.cumsum(tf.cast(ids == END_ID, tf.int32), axis=-1) == 0
    return tf.ragged.boolean_mask(ids, before & (ids != PAD_ID) & (ids != START_ID))


def _apply(rules: Rules, strings: tf.Tensor) -> tf.Tensor:
    for pattern, replacement in rules:
        strings = tf.strings.regex_replace(strings, pattern, replacement)
    return strings


def _table(keys: tf.Tensor, values: tf.Tensor, default: int | str) -> tf.lookup.StaticHashTable:
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), default)
