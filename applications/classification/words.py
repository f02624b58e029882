"""Layers that read words: ids in, a vector for each word and a mask out."""

import keras
from keras import ops

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
