"""Transformers in training: the application's model, and the same from KerasHub's blocks."""

from collections.abc import Callable
from functools import partial

import keras
import keras_nlp
import numpy as np
from keras import ops

from benchmarks.speed.contenders.keras_program import compiled, to_numpy, training_step
from benchmarks.speed.problems import Problem
from benchmarks.speed.transformer_problem import (
    CHECKED,
    DROPOUT,
    PAD,
    architecture_of,
    make_ids,
    make_weights,
)
from keras_attention.applications.translation import Transformer
from keras_attention.applications.translation.networks.base import WordCrossentropy
from keras_attention.losses import masked_sparse_categorical_crossentropy


class OurModel:
    """The translation application's architecture `transformer`."""

    def __init__(self, units: int, dropout: float = 0.0, dtype=None):
        architecture = architecture_of(units)
        self.model = Transformer(
            architecture.vocabulary_size,
            architecture.vocabulary_size,
            embedding_size=units,
            layers=architecture.layers,
            feed_forward_size=architecture.feed_forward_size,
            heads=architecture.heads,
            dropout=dropout,
            attention_dropout=dropout,
            share_embeddings=True,
            dtype=dtype,
        )
        model = self.model
        self.variables = [model.target_embedding.embeddings, model.word_logits.bias]
        self.variables += _of_blocks([*model.encoders, *model.decoders])

    def __call__(self, source, target, training=False):
        return self.model({"source": source, "target": target}, training=training)


class KerasHubModel:
    """The same of `TransformerEncoder`, `TransformerDecoder` and `SinePositionEncoding`."""

    def __init__(self, units: int, dropout: float = 0.0):
        architecture = architecture_of(units)
        sizes = (architecture.feed_forward_size, architecture.heads)
        count, layers = range(architecture.layers), keras_nlp.layers
        self.units, self.architecture = units, architecture
        self.embedding = keras.layers.Embedding(architecture.vocabulary_size, units)
        self.embedding.build()
        self.bias = keras.Variable(np.zeros(architecture.vocabulary_size, "float32"))
        self.positions = layers.SinePositionEncoding()
        self.dropout = keras.layers.Dropout(dropout)
        self.encoders = [layers.TransformerEncoder(*sizes, dropout=dropout) for _ in count]
        self.decoders = [layers.TransformerDecoder(*sizes, dropout=dropout) for _ in count]
        words = (None, None, units)
        for block in self.encoders:
            block.build(words)
        for block in self.decoders:
            block.build(words, words)
        self.variables = [self.embedding.embeddings, self.bias]
        for block in self.encoders:  # whose last normalisation stands before the network
            *attention, gamma, beta, a, b, c, d = block.trainable_variables
            self.variables += [*attention, a, b, c, d, gamma, beta]
        self.variables += _of_blocks(self.decoders)

    def __call__(self, source, target, training=False):
        memory, mask = self.encode(source, training)
        x = self.embed(target, training)
        for block in self.decoders:
            x = block(x, memory, encoder_padding_mask=mask, training=training)
        return self.logits(x)

    def encode(self, source, training=False):
        """Return the memory and its mask."""
        mask = ops.not_equal(source, PAD)
        x = self.embed(source, training)
        for block in self.encoders:
            x = block(x, padding_mask=mask, training=training)
        return x, mask

    def embed(self, ids, training=False, first=0):
        """Return embedded words with their places, the first of which is `first`."""
        words = self.embedding(ids) * self.units**0.5
        return self.dropout(words + self.positions(words, start_index=first), training=training)

    def logits(self, x):
        """Return the scores of the words by the embedding's table."""
        table = ops.transpose(ops.convert_to_tensor(self.embedding.embeddings))
        return ops.matmul(x, table) + ops.convert_to_tensor(self.bias)


def set_weights(model, problem: Problem) -> list[str]:
    """Give a model the shared weights; return their names."""
    weights = make_weights(problem)
    for variable, array in zip(model.variables, weights.values(), strict=True):
        variable.assign(array)
    return list(weights)


def _of_blocks(blocks):
    return [variable for block in blocks for variable in block.trainable_variables]


class TransformerProgram:
    """A model of a subclass: its losses, and its training steps with dropout.

    What a step with dropout gives is random, so that what is compared is the gradient without.
    """

    model_class: type
    losses: Callable  # of labels and logits

    def __init__(self, problem: Problem, uses_xla: bool):
        self._model = self.model_class(problem.size.units, DROPOUT)
        self._problem = problem
        self._names = set_weights(self._model, problem)
        variables = self._model.variables
        ids = make_ids(problem)
        self._ids = [ops.convert_to_tensor(ids[name]) for name in ("source", "target", "labels")]
        self._losses = compiled(self._compute_losses, variables, uses_xla)
        self._check = training_step(self._loss_checked, variables, uses_xla, updates=False)
        self._train = training_step(self._loss_in_training, variables, uses_xla)

    def _compute_losses(self, source, target, labels, training=False):
        logits = self._model(source, target, training=training)
        return self.losses(labels, logits)

    def _mean_loss(self, *ids, training):
        return ops.mean(self._compute_losses(*ids, training=training))

    def _loss_checked(self, sources, *ids):
        return self._mean_loss(*ids, training=False)

    def _loss_in_training(self, sources, *ids):
        return self._mean_loss(*ids, training=True)

    def forward(self) -> np.ndarray:
        """Return the loss of each target word, without dropout."""
        return to_numpy(self._losses(*self._ids))

    def train(self):
        """Take a step; return no loss, since it is random, and what the check gives."""
        float(self._train([], *self._ids)[0])

        def checked():
            set_weights(self._model, self._problem)  # the step has moved them, at random
            loss, gradients = self._check([], *(ids[:CHECKED] for ids in self._ids))
            found = {
                name: to_numpy(gradient)
                for name, gradient in zip(self._names, gradients, strict=True)
                if not name.endswith("key_bias")  # which softmax cancels: rounding alone
            }
            return {"loss": to_numpy(loss), **found}

        return None, checked


class OurTransformer(TransformerProgram):
    """Of this package."""

    model_class = OurModel
    losses = staticmethod(partial(masked_sparse_categorical_crossentropy, ignore_index=None))

    def _mean_loss(self, source, target, labels, training):
        inputs = {"source": source, "target": target}  # no label is padding
        model = self._model.model
        return WordCrossentropy(model)(labels, model.features(inputs, training))


class KerasHubTransformer(TransformerProgram):
    """Of KerasHub."""

    model_class = KerasHubModel
    losses = staticmethod(partial(ops.sparse_categorical_crossentropy, from_logits=True))
