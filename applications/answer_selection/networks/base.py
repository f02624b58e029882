"""The base of the networks of answer selection, which give each candidate a score."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from ...arguments import KeepsArguments
from ...base.network import Network, with_matches


@keras.saving.register_keras_serializable("keras_attention")
class WordMatch(KeepsArguments, keras.layers.Layer):
    """Scores candidates by the words of the question that they have.

    Word vectors cannot tell a name from another of its kind: that a candidate has the very word
    says it. Each word of the question has a price, which its vector sets:

    $$p_s = \\sigma(w^\\top x_s + b), \\qquad m = \\sum_s p_s\\,[x_s \\in y], \\qquad
    \\mathrm{score} = u_1 m + u_2\\, m / \\sum_s p_s$$

    Args:
        start: u when training begins.
        **kwargs: `name`, `dtype` and the like of `keras.layers.Layer`.

    Call arguments:
        inputs: embedded words of questions `(B, S, E)`.
        question: their ids `(B, S)`, 0 is padding.
        candidates: ids `(B, N, T)`.

    Returns:
        Scores `(B, N)`.

    References:
        - [Yu et al., 2014](https://arxiv.org/abs/1412.1632), section 3.3 (counts of shared words,
          plain and weighted)
        - [Severyn and Moschitti, 2015](https://doi.org/10.1145/2766462.2767738), section 3.2
    """

    def __init__(self, start: float = 1.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.keep(start=start)

    def build(self, inputs_shape, *_):
        policy = {"dtype": self.dtype_policy}
        self.price = keras.layers.Dense(1, "sigmoid", name="price", **policy)
        self.price.build((None, None, inputs_shape[-1]))
        start = keras.initializers.Constant(self.start)
        self.weight = self.add_weight((2,), initializer=start, name="weight")
        self.built = True

    def call(self, inputs, question, candidates):
        asked = ops.not_equal(question, 0)
        prices = ops.where(asked, self.price(inputs)[..., 0], 0.0)
        shared = ops.equal(question[:, None, :, None], candidates[:, :, None, :])
        found = ops.sum(ops.where(ops.any(shared, axis=3), prices[:, None], 0.0), axis=2)
        part = found / (ops.sum(prices, axis=1, keepdims=True) + 1e-6)
        return self.weight[0] * found + self.weight[1] * part


class AnswerNetwork(Network):
    """Base of the networks: it embeds the words, and a subclass writes `score`.

    Args:
        vocabulary_size: how many ids there are; 0 is padding.
        embedding_size: the size of a word's vector.
        dropout: rate of the dropout on word vectors.
        trainable_vectors: whether training changes the vectors of words.
        word_match: whether a `WordMatch` adds to the scores.
        exact_match: whether a number beside each word's vector says that the other side has the
            very word.
        match_start: the weights of that `WordMatch` when training begins.
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
        word_match: bool = False,
        exact_match: bool = False,
        match_start: float = 1.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.keep(vocabulary_size=vocabulary_size, embedding_size=embedding_size)
        self.keep(trainable_vectors=trainable_vectors, word_match=word_match)
        self.keep(exact_match=exact_match)
        self.dropout_rate = dropout
        policy = {"dtype": self.dtype_policy}
        self.embedding = keras.layers.Embedding(
            vocabulary_size, embedding_size, trainable=trainable_vectors, name="vectors", **policy
        )
        self.dropout = keras.layers.Dropout(dropout, **policy)
        self.match = WordMatch(match_start, name="match", **policy) if word_match else None

    def call(self, inputs, training=False):
        return self.score(inputs, training)[0]

    def score(self, inputs: Mapping[str, Any], training: bool = False) -> tuple[Any, Any]:
        """Return scores `(B, N)` and weights of the candidates' words, or None.

        Weights are `(B, N, T)`, or of each word of the question `(B, N, S, T)`.
        """
        raise NotImplementedError

    @property
    def word_size(self) -> int:
        """How many numbers a word is read from."""
        return self.embedding_size + self.exact_match

    def pairs(self, inputs: Mapping[str, Any], training: bool) -> tuple[Any, Any, tuple]:
        """Return questions and candidates, each vectors and a mask, and the candidates' shape.

        Vectors are `(B, S, E)` and `(B N, T, E)`; with `exact_match` those of questions are
        `(B N, S, E)`, as each candidate has other words in common with its question.
        """
        question, candidates = inputs["question"], inputs["candidates"]
        shape = tuple(ops.shape(candidates)[axis] for axis in range(3))
        candidates = ops.reshape(candidates, (-1, shape[2]))
        if self.exact_match:
            question = ops.repeat(question, shape[1], axis=0)
        sides = (question, candidates), (candidates, question)
        asked, words = (self._embedded(*side, training) for side in sides)
        return asked, words, shape

    def for_candidates(self, asked: Any, count: Any) -> Any:
        """Return what `pairs` gave of questions, or what was made of it, for each candidate."""
        return asked if self.exact_match else ops.repeat(asked, count, axis=0)

    def build_words(self) -> None:
        """Make the weights of words."""
        self.embedding.build((None, None))
        if self.match is not None:
            self.match.build((None, None, self.embedding_size))

    def with_match(self, scores: Any, inputs: Mapping[str, Any]) -> Any:
        """Return scores `(B, N)`, with those of `WordMatch` added where there is one."""
        if self.match is None:
            return scores
        question = inputs["question"]
        added = self.match(self.embedding(question), question, inputs["candidates"])
        return ops.add(scores, added)  # of different types in mixed precision

    def _embedded(self, ids, other, training):
        vectors = self.dropout(self.embedding(ids), training=training)
        vectors = with_matches(vectors, ids, other) if self.exact_match else vectors
        return vectors, ops.not_equal(ids, 0)

    def entries(self):
        return {"vocabulary_size": [(self.embedding.embeddings, 0)]}

    def set_vectors(self, vectors: np.ndarray) -> None:
        """Set the vectors of words, `(vocabulary_size, embedding_size)`."""
        self.embedding.embeddings.assign(vectors)

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout_rate}
