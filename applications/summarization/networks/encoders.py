"""Encoders of documents: embedded words in; a memory, its mask and a start state out."""

import keras
from keras import ops

from keras_attention.layers import PositionalEncoding, TransformerEncoder

from ...arguments import KeepsArguments
from ...base.network import bidirectional_gru
from ...errors import check_counts


@keras.saving.register_keras_serializable("keras_attention.summarization")
class FlatEncoder(KeepsArguments, keras.layers.Layer):
    """A bidirectional GRU over all words of a document.

    Args:
        units: Integer, units of both directions together, `U`; an even number.
        **kwargs: `name`, `dtype` and the like of `keras.layers.Layer`.

    Call arguments:
        words: Embedded words `(B, N, W, E)`; the sentences are read on end.
        mask: Boolean `(B, N, W)`.

    Returns:
        The memory `(B, N W, U)`, its mask, and the vector `(B, U)` that the decoder starts from.

    Raises:
        ValueError: If a number is not a positive integer, or `units` is odd.

    Example:

    ```python
    import numpy as np
    from keras_attention.applications.summarization import FlatEncoder

    words, mask = np.ones((1, 2, 3, 5)), np.array([[[True] * 3, [True, False, False]]])
    memory, memory_mask, start = FlatEncoder(8)(words, mask)
    assert tuple(memory.shape) == (1, 6, 8) and tuple(start.shape) == (1, 8)
    ```
    """

    reads_sentences = False
    """Whether the encoder needs to know where sentences end."""

    def __init__(self, units: int, **kwargs):
        super().__init__(**kwargs)
        self.keep(units=units)
        self.reader = _bidirectional(units, "reader", self.dtype_policy)

    def build(self, words_shape):
        self.reader.build((words_shape[0], None, words_shape[3]))

    def call(self, words, mask):
        words, mask = on_end(words), on_end(mask)
        memory, *last = self.reader(words, mask=mask)
        return memory, mask, ops.concatenate(last, axis=-1)


@keras.saving.register_keras_serializable("keras_attention.summarization")
class TransformerReader(KeepsArguments, keras.layers.Layer):
    """Pre-norm blocks of a Transformer over all words of a document.

    It is called as `FlatEncoder` is; the decoder starts from the mean of the memory.

    Args:
        size: Integer, the width of the embedded words, a multiple of `heads`.
        layers: Integer, how many blocks.
        heads: Integer, their attention heads.
        dropout: Rate of dropout in the blocks.
        **kwargs: `name`, `dtype` and the like of `keras.layers.Layer`.

    Raises:
        ValueError: If a number is not a positive integer; in `build`, if the words' size is no
            multiple of `heads`.
    """

    reads_sentences = False

    def __init__(self, size: int, layers: int = 2, heads: int = 4, dropout: float = 0.0, **kwargs):
        super().__init__(**kwargs)
        # No attribute `layers`, which Keras' `summary` takes for a list of layers.
        self.keep(size=size, heads=heads, dropout=dropout)
        check_counts(size=size, layers=layers, heads=heads)
        policy = {"dtype": self.dtype_policy}
        options = {"dropout": dropout, "norm": "pre", **policy}
        self.positions = PositionalEncoding(name="positions", **policy)
        self.blocks = [
            TransformerEncoder(4 * size, heads, name=f"block_{place}", **options)
            for place in range(layers)
        ]
        self.norm = keras.layers.LayerNormalization(name="norm", **policy)

    def build(self, words_shape):
        shape = (words_shape[0], None, words_shape[3])
        for layer in (self.positions, *self.blocks, self.norm):
            layer.build(shape)
            layer.built = True

    def call(self, words, mask, training=None):
        words, mask = self.positions(on_end(words)), on_end(mask)
        for block in self.blocks:
            words = block(words, inputs_mask=mask, training=training)
        memory = self.norm(words)
        real = ops.cast(ops.expand_dims(mask, 2), memory.dtype)
        mean = ops.sum(memory * real, axis=1) / ops.maximum(ops.sum(real, axis=1), 1.0)
        return memory, mask, mean

    def get_config(self):
        return {**super().get_config(), "layers": len(self.blocks)}


@keras.saving.register_keras_serializable("keras_attention.summarization")
class HierarchicalEncoder(KeepsArguments, keras.layers.Layer):
    """A bidirectional GRU over the words of each sentence, another over the sentences.

    A sentence goes in as its two last states and a learned vector for its position. The layer is
    called as `FlatEncoder` is.

    Args:
        units: Integer, units of both directions together, `U`; an even number.
        max_sentences: Integer, how many positions have a vector; later sentences share the last.
        **kwargs: `name`, `dtype` and the like of `keras.layers.Layer`.

    Returns:
        The memory, a dictionary of `words` `(B, N, W, U)` and `sentences` `(B, N, U)`; a
        dictionary of their masks; and the vector `(B, U)` that the decoder starts from.

    Raises:
        ValueError: If a number is not a positive integer, or `units` is odd.

    Reference:
        Nallapati et al. 2016, "Abstractive text summarization using sequence-to-sequence RNNs and
        beyond", section 2.4.
    """

    reads_sentences = True

    def __init__(self, units: int, max_sentences: int = 100, **kwargs):
        super().__init__(**kwargs)
        self.keep(units=units, max_sentences=max_sentences)
        check_counts(max_sentences=max_sentences)
        policy = {"dtype": self.dtype_policy}
        self.reader = _bidirectional(units, "reader", **policy)
        self.sentence_reader = _bidirectional(units, "sentence_reader", **policy)
        self.positions = keras.layers.Embedding(max_sentences, units, name="positions", **policy)

    def build(self, words_shape):
        self.reader.build((None, None, words_shape[3]))
        self.positions.build((None,))
        self.sentence_reader.build((words_shape[0], None, self.units))

    def call(self, words, mask):
        batch_size, count, width, size = ops.shape(words)
        each = ops.reshape(words, (batch_size * count, width, size))
        each_mask = ops.reshape(mask, (batch_size * count, width))
        memory, *last = self.reader(each, mask=each_mask)
        memory = ops.reshape(memory, (batch_size, count, width, self.units))
        sentences = ops.reshape(ops.concatenate(last, axis=-1), (batch_size, count, self.units))
        places = ops.clip(ops.arange(count, dtype="int32"), 0, self.max_sentences - 1)
        sentences = sentences + self.positions(places)
        sentence_mask = ops.any(mask, axis=2)
        sentences, *last = self.sentence_reader(sentences, mask=sentence_mask)
        memory = {"words": memory, "sentences": sentences}
        mask = {"words": mask, "sentences": sentence_mask}
        return memory, mask, ops.concatenate(last, axis=-1)


def _bidirectional(units: int, name: str, dtype) -> keras.layers.Bidirectional:
    """Return a bidirectional GRU of `units` for both directions together."""
    check_counts(units=units)
    if units % 2:
        raise ValueError(
            f"`units` should be even, half for each direction. Received: units={units}"
        )
    return bidirectional_gru(units // 2, name, dtype, return_state=True)


def on_end(document):
    """`(B, N, W, ...)` to `(B, N W, ...)`."""
    batch_size, count, width, *rest = ops.shape(document)
    return ops.reshape(document, (batch_size, count * width, *rest))
