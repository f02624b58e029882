"""From the ids of a text, or of a pair, to one vector and the weights of words and sentences."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
from keras import ops

from keras_attention.applications.classification.layers import (
    PACKAGE,
    Contextual,
    Pool,
    WordVectors,
    build_once,
)

SIDES = ("text", "second")
"""What a network's inputs are called."""


class TextEncoder(keras.layers.Layer):
    """Base of the encoders: layers are given whole, and kept in the configuration.

    A subclass names its layers in `parts`, in the order of its constructor.

    Call arguments:
        inputs: a dictionary of ids, 0 is padding: `text` `(B, S)` or `(B, N, W)`, and for pairs
            `second`.
        training: whether dropout applies.

    Returns:
        The vector `(B, D)`, and a dictionary of weights: `words` `(B, S)` or `(B, N, W)`,
        `sentences` `(B, N)`, and for pairs `second`.
    """

    parts: ClassVar[tuple[str, ...]] = ()
    rank: ClassVar[int] = 2
    """Axes of the ids of a text: 3 where it is read in sentences."""
    text_counts: ClassVar[tuple[int, ...]] = (1,)
    """How many texts an example may have: 1, or 2 for pairs."""

    def __init__(self, *layers: keras.layers.Layer, **kwargs: Any):
        given = {name: kwargs.pop(name) for name in self.parts if name in kwargs}
        super().__init__(**kwargs)
        given |= dict(zip(self.parts, layers, strict=False))
        if set(given) != set(self.parts) or len(layers) > len(self.parts):
            raise ValueError(
                f"A {type(self).__name__} takes the layers {', '.join(self.parts)}. "
                f"Received: {len(layers)} layers and {sorted(given)}"
            )
        for name in self.parts:
            setattr(self, name, given[name])

    @property
    def vocabulary_size(self) -> int | None:
        """How many ids there are, padding included; None where any id will do."""
        return self.vectors.vocabulary_size

    @property
    def has_attention(self) -> bool:
        """Whether the weights say what the encoder attends to: those of a mean do not."""
        return self.pool.kind == "attention"

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            **{name: serialize(getattr(self, name)) for name in self.parts},
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "TextEncoder":
        revive = keras.saving.deserialize_keras_object
        return cls(**{k: revive(v) if k in cls.parts else v for k, v in config.items()})


@keras.saving.register_keras_serializable(PACKAGE)
class FlatEncoder(TextEncoder):
    """A text as one sequence of words: embedded, read in context, pooled.

    Args:
        vectors: a `WordVectors`.
        context: a `Contextual`.
        pool: a `Pool`.
    """

    parts = ("vectors", "context", "pool")

    vectors: WordVectors
    context: Contextual
    pool: Pool

    def build(self, inputs_shape):
        _build_chain(inputs_shape["text"], self.vectors, self.context, self.pool)

    def call(self, inputs, training=False):
        vectors, mask = self.vectors(inputs["text"], training=training)
        states = self.context(vectors, mask=mask, training=training)
        vector, weights = self.pool(states, mask)
        return vector, {"words": weights}


@keras.saving.register_keras_serializable(PACKAGE)
class HierarchicalEncoder(TextEncoder):
    """A text as sentences of words: words are pooled to sentences, these to the text.

    Args:
        vectors: a `WordVectors`.
        context: a `Contextual` of words.
        pool: a `Pool` of words.
        sentence_context: a `Contextual` of sentences.
        sentence_pool: a `Pool` of sentences.

    Reference:
        Yang et al. 2016, "Hierarchical attention networks for document classification", section 2.
    """

    parts = ("vectors", "context", "pool", "sentence_context", "sentence_pool")
    rank = 3

    def build(self, inputs_shape):
        batch_size, sentences, words = inputs_shape["text"]
        width = _build_chain((None, words), self.vectors, self.context, self.pool)
        shape = (batch_size, sentences, width)
        build_once(self.sentence_context, shape)
        build_once(self.sentence_pool, self.sentence_context.compute_output_shape(shape))

    def call(self, inputs, training=False):
        ids = inputs["text"]
        batch_size, sentences, words = ops.shape(ids)
        flat = ops.reshape(ids, (batch_size * sentences, words))
        vectors, mask = self.vectors(flat, training=training)
        states = self.context(vectors, mask=mask, training=training)
        pooled, word_weights = self.pool(states, mask)
        shape = (batch_size, sentences, pooled.shape[-1])
        of_sentences = ops.reshape(pooled, shape)
        is_sentence = ops.reshape(ops.any(mask, axis=1), (batch_size, sentences))
        states = self.sentence_context(of_sentences, mask=is_sentence, training=training)
        vector, sentence_weights = self.sentence_pool(states, is_sentence)
        return vector, {
            "words": ops.reshape(word_weights, (batch_size, sentences, words)),
            "sentences": sentence_weights,
        }


class PairEncoder(TextEncoder):
    """Base of the pair encoders: one network for both texts, then a layer over their comparison.

    With `u` and `v` the vectors of the two texts: `tanh(W [u; v; |u - v|; u ∘ v] + b)`.
    """

    text_counts = (2,)
    has_attention = True

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


def _build_chain(ids_shape, vectors, context, pool):
    """Build the layers from ids to a pooled vector; return its width."""
    build_once(vectors, ids_shape)
    shape = (*ids_shape, vectors.size)
    build_once(context, shape)
    shape = context.compute_output_shape(shape)
    build_once(pool, shape)
    return shape[-1] * (2 if pool.with_maximum else 1)
