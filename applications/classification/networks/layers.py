"""The layers between ids and a vector: words embedded, read in context, pooled."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention.layers import AttentionPooling, MultiHeadAttention, TransformerEncoder

from ...base.network import Part, bidirectional_gru
from ...errors import check_choice
from ...text import PAD_ID, UNK_ID

PACKAGE = "keras_attention.classification"
WIDTHS = (3, 4, 5)
"""How many words each convolution sees."""
CHANNELS = ("tuned", "static", "both")
"""How training treats the vectors of words: it changes them, keeps them, or has one of each."""
CONTEXTS = ("gru", "convolution", "self-attention", "transformer", "none")
POOLS = ("attention", "mean")


@keras.saving.register_keras_serializable(PACKAGE)
class WordVectors(Part):
    """Embeds words; in training some are made unknown, and features are dropped.

    Args:
        vocabulary_size: how many ids there are, padding included.
        size: width `E` of the embeddings.
        dropout: rate of dropout on the embeddings.
        word_dropout: the part of the words made unknown in training.
        channels: what training does to the vectors: `"tuned"` changes them, `"static"` leaves them
            as they are, and with `"both"` a word has one of each, joined.
        **kwargs: arguments of every Keras layer.

    Call arguments:
        ids: `(B, S)`, 0 is padding.
        training: whether anything is dropped.

    Returns:
        The vectors `(B, S, E)`, of both channels `(B, S, 2E)`, and the mask `(B, S)`, True where
        there is a word.

    Reference:
        Kim 2014, "Convolutional neural networks for sentence classification", section 2.1 (there
        filters add up what they read of the two; here each has weights of its own for them).
    """

    def __init__(
        self,
        vocabulary_size: int,
        size: int,
        dropout: float = 0.0,
        word_dropout: float = 0.0,
        channels: str = "tuned",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_choice("channels", channels, CHANNELS)
        self.keep(vocabulary_size=vocabulary_size, size=size, channels=channels)
        self.keep(dropout=dropout, word_dropout=word_dropout)

        def embedding(name, trainable):
            start = keras.initializers.RandomUniform(-0.25, 0.25)
            options = {"name": name, "trainable": trainable, "dtype": self.dtype_policy}
            return keras.layers.Embedding(vocabulary_size, size, start, **options)

        self.embedding = embedding("embedding", channels != "static")
        self.static = embedding("static", False) if channels == "both" else None
        self._dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self._seed = keras.random.SeedGenerator() if word_dropout else None

    def call(self, ids, training=False):
        mask = ops.not_equal(ids, PAD_ID)
        if training and self.word_dropout:
            drawn = keras.random.uniform(ops.shape(ids), seed=self._seed) < self.word_dropout
            ids = ops.where(ops.logical_and(drawn, mask), UNK_ID, ids)
        vectors = self.embedding(ids)
        if self.static is not None:
            vectors = ops.concatenate([vectors, self.static(ids)], axis=-1)
        return self._dropout(vectors, training=training), mask

    def set_vectors(self, vectors: np.ndarray) -> None:
        """Set the vectors of words, `(vocabulary_size, size)`, of each channel."""
        for each in (self.embedding, self.static):
            if each is not None:
                each.embeddings.assign(vectors)


@keras.saving.register_keras_serializable(PACKAGE)
class SelfAttentionBlock(Part):
    """Self-attention without feed-forward: `y = LayerNorm(x + Dropout(Attention(x, x)))`."""

    def __init__(
        self, heads: int, positions: str = "relative", dropout: float = 0.0, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.keep(heads=heads, positions=positions, dropout=dropout)
        self.supports_masking = True
        self.norm = keras.layers.LayerNormalization(name="norm", dtype=self.dtype_policy)
        self._dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, inputs_shape):
        size = inputs_shape[-1] // self.heads
        common = {"name": "attention", "dtype": self.dtype_policy}
        self.attention = MultiHeadAttention(self.heads, size, positions=self.positions, **common)

    def call(self, inputs, mask=None, training=False, return_attention_scores=False):
        common = {"value_mask": mask, "training": training}
        attended = self.attention(
            inputs, inputs, return_attention_scores=return_attention_scores, **common
        )
        attended, scores = attended if return_attention_scores else (attended, None)
        outputs = self.norm(inputs + self._dropout(attended, training=training))
        return (outputs, scores) if return_attention_scores else outputs


@keras.saving.register_keras_serializable(PACKAGE)
class NGrams(Part):
    """Reads each word with those around it, by convolutions of several widths.

    `y_t = [relu(W_n x_{t-n/2..t+n/2} + b_n) for n in widths]`; beyond the text and in its padding
    the inputs are zeros. Kim 2014, "Convolutional neural networks for sentence classification",
    section 2, where the maximum over the text follows.
    """

    def __init__(self, filters: int, widths: Sequence[int] = WIDTHS, **kwargs: Any):
        super().__init__(**kwargs)
        self.keep(filters=filters, widths=list(widths))
        self.supports_masking = True
        common = {"padding": "same", "activation": "relu", "dtype": self.dtype_policy}
        self.convolutions = [
            keras.layers.Conv1D(filters, width, name=f"width_{width}", **common)
            for width in self.widths
        ]

    def call(self, inputs, mask=None):
        if mask is not None:
            inputs = ops.where(ops.expand_dims(mask, 2), inputs, ops.zeros_like(inputs))
        return ops.concatenate([each(inputs) for each in self.convolutions], axis=-1)


@keras.saving.register_keras_serializable(PACKAGE)
class Contextual(Part):
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
        return_attention_scores: whether the weights of the attention layers come, too.

    Returns:
        `(B, S, 2 * units)` for `"gru"`, `(B, S, 3 * units)` for `"convolution"`, else `(B, S, D)`;
        with the weights, where asked for, `(B, layers, heads, S, S)`.
    """

    def __init__(
        self,
        kind: str = "gru",
        units: int | None = None,
        layers: int = 1,
        heads: int = 4,
        positions: str = "relative",
        feed_forward: int | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_choice("kind", kind, CONTEXTS)
        self.keep(kind=kind, units=units, layers=layers, heads=heads, positions=positions)
        self.keep(feed_forward=feed_forward, dropout=dropout)
        self.supports_masking = True

    def build(self, inputs_shape):
        depth = {"none": 0, "gru": 1, "convolution": 1}.get(self.kind, self.layers)
        self.blocks = [self._block(number, inputs_shape[-1]) for number in range(depth)]

    def _block(self, number, width):
        common = {"name": f"block_{number}", "dtype": self.dtype_policy}
        if self.kind == "gru":
            return bidirectional_gru(self.units, **common)
        if self.kind == "convolution":
            return NGrams(self.units, **common)
        common |= {"positions": self.positions, "dropout": self.dropout}
        if self.kind == "self-attention":
            return SelfAttentionBlock(self.heads, **common)
        return TransformerEncoder(self.feed_forward or 4 * width, self.heads, **common)

    @property
    def has_heads(self) -> bool:
        """Whether its layers are of attention, whose weights can be asked for."""
        return self.kind in ("self-attention", "transformer")

    def call(self, inputs, mask=None, training=False, return_attention_scores=False):
        more, found = ({"return_attention_scores": True} if return_attention_scores else {}), []
        for block in self.blocks:
            inputs = block(inputs, mask=mask, training=training, **more)
            if return_attention_scores:
                inputs, scores = inputs
                found.append(scores)
        return (inputs, ops.stack(found, axis=1)) if return_attention_scores else inputs


@keras.saving.register_keras_serializable(PACKAGE)
class Pool(Part):
    """Sums a sequence to one vector.

    Args:
        kind: `"attention"`, by `AttentionPooling`, or `"mean"`.
        units: width of the attention's hidden layer.
        with_maximum: whether the maximum of each feature is joined to it.
        **kwargs: arguments of every Keras layer.

    Call arguments:
        inputs: `(B, S, D)`.
        mask: boolean `(B, S)`, True where there is a word.

    Returns:
        The vector `(B, D)`, with the maximum `(B, 2D)`, and the weights `(B, S)`, which a mean has
        too: all alike. Where everything is masked, both are zeros.
    """

    def __init__(
        self,
        kind: str = "attention",
        units: int | None = None,
        with_maximum: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_choice("kind", kind, POOLS)
        self.keep(kind=kind, units=units, with_maximum=with_maximum)
        self.supports_masking = True
        self.attention = None
        if kind == "attention":
            self.attention = AttentionPooling(units, name="attention", dtype=self.dtype_policy)

    def call(self, inputs, mask):
        if self.attention is not None:
            pooled, weights = self.attention(inputs, mask=mask, return_attention_scores=True)
        else:
            pooled, weights = mean_of(inputs, mask)
        if self.with_maximum:
            pooled = ops.concatenate([pooled, _maximum_of(inputs, mask)], axis=-1)
        return pooled, weights

    def compute_mask(self, inputs, previous_mask=None):
        return None  # no steps are left to mask


def mean_of(inputs, mask):
    """Return the mean `(B, D)` over what is not masked, and the weights `(B, S)`; else zeros."""
    weights = ops.cast(mask, inputs.dtype)
    weights /= ops.maximum(ops.sum(weights, axis=1, keepdims=True), 1)
    return ops.einsum("bs,bsd->bd", weights, inputs), weights


def _maximum_of(inputs, mask):
    """Return the maximum of each feature over what is not masked; 0 where all is."""
    lowest = ops.min(inputs, axis=1, keepdims=True)
    found = ops.max(ops.where(ops.expand_dims(mask, 2), inputs, lowest), axis=1)
    return ops.where(ops.any(mask, axis=1, keepdims=True), found, ops.zeros_like(found))
