"""The base of the networks of answer selection, which give each candidate a score."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from ..common.network import Network


class AnswerNetwork(Network):
    """Base of the networks: it embeds the words, and a subclass writes `score`.

    Args:
        vocabulary_size: how many ids there are; 0 is padding.
        embedding_size: the size of a word's vector.
        dropout: rate of the dropout on word vectors.
        trainable_vectors: whether training changes the vectors of words.
        **kwargs: `name`, `dtype` and the like of `Network`.
    """

    log_odds: bool
    """Whether scores are logits, which the losses of probabilities take."""
    has_weights: bool
    """Whether the network gives weights to the words of a candidate."""

    def __init__(
        self,
        vocabulary_size: int,
        embedding_size: int,
        dropout: float,
        trainable_vectors: bool,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.keep(vocabulary_size=vocabulary_size, embedding_size=embedding_size)
        self.keep(trainable_vectors=trainable_vectors)
        self.dropout_rate = dropout
        policy = {"dtype": self.dtype_policy}
        self.embedding = keras.layers.Embedding(
            vocabulary_size, embedding_size, trainable=trainable_vectors, name="vectors", **policy
        )
        self.dropout = keras.layers.Dropout(dropout, **policy)

    def call(self, inputs, training=False):
        return self.score(inputs, training)[0]

    def score(self, inputs: Mapping[str, Any], training: bool = False) -> tuple[Any, Any]:
        """Return scores `(B, N)` and weights of the candidates' words, or None.

        Weights are `(B, N, T)`, or of each word of the question `(B, N, S, T)`.
        """
        raise NotImplementedError

    def pairs(self, inputs: Mapping[str, Any], training: bool) -> tuple[Any, Any, tuple]:
        """Return questions `(B, S, E)`, candidates `(B N, T, E)`, with masks, and the shape."""
        question, candidates = inputs["question"], inputs["candidates"]
        shape = tuple(ops.shape(candidates)[axis] for axis in range(3))
        candidates = ops.reshape(candidates, (-1, shape[2]))
        return self._embedded(question, training), self._embedded(candidates, training), shape

    def _embedded(self, ids, training):
        return self.dropout(self.embedding(ids), training=training), ops.not_equal(ids, 0)

    def set_vectors(self, vectors: np.ndarray) -> None:
        """Set the vectors of words, `(vocabulary_size, embedding_size)`."""
        self.embedding.embeddings.assign(vectors)

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout_rate}
