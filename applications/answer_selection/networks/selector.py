"""The network: a question and its candidates to a score for each candidate, and its loss."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_attention.layers import AttentionMechanism, BahdanauAttention, InnerAttentionGRU

from ...arguments import KeepsArguments
from ...base.network import recurrent_start
from ...errors import check_choice, check_number
from ..config import OF_ALL, READERS, ModelConfig
from .base import AnswerNetwork
from .compare_aggregate import CompareAggregate

INNER = ("word", "context", "gate")
WITH_WEIGHTS = ("word", "context")
"""The inner attentions that give a weight to each word of an answer."""


@keras.saving.register_keras_serializable("keras_attention")
class Reader(KeepsArguments, keras.layers.Layer):
    """Reads embedded words, with a query or without, into a vector.

    The weights of `"word"` and `"context"` are near a half for all words when training begins.
    Words are doubled before they are weighed, so that such a reader begins as the plain GRU does.

    Args:
        units: the size of a state; twice of it with `bidirectional`.
        attention: `None`; `"outer"`, over the states, or the mechanism that does this; or the kind
            of an `InnerAttentionGRU`, `"word"`, `"context"` or `"gate"`.
        pooling: `"mean"` or `"max"` over the states.
        bidirectional: read in both directions.
        attention_units: the size of the hidden layer of `"outer"`.
        occam: add Occam's penalty (`"word"` and `"context"` only).
        occam_minimum: its least price of a word.
        **kwargs: `name`, `dtype` and the like of `keras.layers.Layer`.

    Call arguments:
        inputs: embedded words `(B, T, D)`.
        mask: boolean `(B, T)`, True = a word.
        query: `(B, Q)`; None reads without one. An inner attention then has a query of zeros: for
            `"word"` all weights are a half, and words are read as they are.

    Returns:
        Vectors `(B, U)`, and weights `(B, T)` of the words, zeros where masked; None where the
        attention gives none.

    References:
        - [Wang, Liu and Zhao, 2016](https://aclanthology.org/P16-1122), section 3 (inner)
        - [Tan et al., 2016](https://arxiv.org/abs/1511.04108), section 4.4 (outer)
    """

    def __init__(
        self,
        units: int,
        attention: str | AttentionMechanism | None = None,
        pooling: str = "mean",
        bidirectional: bool = False,
        attention_units: int | None = None,
        occam: bool = False,
        occam_minimum: float = 0.001,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._given = attention if isinstance(attention, keras.layers.Layer) else None
        self.attention = "outer" if self._given is not None else attention
        check_choice("attention", self.attention, (None, "outer", *INNER))
        check_choice("pooling", pooling, ("mean", "max"))
        self.keep(units=units, pooling=pooling, bidirectional=bidirectional)
        self.keep(attention_units=attention_units, occam=occam, occam_minimum=occam_minimum)
        self.supports_masking = True
        self.nets = [self._net(backwards) for backwards in (False, True)[: 1 + bidirectional]]
        self.outer = self._given
        if attention == "outer":
            size = attention_units or units
            self.outer = BahdanauAttention(size, name="outer", dtype=self.dtype_policy)

    @property
    def size(self) -> int:
        """The size of the vectors."""
        return self.units * len(self.nets)

    @property
    def has_weights(self) -> bool:
        """Whether each word gets a weight, where there is a query."""
        return self.attention == "outer" or self.attention in WITH_WEIGHTS

    def build(self, inputs_shape, query_size):
        for net in self.nets:
            if self.attention in INNER:
                net.build(inputs_shape, (inputs_shape[0], query_size))
            else:
                net.build(inputs_shape)
        if self.outer is not None and not self.outer.built:
            states = (*inputs_shape[:2], self.size)
            self.outer.build((inputs_shape[0], 1, query_size), states)
        self.built = True

    def call(self, inputs, mask, query=None, training=False):
        with_weights = self.attention in WITH_WEIGHTS
        inputs = 2.0 * inputs if with_weights else inputs
        found, weights = [], []
        for net in self.nets:
            options = {"mask": mask, "training": training}
            if self.attention in INNER:
                size = net.cell.query_size
                asked = ops.zeros((ops.shape(inputs)[0], size)) if query is None else query
                states = net(inputs, asked, return_attention_scores=with_weights, **options)
            else:
                states = net(inputs, **options)
            if with_weights:
                states, shades = states
                weights.append(shades)
            found.append(ops.flip(states, axis=1) if net.go_backwards else states)
        states = ops.concatenate(found, axis=-1)
        if self.outer is not None and query is not None:
            return self._attend(states, mask, query)
        return self._pool(states, mask), sum(weights) / len(weights) if weights else None

    def _net(self, backwards):
        name = "backwards" if backwards else "forwards"
        settings = {"return_sequences": True, "go_backwards": backwards, "name": name}
        settings["dtype"] = self.dtype_policy
        settings["recurrent_initializer"] = recurrent_start(self.dtype_policy)
        if self.attention not in INNER:
            # cuDNN refuses a row of padding alone.
            return keras.layers.GRU(self.units, use_cudnn=False, **settings)
        settings |= {"occam": self.occam, "occam_minimum": self.occam_minimum}
        return InnerAttentionGRU(self.units, attention=self.attention, **settings)

    def _attend(self, states, mask, query):
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
        attention = self.attention
        if self._given is not None:
            attention = keras.saving.serialize_keras_object(self._given)
        return {**super().get_config(), "attention": attention}

    @classmethod
    def from_config(cls, config):
        attention = config["attention"]
        if isinstance(attention, Mapping):
            attention = keras.saving.deserialize_keras_object(attention)
        return cls(**{**config, "attention": attention})


@keras.saving.register_keras_serializable("keras_attention")
class AnswerSelector(AnswerNetwork):
    """Scores candidate answers by the cosine of their vectors with the question's.

    The question is read first; its vector is the query of the attention with which the candidates
    are read:

    $$q = \\mathrm{read}(x), \\qquad a_n = \\mathrm{read}(y_n, q), \\qquad
    s_n = \\cos(q, a_n) \\quad\\text{or}\\quad s_n = \\sigma \\cos(q, a_n) + b$$

    Args:
        vocabulary_size: Integer, how many ids there are; 0 is padding.
        units: Integer, the size of a GRU's state.
        embedding_size: Integer, the size of a word's vector.
        encoder: How a candidate is read: `"gru"`, without attention; `"outer"`, with attention over
            the states of the GRU; `"inner-word"`, `"inner-context"` or `"inner-gate"`, with
            attention before or inside the state.
        attention: The attention mechanism of `"outer"`; None for
            `BahdanauAttention(attention_units)`.
        reader: A layer that reads candidates in place of `encoder`: called as `Reader` is, and
            with its attributes `size` and `has_weights`.
        question_reader: A layer that reads questions, called as `Reader` is, without a query. None
            for the reader of candidates where `shared`, else for a GRU.
        pooling: `"mean"` or `"max"` over the states.
        bidirectional: Boolean, whether to read in both directions, with `units` for each.
        shared: Boolean, whether questions are read with the reader of candidates.
        attention_units: Integer, units of the default attention; None for `units`.
        occam: Boolean, whether to add Occam's penalty on the attention (`"inner-word"` and
            `"inner-context"` only).
        occam_minimum: Float, the least price of a word in that penalty.
        dropout: Rate of the dropout on word vectors and on the pooled vectors.
        log_odds: Boolean, whether to give log-odds `σ·cos + b`, with a scale and an offset that
            are learned, in place of cosines: for the log loss.
        trainable_vectors: Boolean, whether training changes the vectors of words.
        word_match: Boolean, whether the words that question and candidate share add to the score
            (`WordMatch`).
        exact_match: Boolean, whether a number beside each word's vector says that the other side
            has the very word. Questions are then read once for each candidate.
        **kwargs: `name`, `dtype` and the like of `Network`.

    Call arguments:
        inputs: Dict of token ids, `"question"` `(B, S)` and `"candidates"` `(B, N, T)`.
        training: Boolean, whether dropout acts.

    Returns:
        Scores `(B, N)`.

    Raises:
        ValueError: where an encoder is unknown, or does not go with another argument.

    References:
        - [Wang, Liu and Zhao, 2016](https://aclanthology.org/P16-1122), section 3
        - [Tan et al., 2016](https://arxiv.org/abs/1511.04108), section 4.4 (`"outer"`)

    Example:

    ```python
    import numpy as np
    from keras_attention.applications.answer_selection import AnswerSelector

    model = AnswerSelector(30, units=8, embedding_size=5)
    inputs = {"question": np.array([[4, 5]]), "candidates": np.array([[[4, 6, 7], [8, 9, 0]]])}
    scores, weights = model.score(inputs)
    assert tuple(scores.shape) == (1, 2) and tuple(weights.shape) == (1, 2, 3)
    ```
    """

    def __init__(
        self,
        vocabulary_size: int,
        units: int = 100,
        embedding_size: int = 100,
        encoder: str = "inner-word",
        attention: AttentionMechanism | None = None,
        reader: keras.layers.Layer | None = None,
        question_reader: keras.layers.Layer | None = None,
        pooling: str = "mean",
        bidirectional: bool = False,
        shared: bool = True,
        attention_units: int | None = None,
        occam: bool = False,
        occam_minimum: float = 0.001,
        dropout: float = 0.2,
        log_odds: bool = False,
        trainable_vectors: bool = True,
        word_match: bool = False,
        exact_match: bool = False,
        **kwargs: Any,
    ):
        words = (vocabulary_size, embedding_size, dropout, trainable_vectors)
        start = 1.0 if log_odds else 0.1  # a cosine is at most 1, and its margin 0.2
        super().__init__(*words, word_match, exact_match, start, **kwargs)
        _check(encoder, attention, reader, occam)
        if reader is not None and question_reader is reader:  # or it would be saved as two
            question_reader, shared = None, True
        self.keep(units=units, log_odds=log_odds)
        self.keep(encoder=encoder, pooling=pooling, bidirectional=bidirectional, shared=shared)
        self.keep(attention_units=attention_units, occam=occam, occam_minimum=occam_minimum)
        policy = {"dtype": self.dtype_policy}
        named = None if encoder == "gru" else encoder.removeprefix("inner-")
        kind = self.part("attention", attention, lambda: named)

        def read_with(kind, occam, name):
            sizes = (pooling, bidirectional, attention_units)
            return Reader(units, kind, *sizes, occam, occam_minimum, name=name, **policy)

        self.reader = self.part("reader", reader, lambda: read_with(kind, occam, "reader"))
        self.question_reader = self.part(
            "question_reader",
            question_reader,
            lambda: self.reader if shared else read_with(None, False, "question_reader"),
        )
        self.build()

    @property
    def has_weights(self) -> bool:
        """Whether the network gives a weight to each word of a candidate."""
        return bool(self.reader.has_weights)

    def build(self, input_shape=None):
        self.build_words()
        words, size = (None, None, self.word_size), self.question_reader.size
        for reader in (self.reader, self.question_reader):
            if isinstance(reader, Reader) and not reader.built:
                reader.build(words, size)
            elif not reader.built:
                mask = keras.KerasTensor((None, None), "bool")
                reader(keras.KerasTensor(words), mask=mask, query=keras.KerasTensor((None, size)))
        if self.reader.size != size:
            raise ValueError(
                "Question and candidates should be read into vectors of one size, to be compared. "
                f"Received: {size} of the question, {self.reader.size} of a candidate"
            )
        if self.log_odds:
            # A cosine of 1 alone would be no more than e to 1.
            steep = keras.initializers.Constant(5.0)
            self.scale = self.add_weight((), initializer=steep, name="scale")
            self.offset = self.add_weight((), initializer="zeros", name="offset")
        self.built = True

    def score(self, inputs: Mapping[str, Any], training: bool = False) -> tuple[Any, Any]:
        """Return scores `(B, N)` and weights of the candidates' words `(B, N, T)`, or None."""
        question, words, shape = self.pairs(inputs, training)
        asked, _ = self.question_reader(*question, training=training)
        asked = self.for_candidates(asked, shape[1])
        answers, weights = self.reader(*words, query=asked, training=training)
        asked = _unit(self.dropout(asked, training=training))
        answers = _unit(self.dropout(answers, training=training))
        cosine = ops.reshape(ops.sum(asked * answers, axis=-1), shape[:2])
        if weights is not None:
            weights = ops.reshape(weights, shape)
        scores = self.scale * cosine + self.offset if self.log_odds else cosine
        return self.with_match(scores, inputs), weights

    def get_config(self):
        own = self.config_of(
            attention=getattr(self.reader, "outer", None),
            reader=self.reader,
            question_reader=self.question_reader,
        )
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable("keras_attention")
class HardestHinge(KeepsArguments, keras.losses.Loss):
    """A right candidate exceeds the hardest wrong one by a margin.

    $$\\ell = \\frac1R \\sum_{r} \\max(0,\\; m - s_r + \\max_k s_{-k})$$

    over the R right candidates of a question; 0 where none is wrong.

    Args:
        margin: m, a number of at least 0.
        name: the loss' name.
        **kwargs: more of `keras.losses.Loss`.

    Call arguments:
        y_true: `(B, N)`, 1 for a right candidate, 0 for a wrong one.
        y_pred: scores `(B, N)`.

    Reference:
        - [Wang, Liu and Zhao, 2016](https://aclanthology.org/P16-1122), section 4
    """

    def __init__(self, margin: float = 0.2, name: str = "hardest_hinge", **kwargs: Any):
        check_number("`margin`", margin, 0)
        super().__init__(name=name, **kwargs)
        self.keep(margin=margin)

    def call(self, y_true, y_pred):
        right = ops.cast(y_true > 0, y_pred.dtype)
        wrong = ops.where(y_true > 0, float("-inf"), y_pred)
        hardest = ops.max(wrong, axis=1, keepdims=True)
        each = right * ops.relu(self.margin - y_pred + hardest)
        return ops.sum(each, axis=1) / ops.maximum(ops.sum(right, axis=1), 1.0)


def build_model(config: ModelConfig, vocabulary_size: int, **options: Any) -> AnswerNetwork:
    """Return the network that a configuration describes, with new weights.

    Args:
        config: the `model` section.
        vocabulary_size: how many ids there are.
        **options: more arguments of the network, such as `log_odds`, `dtype` and `attention`.
    """
    arguments = dataclasses.asdict(config)
    if config.encoder in READERS:
        return AnswerSelector(vocabulary_size, **arguments, **options)
    options.pop("log_odds", None)  # its scores are logits, whatever the loss
    arguments = {name: arguments[name] for name in OF_ALL}
    return CompareAggregate(vocabulary_size, **arguments, **options)


def _check(encoder, attention, reader, occam) -> None:
    if encoder not in READERS:
        raise ValueError(
            f"`encoder` should be one of {list(READERS)}. Received: encoder={encoder!r}"
        )
    if attention is not None and (encoder != "outer" or reader is not None):
        raise ValueError(
            "`attention` goes with encoder='outer' and without `reader`. "
            f"Received: encoder={encoder!r}, reader={reader!r}"
        )
    if occam and encoder.removeprefix("inner-") not in WITH_WEIGHTS:
        raise ValueError(
            "`occam` goes with an encoder that gives each word a weight before it is read, "
            f"'inner-word' or 'inner-context'. Received: encoder={encoder!r}"
        )


def _unit(vectors):
    """Return vectors of length 1; zeros stay zeros, with a gradient that is finite."""
    wide = ops.cast(vectors, "float32")  # in float16 the smallest square would be 0
    square = ops.sum(ops.square(wide), axis=-1, keepdims=True)
    return ops.cast(wide * ops.rsqrt(ops.maximum(square, 1e-12)), vectors.dtype)
