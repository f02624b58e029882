"""Compare-aggregate: word by word, an answer is compared with what it finds in the question."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_attention.layers import LuongAttention

from ...arguments import KeepsArguments
from .base import AnswerNetwork

WIDTHS = (1, 2, 3, 4, 5)
"""How many comparisons each convolution reads."""


@keras.saving.register_keras_serializable("keras_attention")
class CompareAggregate(AnswerNetwork):
    """Scores candidate answers by comparing words, and reading the comparisons.

    Words are filtered alike on both sides; each word of the candidate attends to the question, and
    each word of the question to the candidate. Each is multiplied by what it finds, and
    convolutions read the products:

    $$\\bar x = \\sigma(W_i x + b_i) \\odot \\tanh(W_u x + b_u), \\qquad
    e_{st} = \\bar q_s \\cdot \\bar a_t$$

    $$h_t = \\sum_s \\mathrm{softmax}_s(e_{st})\\, \\bar q_s, \\qquad
    g_s = \\sum_t \\mathrm{softmax}_t(e_{st})\\, \\bar a_t$$

    $$r = [\\mathrm{CNN}(\\bar a_t \\odot h_t);\\; \\mathrm{CNN}(\\bar q_s \\odot g_s)], \\qquad
    \\mathrm{score} = w^\\top \\tanh(W r + b)$$

    where CNN are convolutions of 1 to 5 words, and of each filter the maximum over the words.

    Args:
        vocabulary_size: Integer, how many ids there are; 0 is padding.
        units: Integer, the size of filtered words, of each convolution and of the last layer.
        embedding_size: Integer, the size of a word's vector.
        dropout: Rate of the dropout on word vectors and on what the convolutions read.
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
        Scores `(B, N)`: logits, for the log and the listwise loss.

    References:
        - [Wang and Jiang, 2017](https://arxiv.org/abs/1611.01747), section 2, comparison "Mult"
        - [Bian et al., 2017](https://doi.org/10.1145/3132847.3133089), sections 2.2 and 2.3 (both
          directions)

    Example:

    ```python
    import numpy as np
    from keras_attention.applications.answer_selection import CompareAggregate

    model = CompareAggregate(30, units=8, embedding_size=5)
    inputs = {"question": np.array([[4, 5]]), "candidates": np.array([[[4, 6, 7], [8, 9, 0]]])}
    scores, weights = model.score(inputs)
    assert tuple(scores.shape) == (1, 2) and tuple(weights.shape) == (1, 2, 2, 3)
    ```
    """

    encoder = "compare-aggregate"
    has_weights = True
    log_odds = True

    def __init__(
        self,
        vocabulary_size: int,
        units: int = 100,
        embedding_size: int = 100,
        dropout: float = 0.2,
        trainable_vectors: bool = True,
        word_match: bool = False,
        exact_match: bool = False,
        **kwargs: Any,
    ):
        words = (vocabulary_size, embedding_size, dropout, trainable_vectors)
        super().__init__(*words, word_match, exact_match, **kwargs)
        self.keep(units=units)

        def dense(size, activation, name):
            return keras.layers.Dense(size, activation, name=name, dtype=self.dtype_policy)

        self.gate = dense(units, "sigmoid", "gate")
        self.content = dense(units, "tanh", "content")
        self.attention = LuongAttention("dot", name="attention", dtype=self.dtype_policy)
        self.of_answer = Convolutions(units, name="of_answer", dtype=self.dtype_policy)
        self.of_question = Convolutions(units, name="of_question", dtype=self.dtype_policy)
        self.hidden = dense(units, "tanh", "hidden")
        self.answer = dense(1, None, "answer")
        self.build()

    def build(self, input_shape=None):
        self.build_words()
        words, compared = (None, None, self.word_size), (None, None, self.units)
        for layer, shape in (
            (self.gate, words),
            (self.content, words),
            (self.of_answer, compared),
            (self.of_question, compared),
            (self.hidden, (None, 2 * len(WIDTHS) * self.units)),
            (self.answer, (None, self.units)),
        ):
            layer.build(shape)
        self.attention.build(compared, compared)
        self.built = True

    def score(self, inputs: Mapping[str, Any], training: bool = False) -> tuple[Any, Any]:
        """Return scores `(B, N)`, and how question words weigh a candidate's, `(B, N, S, T)`."""
        (asked, asked_mask), (words, mask), shape = self.pairs(inputs, training)
        words = self.gate(words) * self.content(words)
        asked = self.for_candidates(self.gate(asked) * self.content(asked), shape[1])
        asked_mask = self.for_candidates(asked_mask, shape[1])
        found = self.attention(words, asked, query_mask=mask, value_mask=asked_mask)
        found_in_answer, weights = self.attention(
            asked, words, query_mask=asked_mask, value_mask=mask, return_attention_scores=True
        )
        of_answer = self.of_answer(words * found, mask)
        of_question = self.of_question(asked * found_in_answer, asked_mask)
        read = ops.concatenate([of_answer, of_question], axis=-1)
        scores = self.answer(self.hidden(self.dropout(read, training=training)))
        weights = ops.reshape(weights, (*shape[:2], *ops.shape(weights)[1:]))
        return self.with_match(ops.reshape(scores, shape[:2]), inputs), weights


@keras.saving.register_keras_serializable("keras_attention")
class Convolutions(KeepsArguments, keras.layers.Layer):
    """Convolutions of several widths, and of each filter the maximum over the words.

    Args:
        filters: how many filters each width has.
        **kwargs: `name`, `dtype` and the like of `keras.layers.Layer`.

    Call arguments:
        inputs: `(P, T, U)`.
        mask: boolean `(P, T)`, True = a word; others are zeros to the convolutions.

    Returns:
        `(P, 5 filters)`, zeros where there are no words.

    Reference:
        - [Kim, 2014](https://aclanthology.org/D14-1181), section 2
    """

    def __init__(self, filters: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.keep(filters=filters)
        self.nets = [
            keras.layers.Conv1D(
                filters,
                width,
                padding="same",
                activation="relu",
                name=f"width_{width}",
                dtype=self.dtype_policy,
            )
            for width in WIDTHS
        ]

    def build(self, inputs_shape):
        for net in self.nets:
            net.build(inputs_shape)
        self.built = True

    def call(self, inputs, mask):
        real = ops.expand_dims(mask, 2)
        inputs = ops.where(real, inputs, ops.zeros_like(inputs))
        read = ops.concatenate([net(inputs) for net in self.nets], axis=-1)
        return ops.max(ops.where(real, read, ops.zeros_like(read)), axis=1)  # relu: at least 0
