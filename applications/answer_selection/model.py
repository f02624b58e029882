"""The model: a question and its candidates to a score for each candidate."""

import dataclasses

import keras
import numpy as np
from keras import ops

from keras_attention.applications.answer_selection.config import WITH_WEIGHTS, ModelConfig
from keras_attention.applications.answer_selection.reader import Reader


@keras.saving.register_keras_serializable("keras_attention")
class AnswerSelector(keras.Model):
    """Scores candidate answers by the cosine of their vectors with the question's.

    The question is read first; its vector is the query of the attention with which the candidates
    are read (Wang, Liu and Zhao 2016; Tan et al. 2016 for the attention after the state).

    Args:
        vocabulary_size: the number of ids; 0 is padding.
        config: the sizes and kinds, as `dataclasses.asdict` of a `ModelConfig` gives them.
        log_odds: give log-odds `s·cos + b`, with a scale and an offset that are learned, instead of
            cosines: for the log loss.
        trainable_vectors: whether training changes the vectors of words.

    Call arguments:
        inputs: `{"question": (B, S), "candidates": (B, N, T)}`, ids.

    Returns:
        Scores `(B, N)`.
    """

    def __init__(self, vocabulary_size, config, log_odds=False, trainable_vectors=True, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.config = ModelConfig(**config)
        self.log_odds = log_odds
        self.trainable_vectors = trainable_vectors
        self.embedding = keras.layers.Embedding(
            vocabulary_size,
            self.config.embedding_size,
            trainable=trainable_vectors,
            name="vectors",
        )
        self.dropout = keras.layers.Dropout(self.config.dropout)
        self.reader = self._reader(self.config.encoder, "reader")
        self.question_reader = (
            self.reader if self.config.shared else self._reader("gru", "question_reader")
        )

    @property
    def has_weights(self) -> bool:
        """Whether the model gives a weight to each word of a candidate."""
        return self.config.encoder in WITH_WEIGHTS

    def build(self, shapes=None):
        self.embedding.build(None)
        size = self.config.embedding_size
        for reader in {id(r): r for r in (self.reader, self.question_reader)}.values():
            reader.build((None, None, size), reader.size)
        if self.log_odds:
            # A cosine of 1 alone would be no more than e to 1.
            steep = keras.initializers.Constant(5.0)
            self.scale = self.add_weight((), initializer=steep, name="scale")
            self.offset = self.add_weight((), initializer="zeros", name="offset")
        self.built = True

    def call(self, inputs, training=False):
        return self.score(inputs, training)[0]

    def score(self, inputs, training=False):
        """Return scores `(B, N)` and weights of the candidates' words `(B, N, T)`, or None."""
        question, candidates = inputs["question"], inputs["candidates"]
        rows, count, length = (ops.shape(candidates)[axis] for axis in range(3))
        asked, _ = self.question_reader(*self._embedded(question, training), training=training)
        flat = ops.reshape(candidates, (-1, length))
        query = ops.repeat(asked, count, axis=0)
        answers, weights = self.reader(
            *self._embedded(flat, training), query=query, training=training
        )
        asked, answers = (
            _unit(self.dropout(vector, training=training)) for vector in (query, answers)
        )
        cosine = ops.reshape(ops.sum(asked * answers, axis=-1), (rows, count))
        if weights is not None:
            weights = ops.reshape(weights, (rows, count, length))
        return (self.scale * cosine + self.offset if self.log_odds else cosine), weights

    def set_vectors(self, vectors: np.ndarray) -> None:
        """Set the vectors of words, `(vocabulary_size, embedding_size)`."""
        self.embedding.embeddings.assign(vectors)

    def _embedded(self, ids, training):
        return self.dropout(self.embedding(ids), training=training), ops.not_equal(ids, 0)

    def _reader(self, encoder, name):
        config = self.config
        attention = None if encoder == "gru" else encoder.removeprefix("inner-")
        return Reader(
            config.units,
            attention=attention,
            pooling=config.pooling,
            bidirectional=config.bidirectional,
            attention_units=config.attention_units,
            occam=config.occam and attention is not None,
            occam_minimum=config.occam_minimum,
            name=name,
        )

    def get_config(self):
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "config": dataclasses.asdict(self.config),
            "log_odds": self.log_odds,
            "trainable_vectors": self.trainable_vectors,
        }


def _unit(vectors):
    """Return vectors of length 1; zeros stay zeros, with a gradient that is finite."""
    square = ops.sum(ops.square(vectors), axis=-1, keepdims=True)
    return vectors * ops.rsqrt(ops.maximum(square, 1e-12))
