"""Layers that read words: ids in, a vector for each word and a mask out."""

import keras
from keras import ops

from keras_attention.layers import MultiHeadAttention, TransformerEncoder
from keras_attention.text import PAD_ID, UNK_ID

PACKAGE = "keras_attention.classification"


def build_once(layer: keras.layers.Layer, *shapes) -> None:
    """Build a layer, unless a file that it was read from has built it already."""
    if not layer.built:
        layer.build(*shapes)


@keras.saving.register_keras_serializable(PACKAGE)
class WordVectors(keras.layers.Layer):
    """Embeds words; in training some are made unknown, and features are dropped.

    Args:
        vocabulary_size: how many ids there are, padding included.
        size: width `E` of the embeddings.
        dropout: rate of dropout on the embeddings.
        word_dropout: the part of the words made unknown in training.
        **kwargs: arguments of every Keras layer.

    Call arguments:
        ids: `(B, S)`, 0 is padding.
        training: whether anything is dropped.

    Returns:
        The vectors `(B, S, E)` and the mask `(B, S)`, True where there is a word.
    """

    def __init__(self, vocabulary_size, size, dropout=0.0, word_dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.size = size
        self.dropout = dropout
        self.word_dropout = word_dropout
        self.embedding = keras.layers.Embedding(
            vocabulary_size,
            size,
            embeddings_initializer=keras.initializers.RandomUniform(-0.25, 0.25),
            name="embedding",
            dtype=self.dtype_policy,
        )
        self._dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self._seed = keras.random.SeedGenerator() if word_dropout else None

    def build(self, ids_shape):
        self.embedding.build(ids_shape)

    def call(self, ids, training=False):
        mask = ops.not_equal(ids, PAD_ID)
        if training and self.word_dropout:
            drawn = keras.random.uniform(ops.shape(ids), seed=self._seed) < self.word_dropout
            ids = ops.where(ops.logical_and(drawn, mask), UNK_ID, ids)
        return self._dropout(self.embedding(ids), training=training), mask

    def compute_output_spec(self, ids, training=False):
        vectors = keras.KerasTensor((*ids.shape, self.size), self.compute_dtype)
        return vectors, keras.KerasTensor(ids.shape, "bool")

    def get_config(self):
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "size": self.size,
            "dropout": self.dropout,
            "word_dropout": self.word_dropout,
        }


@keras.saving.register_keras_serializable(PACKAGE)
class SelfAttentionBlock(keras.layers.Layer):
    """One layer of self-attention, without a feed-forward network or recurrence.

    `y = LayerNorm(x + Dropout(Attention(x, x)))`

    Args:
        heads: attention heads; they divide the width of the inputs.
        positions: how positions enter the scores, as in `MultiHeadAttention`.
        dropout: rate of dropout.
        **kwargs: arguments of every Keras layer.

    Call arguments:
        inputs: `(B, S, D)`.
        mask: boolean `(B, S)`, True = attend.
        training: whether dropout applies.

    Returns:
        `(B, S, D)`.
    """

    def __init__(self, heads, positions="relative", dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.heads = heads
        self.positions = positions
        self.dropout = dropout
        self.supports_masking = True
        self.norm = keras.layers.LayerNormalization(name="norm", dtype=self.dtype_policy)
        self._dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, inputs_shape):
        self.attention = MultiHeadAttention(
            self.heads,
            inputs_shape[-1] // self.heads,
            positions=self.positions,
            name="attention",
            dtype=self.dtype_policy,
        )
        self.attention.build(inputs_shape)
        self.norm.build(inputs_shape)

    def call(self, inputs, mask=None, training=False):
        attended = self.attention(inputs, inputs, value_mask=mask, training=training)
        return self.norm(inputs + self._dropout(attended, training=training))

    def compute_output_shape(self, inputs_shape):
        return tuple(inputs_shape)

    def get_config(self):
        return {
            **super().get_config(),
            "heads": self.heads,
            "positions": self.positions,
            "dropout": self.dropout,
        }


@keras.saving.register_keras_serializable(PACKAGE)
class Contextual(keras.layers.Layer):
    """Puts what stands around it into each vector: the layers between embedding and pooling.

    Args:
        kind: `"gru"` (bidirectional), `"self-attention"`, `"transformer"`, or `"none"`, which
            leaves the vectors as they are.
        units: width of each direction of the GRU.
        layers: how many attention layers.
        heads: their heads.
        positions: how positions enter them.
        feed_forward: width of the Transformer's feed-forward layers.
        dropout: rate of dropout in attention layers.
        **kwargs: arguments of every Keras layer.

    Call arguments:
        inputs: `(B, S, D)`.
        mask: boolean `(B, S)`, True where there is a word.
        training: whether dropout applies.

    Returns:
        `(B, S, 2 * units)` for `"gru"`, else `(B, S, D)`.
    """

    def __init__(
        self,
        kind="gru",
        units=None,
        layers=1,
        heads=4,
        positions="relative",
        feed_forward=None,
        dropout=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.kind = kind
        self.units = units
        self.layers = layers
        self.heads = heads
        self.positions = positions
        self.feed_forward = feed_forward
        self.dropout = dropout
        self.supports_masking = True

    def build(self, inputs_shape):
        shape = tuple(inputs_shape)
        self.blocks = [self._block(number, shape) for number in range(self._depth())]
        for block in self.blocks:
            block.build(shape)

    def _depth(self):
        return {"none": 0, "gru": 1}.get(self.kind, self.layers)

    def _block(self, number, shape):
        common = {"name": f"block_{number}", "dtype": self.dtype_policy}
        if self.kind == "gru":
            gru = keras.layers.GRU(self.units, return_sequences=True, dtype=self.dtype_policy)
            return keras.layers.Bidirectional(gru, **common)
        if self.kind == "self-attention":
            return SelfAttentionBlock(self.heads, self.positions, self.dropout, **common)
        if self.kind == "transformer":
            return TransformerEncoder(
                self.feed_forward or 4 * shape[-1],
                self.heads,
                dropout=self.dropout,
                positions=self.positions,
                **common,
            )
        raise ValueError(
            "`kind` must be 'gru', 'self-attention', 'transformer' or 'none'. "
            f"Received: kind={self.kind!r}"
        )

    def call(self, inputs, mask=None, training=False):
        for block in self.blocks:
            inputs = block(inputs, mask=mask, training=training)
        return inputs

    def compute_output_shape(self, inputs_shape):
        width = 2 * self.units if self.kind == "gru" else inputs_shape[-1]
        return (*inputs_shape[:-1], width)

    def get_config(self):
        names = ("kind", "units", "layers", "heads", "positions", "feed_forward", "dropout")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
