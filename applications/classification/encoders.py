"""From the ids of a text to one vector, and the weights of its words and sentences."""

import keras
from keras import ops

from keras_attention.applications.classification.context import Contextual
from keras_attention.applications.classification.pools import Pool
from keras_attention.applications.classification.words import (
    PACKAGE,
    WordVectors,
    build_once,
)


class TextEncoder(keras.layers.Layer):
    """Base of the encoders: layers are given whole, and kept in the configuration.

    A subclass names its layers in `parts`, in the order of its constructor.

    Call arguments:
        inputs: a dictionary with `text`, and for pairs `second`.
        training: whether dropout applies.

    Returns:
        The vector `(B, D)`, and a dictionary of weights: `words` `(B, S)` or `(B, N, W)`,
        `sentences` `(B, N)`, and for pairs `second`.
    """

    parts: tuple[str, ...] = ()

    def __init__(self, *layers, **kwargs):
        given = {name: kwargs.pop(name) for name in self.parts if name in kwargs}
        super().__init__(**kwargs)
        given |= dict(zip(self.parts, layers, strict=False))
        for name in self.parts:
            setattr(self, name, given[name])

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            **{name: serialize(getattr(self, name)) for name in self.parts},
        }

    @classmethod
    def from_config(cls, config):
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
    """A text as sentences of words (Yang et al. 2016): words become sentences, these the text.

    Args:
        vectors: a `WordVectors`.
        context: a `Contextual` of words.
        pool: a `Pool` of words.
        sentence_context: a `Contextual` of sentences.
        sentence_pool: a `Pool` of sentences.
    """

    parts = ("vectors", "context", "pool", "sentence_context", "sentence_pool")

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


def _build_chain(ids_shape, vectors, context, pool):
    """Build the layers from ids to a pooled vector; return its width."""
    build_once(vectors, ids_shape)
    shape = (*ids_shape, vectors.size)
    build_once(context, shape)
    shape = context.compute_output_shape(shape)
    build_once(pool, shape)
    return shape[-1] * (2 if pool.with_maximum else 1)
