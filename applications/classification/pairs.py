"""Encoders of pairs of texts: each attends to the other, or is read under its question."""

import keras
from keras import ops

from keras_attention.applications.classification.encoders import TextEncoder
from keras_attention.applications.classification.model_config import ModelConfig
from keras_attention.applications.classification.pools import Pool
from keras_attention.applications.classification.words import PACKAGE, build_once
from keras_attention.layers import InnerAttentionGRU, LuongAttention

SIDES = ("text", "second")


class PairEncoder(TextEncoder):
    """Base of the pair encoders: one network for both texts, then a layer over their comparison.

    With `u` and `v` the vectors of the two texts: `tanh(W [u; v; |u - v|; u ∘ v] + b)`.
    """

    def call(self, inputs, training=False):
        ids = [inputs[side] for side in SIDES]
        # Both texts in one batch, the first ones before the second: half as many loops.
        vectors, mask = self.vectors(_stacked(ids), training=training)
        states = self.context(vectors, mask=mask, training=training)
        others = (_exchanged(states), _exchanged(mask))
        read, weights = self.read(states, mask, *others, training)
        first, second = _halves(read)
        compared = [first, second, ops.abs(first - second), first * second]
        vector = self.compare(ops.concatenate(compared, axis=-1))
        shown = [w[:, : ops.shape(i)[1]] for w, i in zip(_halves(weights), ids, strict=True)]
        return vector, {"words": shown[0], "second": shown[1]}

    def read(self, states, mask, other, other_mask, training):
        """Return the vectors of texts, each beside its other, and the weights of their words."""
        raise NotImplementedError

    def _build_reading(self, inputs_shape):
        """Build the layers of both texts; return the shape of the states."""
        shape = (*inputs_shape["text"], self.vectors.size)
        build_once(self.vectors, inputs_shape["text"])
        build_once(self.context, shape)
        return self.context.compute_output_shape(shape)


@keras.saving.register_keras_serializable(PACKAGE)
class CrossEncoder(PairEncoder):
    """Each word attends to the other text; what it finds is compared with it, read and pooled.

    With `c` what word state `h` finds: `m = relu(W [h; c; h - c; h ∘ c] + b)`, in both directions
    with the same weights.

    Args:
        vectors: a `WordVectors`.
        context: a `Contextual` of words.
        cross: the attention of a text's words over the other's.
        match: a layer over what a word and what it found have in common.
        composition: a `Contextual` of matched words.
        pool: a `Pool`.
        compare: a layer over the vectors of both texts.

    Reference:
        Parikh et al. 2016, "A decomposable attention model for natural language inference"; Chen
        et al. 2017, "Enhanced LSTM for natural language inference", sections 3.2 and 3.3.
    """

    parts = ("vectors", "context", "cross", "match", "composition", "pool", "compare")

    def build(self, inputs_shape):
        shape = self._build_reading(inputs_shape)
        build_once(self.cross, shape, shape)
        build_once(self.match, (*shape[:-1], 4 * shape[-1]))
        shape = (*shape[:-1], self.match.units)
        build_once(self.composition, shape)
        shape = self.composition.compute_output_shape(shape)
        build_once(self.pool, shape)
        width = shape[-1] * (2 if self.pool.with_maximum else 1)
        build_once(self.compare, (shape[0], 4 * width))

    def read(self, states, mask, other, other_mask, training):
        found = self.cross(states, other, value_mask=other_mask, training=training)
        features = [states, found, states - found, states * found]
        matched = self.match(ops.concatenate(features, axis=-1))
        composed = self.composition(matched, mask=mask, training=training)
        return self.pool(composed, mask)


@keras.saving.register_keras_serializable(PACKAGE)
class InnerEncoder(PairEncoder):
    """Each text is read, forward and back, by GRUs whose words are weighed by the other text.

    The question from the other text is the mean of its word states.

    Args:
        vectors: a `WordVectors`.
        context: a `Contextual` of words.
        forward: an `InnerAttentionGRU`.
        backward: the same with `go_backwards`.
        pool: a `Pool` of the states.
        compare: a layer over the vectors of both texts.

    Reference:
        Wang, Liu and Zhao 2016, "Inner attention based recurrent neural networks for answer
        selection", where one text of the pair, the answer, is read so.
    """

    parts = ("vectors", "context", "forward", "backward", "pool", "compare")

    def build(self, inputs_shape):
        shape = self._build_reading(inputs_shape)
        for layer in (self.forward, self.backward):
            build_once(layer, shape, (shape[0], shape[-1]))
        shape = (*shape[:-1], 2 * self.forward.cell.units)
        build_once(self.pool, shape)
        width = shape[-1] * (2 if self.pool.with_maximum else 1)
        build_once(self.compare, (shape[0], 4 * width))
        self.question = Pool("mean", name="question", dtype=self.dtype_policy)

    def read(self, states, mask, other, other_mask, training):
        question, _ = self.question(other, other_mask)
        common = {"mask": mask, "training": training, "return_attention_scores": True}
        forward, weights = self.forward(states, query=question, **common)
        backward, back_weights = self.backward(states, query=question, **common)
        both = ops.concatenate([forward, ops.flip(backward, axis=1)], axis=-1)
        vector, _ = self.pool(both, mask)
        return vector, (weights + back_weights) / 2


def build_pair_encoder(config: ModelConfig, vectors, make_context, make_pool) -> PairEncoder:
    """Return the encoder that a configuration describes, not built yet.

    Args:
        config: the `model` section.
        vectors: the layer that embeds words.
        make_context: from the configuration and a name to a `Contextual`.
        make_pool: from the configuration and a name to a `Pool`.
    """
    context, pool = make_context(config, "context"), make_pool(config, "pool")
    compare = keras.layers.Dense(config.units, activation="tanh", name="compare")
    if config.architecture == "cross":
        cross = LuongAttention("general", kernel_initializer="glorot_uniform", name="cross")
        match = keras.layers.Dense(config.units, activation="relu", name="match")
        composition = make_context(config, "composition")
        layers = [vectors, context, cross, match, composition, pool, compare]
        return CrossEncoder(*layers, name="encoder")
    grus = [
        InnerAttentionGRU(
            config.units,
            attention=config.chosen("inner_attention"),
            return_sequences=True,
            go_backwards=name == "backward",
            name=name,
        )
        for name in ("forward", "backward")
    ]
    return InnerEncoder(vectors, context, *grus, pool, compare, name="encoder")


def _stacked(ids):
    """Return the ids of both texts as one batch `(2B, S)`, the shorter ones padded."""
    batch_size = ops.shape(ids[0])[0]
    sizes = [ops.shape(each)[1] for each in ids]
    padding = [
        ops.zeros((batch_size, ops.maximum(0, other - own)), each.dtype)
        for each, own, other in zip(ids, sizes, reversed(sizes), strict=True)
    ]
    padded = [ops.concatenate(both, axis=1) for both in zip(ids, padding, strict=True)]
    return ops.concatenate(padded, axis=0)


def _halves(tensor):
    size = ops.shape(tensor)[0] // 2
    return tensor[:size], tensor[size:]


def _exchanged(tensor):
    """Return a batch whose rows are those of the other text of the pair."""
    return ops.concatenate(list(reversed(_halves(tensor))), axis=0)
