"""Encoders of documents: embedded words in; a memory, its mask and a start state out."""

import keras
from keras import ops

from keras_attention.layers import PositionalEncoding, TransformerEncoder


class FlatEncoder(keras.layers.Layer):
    """A bidirectional GRU over all words of a document.

    Call arguments:
        words: Embedded words `(B, N, W, E)`; the sentences are read on end.
        mask: Boolean `(B, N, W)`.

    Returns:
        The memory `(B, N W, U)`, its mask, and what the decoder starts from, `(B, U)`.
    """

    def __init__(self, units: int, **kwargs):
        super().__init__(**kwargs)
        self.reader = bidirectional(units, name="reader")

    def build(self, words_shape):
        self.reader.build((words_shape[0], None, words_shape[3]))

    def call(self, words, mask):
        words, mask = _on_end(words), _on_end(mask)
        memory, forward, backward = self.reader(words, mask=mask)
        return memory, mask, ops.concatenate([forward, backward], axis=-1)


class TransformerReader(keras.layers.Layer):
    """Blocks of a Transformer over all words of a document; called as `FlatEncoder` is."""

    def __init__(self, size: int, layers: int, heads: int, dropout: float, **kwargs):
        super().__init__(**kwargs)
        self.positions = PositionalEncoding(name="positions")
        self.blocks = [
            TransformerEncoder(4 * size, heads, dropout=dropout, norm="pre", name=f"block_{place}")
            for place in range(layers)
        ]
        self.norm = keras.layers.LayerNormalization(name="norm")

    def build(self, words_shape):
        shape = (words_shape[0], None, words_shape[3])
        for layer in (self.positions, *self.blocks, self.norm):
            layer.build(shape)
            layer.built = True

    def call(self, words, mask, training=None):
        words, mask = self.positions(_on_end(words)), _on_end(mask)
        for block in self.blocks:
            words = block(words, inputs_mask=mask, training=training)
        memory = self.norm(words)
        real = ops.cast(ops.expand_dims(mask, 2), memory.dtype)
        mean = ops.sum(memory * real, axis=1) / ops.maximum(ops.sum(real, axis=1), 1.0)
        return memory, mask, mean


class HierarchicalEncoder(keras.layers.Layer):
    """A bidirectional GRU over the words of each sentence, another over the sentences.

    A sentence goes in as its two last states and a learned vector for its position.

    Call arguments:
        words: Embedded words `(B, N, W, E)`.
        mask: Boolean `(B, N, W)`.

    Returns:
        The memory, a dictionary of `words` `(B, N, W, U)` and `sentences` `(B, N, U)`; a
        dictionary of their masks; and what the decoder starts from, `(B, U)`.
    """

    def __init__(self, units: int, max_sentences: int, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.max_sentences = max_sentences
        self.reader = bidirectional(units, name="reader")
        self.sentence_reader = bidirectional(units, name="sentence_reader")
        self.positions = keras.layers.Embedding(max_sentences, units, name="positions")

    def build(self, words_shape):
        self.reader.build((None, None, words_shape[3]))
        self.positions.build((None,))
        self.sentence_reader.build((words_shape[0], None, self.units))

    def call(self, words, mask):
        batch_size, count, width, size = ops.shape(words)
        each = ops.reshape(words, (batch_size * count, width, size))
        memory, forward, backward = self.reader(
            each, mask=ops.reshape(mask, (batch_size * count, width))
        )
        memory = ops.reshape(memory, (batch_size, count, width, self.units))
        sentences = ops.concatenate([forward, backward], axis=-1)
        sentences = ops.reshape(sentences, (batch_size, count, self.units))
        places = ops.clip(ops.arange(count, dtype="int32"), 0, self.max_sentences - 1)
        sentences = sentences + self.positions(places)
        sentence_mask = ops.any(mask, axis=2)
        sentences, forward, backward = self.sentence_reader(sentences, mask=sentence_mask)
        return (
            {"words": memory, "sentences": sentences},
            {"words": mask, "sentences": sentence_mask},
            ops.concatenate([forward, backward], axis=-1),
        )


def bidirectional(units: int, name: str) -> keras.layers.Bidirectional:
    """Return a bidirectional GRU of `units` for both directions together."""
    reader = keras.layers.GRU(units // 2, return_sequences=True, return_state=True)
    return keras.layers.Bidirectional(reader, name=name)


def _on_end(document):
    """`(B, N, W, ...)` to `(B, N W, ...)`."""
    batch_size, count, width, *rest = ops.shape(document)
    return ops.reshape(document, (batch_size, count * width, *rest))
