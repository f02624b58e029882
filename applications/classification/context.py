"""Layers that put into each word's vector what stands around it."""

import keras
from keras import ops

from keras_attention.applications.classification.words import PACKAGE, build_once
from keras_attention.layers import MultiHeadAttention, TransformerEncoder

WIDTHS = (3, 4, 5)


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
class NGrams(keras.layers.Layer):
    """Reads each word with those around it, by convolutions of several widths.

    `y_t = [relu(W_n x_{t-n/2..t+n/2} + b_n) for n in widths]`; beyond the text and in its padding
    the inputs are zeros.

    Args:
        filters: features of each width.
        widths: how many words each convolution sees.
        **kwargs: arguments of every Keras layer.

    Call arguments:
        inputs: `(B, S, D)`.
        mask: boolean `(B, S)`, True where there is a word.

    Returns:
        `(B, S, len(widths) * filters)`.

    Reference:
        Kim 2014, "Convolutional neural networks for sentence classification", section 2, where the
        maximum over the text follows.
    """

    def __init__(self, filters, widths=WIDTHS, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.widths = tuple(widths)
        self.supports_masking = True
        self.convolutions = [
            keras.layers.Conv1D(
                filters,
                width,
                padding="same",
                activation="relu",
                name=f"width_{width}",
                dtype=self.dtype_policy,
            )
            for width in self.widths
        ]

    def build(self, inputs_shape):
        for convolution in self.convolutions:
            build_once(convolution, inputs_shape)

    def call(self, inputs, mask=None):
        if mask is not None:
            inputs = ops.where(ops.expand_dims(mask, 2), inputs, ops.zeros_like(inputs))
        return ops.concatenate([each(inputs) for each in self.convolutions], axis=-1)

    def compute_output_shape(self, inputs_shape):
        return (*inputs_shape[:-1], len(self.widths) * self.filters)

    def get_config(self):
        return {**super().get_config(), "filters": self.filters, "widths": list(self.widths)}


@keras.saving.register_keras_serializable(PACKAGE)
class Contextual(keras.layers.Layer):
    """Puts what stands around it into each vector: the layers between embedding and pooling.

    Args:
        kind: `"gru"` (bidirectional), `"convolution"`, `"self-attention"`, `"transformer"`, or
            `"none"`, which leaves the vectors as they are.
        units: width of each direction of the GRU, or of each of the three convolutions.
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
        `(B, S, 2 * units)` for `"gru"`, `(B, S, 3 * units)` for `"convolution"`, else `(B, S, D)`.
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
        return {"none": 0, "gru": 1, "convolution": 1}.get(self.kind, self.layers)

    def _block(self, number, shape):
        common = {"name": f"block_{number}", "dtype": self.dtype_policy}
        if self.kind == "gru":
            gru = keras.layers.GRU(self.units, return_sequences=True, dtype=self.dtype_policy)
            return keras.layers.Bidirectional(gru, **common)
        if self.kind == "convolution":
            return NGrams(self.units, **common)
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
            "`kind` must be 'gru', 'convolution', 'self-attention', 'transformer' or 'none'. "
            f"Received: kind={self.kind!r}"
        )

    def call(self, inputs, mask=None, training=False):
        for block in self.blocks:
            inputs = block(inputs, mask=mask, training=training)
        return inputs

    def compute_output_shape(self, inputs_shape):
        times = {"gru": 2, "convolution": len(WIDTHS)}.get(self.kind)
        return (*inputs_shape[:-1], times * self.units if times else inputs_shape[-1])

    def get_config(self):
        names = ("kind", "units", "layers", "heads", "positions", "feed_forward", "dropout")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
