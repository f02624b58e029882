"""From a vector for each word to one vector: by attention, or by a mean."""

import keras
from keras import ops

from keras_attention.applications.classification.words import PACKAGE
from keras_attention.layers import AttentionPooling


@keras.saving.register_keras_serializable(PACKAGE)
class Pool(keras.layers.Layer):
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

    def __init__(self, kind="attention", units=None, with_maximum=False, **kwargs):
        super().__init__(**kwargs)
        self.kind = kind
        self.units = units
        self.with_maximum = with_maximum
        self.supports_masking = True
        self.attention = None
        if kind == "attention":
            self.attention = AttentionPooling(units, name="attention", dtype=self.dtype_policy)

    def build(self, inputs_shape):
        if self.attention is not None:
            self.attention.build(inputs_shape)

    def call(self, inputs, mask):
        if self.attention is not None:
            pooled, weights = self.attention(inputs, mask=mask, return_attention_scores=True)
        else:
            weights = ops.cast(mask, inputs.dtype)
            weights /= ops.maximum(ops.sum(weights, axis=1, keepdims=True), 1)
            pooled = ops.einsum("bs,bsd->bd", weights, inputs)
        if self.with_maximum:
            pooled = ops.concatenate([pooled, _maximum(inputs, mask)], axis=-1)
        return pooled, weights

    def compute_mask(self, inputs, previous_mask=None):
        return None  # no steps are left to mask

    def compute_output_spec(self, inputs, mask):
        width = inputs.shape[-1] * (2 if self.with_maximum else 1)
        pooled = keras.KerasTensor((inputs.shape[0], width), self.compute_dtype)
        return pooled, keras.KerasTensor(inputs.shape[:2], self.compute_dtype)

    def get_config(self):
        names = ("kind", "units", "with_maximum")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def _maximum(inputs, mask):
    """Return the maximum of each feature over what is not masked; 0 where all is."""
    lowest = ops.min(inputs, axis=1, keepdims=True)
    kept = ops.where(ops.expand_dims(mask, 2), inputs, lowest)
    found = ops.max(kept, axis=1)
    return ops.where(ops.any(mask, axis=1, keepdims=True), found, ops.zeros_like(found))
