"""What reads a text: a GRU, with attention inside of it, after it, or none."""

import keras
from keras import ops

from keras_attention.layers import BahdanauAttention, InnerAttentionGRU


@keras.saving.register_keras_serializable("keras_attention")
class Reader(keras.layers.Layer):
    """Reads embedded words, with a query or without, into a vector.

    The weights of `"word"` and `"context"` are near a half for all words when training begins.
    Words are doubled before they are weighed, so that such a reader begins as the plain GRU does.

    Args:
        units: the size of a state; twice of it with `bidirectional`.
        attention: `None`; `"outer"`, over the states; or the kind of an `InnerAttentionGRU`,
            `"word"`, `"context"` or `"gate"`.
        pooling: `"mean"` or `"max"` over the states.
        bidirectional: read in both directions.
        attention_units: the size of the hidden layer of `"outer"`.
        occam: add Occam's penalty (`"word"` and `"context"` only).
        occam_minimum: its least price of a word.

    Call arguments:
        inputs: embedded words `(B, T, D)`.
        mask: boolean `(B, T)`, True = a word.
        query: `(B, Q)`; None reads without one. An inner attention then has a query of zeros: for
            `"word"` all weights are a half, and words are read as they are.

    Returns:
        Vectors `(B, U)`, and weights `(B, T)` of the words, zeros where masked; None where the
        attention gives none.
    """

    def __init__(
        self,
        units,
        attention=None,
        pooling="mean",
        bidirectional=False,
        attention_units=None,
        occam=False,
        occam_minimum=0.001,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.units = units
        self.attention = attention
        self.pooling = pooling
        self.bidirectional = bidirectional
        self.attention_units = attention_units
        self.occam = occam
        self.occam_minimum = occam_minimum
        self.supports_masking = True
        directions = (False, True) if bidirectional else (False,)
        self.nets = [self._net(backwards) for backwards in directions]
        self.outer = None
        if attention == "outer":
            self.outer = BahdanauAttention(attention_units or units, name="outer")

    def build(self, inputs_shape, query_size):
        for net in self.nets:
            if self._is_inner:
                net.build(inputs_shape, (inputs_shape[0], query_size))
            else:
                net.build(inputs_shape)
        if self.outer is not None:
            states = (*inputs_shape[:2], self.size)
            self.outer.build((inputs_shape[0], 1, query_size), states)
        self.built = True

    def call(self, inputs, mask, query=None, training=False):
        with_weights = self.attention in ("word", "context")
        inputs = 2.0 * inputs if with_weights else inputs
        results = []
        for net in self.nets:
            if self._is_inner:
                size = self.query_size
                asked = ops.zeros((ops.shape(inputs)[0], size)) if query is None else query
                result = net(
                    inputs,
                    asked,
                    mask=mask,
                    training=training,
                    return_attention_scores=with_weights,
                )
            else:
                result = net(inputs, mask=mask, training=training)
            states, weights = result if with_weights else (result, None)
            results.append((ops.flip(states, axis=1) if net.go_backwards else states, weights))
        states = ops.concatenate([states for states, _ in results], axis=-1)
        weights = None
        if with_weights:
            weights = sum(weights for _, weights in results) / len(results)
        if self.outer is not None and query is not None:
            return self._outer(states, mask, query)
        return self._pool(states, mask), weights

    @property
    def size(self):
        """The size of the vectors."""
        return self.units * len(self.nets)

    @property
    def query_size(self):
        """The size of the query that an inner attention was built for."""
        cell = self.nets[0].cell
        return cell.query_size

    @property
    def _is_inner(self):
        return self.attention in ("word", "context", "gate")

    def _net(self, backwards):
        settings = {
            "return_sequences": True,
            "go_backwards": backwards,
            "name": "backwards" if backwards else "forwards",
        }
        if not self._is_inner:
            return keras.layers.GRU(self.units, **settings)
        if self.occam:
            settings |= {"occam": True, "occam_minimum": self.occam_minimum}
        return InnerAttentionGRU(self.units, attention=self.attention, **settings)

    def _outer(self, states, mask, query):
        context, weights = self.outer(
            ops.expand_dims(query, 1), states, value_mask=mask, return_attention_scores=True
        )
        weights = weights[:, 0]
        if self.pooling == "mean":  # the weights sum to 1: their mean is the context
            return context[:, 0], weights
        count = ops.sum(ops.cast(mask, states.dtype), axis=1)[:, None, None]
        return self._pool(states * ops.expand_dims(weights, 2) * count, mask), weights

    def _pool(self, states, mask):
        real = ops.expand_dims(mask, 2)
        if self.pooling == "max":
            lowest = ops.full_like(states, -1e9)
            highest = ops.max(ops.where(real, states, lowest), axis=1)
            return ops.where(ops.any(mask, axis=1, keepdims=True), highest, 0.0)
        count = ops.maximum(ops.sum(ops.cast(mask, states.dtype), axis=1, keepdims=True), 1.0)
        return ops.sum(ops.where(real, states, 0.0), axis=1) / count

    def get_config(self):
        names = (
            *("units", "attention", "pooling", "bidirectional"),
            *("attention_units", "occam", "occam_minimum"),
        )
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
