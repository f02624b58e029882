"""Additive attention with coverage (See, Liu and Manning 2017)."""

from typing import Any

import keras
from keras import ops

from ...ops.loops import run_queries
from ...ops.masks import combine_masks
from ...ops.normalizers import masked_softmax
from ...ops.penalties import mean_overlap
from ...ops.scores import coverage_gradients, coverage_hidden, coverage_score
from ...ops.shapes import product
from ...ops.types import at_least_float32
from .. import arguments
from .bahdanau import BahdanauAttention
from .loop_scores import LoopScore


@keras.saving.register_keras_serializable("keras_attention")
class CoverageAttention(BahdanauAttention):
    """Additive attention that knows how much of each place was read already.

    `c_t = sum_(t'<t) a_t'`, `e_ts = v . tanh(W q_t + U k_s + w_c c_ts + b)`,
    `a_t = softmax(e_t)`, `context_t = sum_s a_ts v_s`

    The coverage `c`, `(B, S)`, is the state: zeros at first; each query adds its weights before
    dropout, a masked one nothing.

    Reading a place again costs `sum_s min(a_ts, c_ts)`. With `loss_weight`, a call of the layer and
    an `AttentionDecoder` around it, but no `step` alone, add this to the losses (`add_loss`), as
    `keras_attention.losses.coverage_loss` of the real queries.

    Weights: those of `BahdanauAttention`, and `coverage_vector` `w_c (U,)`. With `loss_weight` and
    `loss_start` also the integer `loss_step`, which counts training calls.

    Args:
        units, use_bias, kernel_initializer, score_initializer, bias_initializer: As in
            `BahdanauAttention`.
        loss_weight: Factor of the coverage loss; 0 adds none.
        loss_start: Number of calls with `training=True` before the loss counts. The paper adds it
            only when the model has trained without.
        coverage_initializer: Initializer of `w_c`. At zero it begins as additive attention.
        dropout, seed, **kwargs: As in `AttentionMechanism`, and so are the call and its results.

    Reference:
        See, Liu and Manning 2017, "Get to the point: summarization with pointer-generator
        networks", section 2.3, equations 10 to 13. Their `W_h`, `W_s`, `w_c`, `v`, `b_attn` are
        `key_kernel`, `query_kernel`, `coverage_vector`, `score_vector`, `bias`.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import CoverageAttention

    states, memory = np.random.normal(size=(2, 5, 8)), np.random.normal(size=(2, 7, 12))
    layer = CoverageAttention(units=16, loss_weight=1.0)
    context, scores = layer(states, memory, return_attention_scores=True)
    assert tuple(context.shape) == (2, 5, 12) and len(layer.losses) == 1
    ```
    """

    def __init__(
        self,
        units: int,
        loss_weight: float = 0.0,
        loss_start: int = 0,
        use_bias: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        score_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        coverage_initializer: Any = "glorot_uniform",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        initializers = (kernel_initializer, score_initializer, bias_initializer)
        super().__init__(units, use_bias, *initializers, dropout, seed, **kwargs)
        self.loss_weight = arguments.check_number("loss_weight", loss_weight)
        self.loss_start = arguments.check_integer("loss_start", loss_start, minimum=0)
        self.coverage_initializer = keras.initializers.get(coverage_initializer)

    def build_score(self, query_size, key_size):
        super().build_score(query_size, key_size)
        initializer = arguments.fresh(self.coverage_initializer)
        self._make_weight("coverage_vector", (self.units,), initializer, "coverage")
        if self.loss_weight and self.loss_start:
            # Each replica has its own: to update a shared one, replicas wait for each other in the
            # middle of a step, and Keras then adds up wrong losses.
            alone = {"aggregation": "only_first_replica", "synchronization": "on_read"}
            options = {"dtype": "int32", "trainable": False, "name": "loss_step", **alone}
            self.loss_step = keras.Variable("zeros", (), **options)

    def initial_state(self, memory):
        # A half has no digits left for what a hundred steps add up to.
        return {"coverage": at_least_float32(ops.zeros_like(memory["value"][:, :, 0]))}

    def attend(self, query, memory, state, query_mask=None, return_attention_scores=True):
        def answer(x, real, coverage, given):
            key, *vectors = given
            scores = coverage_score(x, key, ops.cast(coverage, x.dtype), *vectors)
            weights = masked_softmax(scores, combine_masks(memory.get("mask"), real))
            return weights, coverage + ops.cast(weights, coverage.dtype)

        queries = self.queries(query)
        given = memory["key"], self.cast(self.score_vector), self.cast(self.coverage_vector)
        weights, coverage = run_queries(answer, queries, query_mask, state["coverage"], given)
        return self.read(weights, memory), weights, {"coverage": coverage}

    def loop_score(self):
        names = ("score_vector", "coverage_vector")
        vectors = {name: self.cast(getattr(self, name)) for name in names}
        return CoverageScore(self.cast(self.query_kernel), **vectors)

    @property
    def has_sequence_loss(self):
        return self.loss_weight > 0

    def add_sequence_loss(self, scores, query_mask=None, training=None):
        if not self.has_sequence_loss:
            return
        loss = self.loss_weight * mean_overlap(scores, query_mask)
        if self.loss_start:
            is_on = ops.cast(self.loss_step >= self.loss_start, loss.dtype)
            loss = loss * is_on
            if training:
                self.loss_step.assign_add(1)
        self.add_loss(loss)


class CoverageScore(LoopScore):
    """`e_s = v . tanh(q + k_s + w_c c_s)`; the weights are added to the coverage `c`."""

    summed = ("key", "score_vector", "coverage_vector")

    def score(self, query, key, state, weights):
        coverage = ops.cast(state["coverage"], query.dtype)
        hidden = coverage_hidden(query, key, coverage, weights["coverage_vector"])
        return ops.squeeze(product(hidden, ops.expand_dims(weights["score_vector"], 1)), 2)

    def query_gradient(self, upstream, query, key, state, weights):
        coverage = ops.cast(state["coverage"], query.dtype)
        by_query, by_key, by_coverage, *by_vectors = coverage_gradients(
            query, key, coverage, weights["score_vector"], weights["coverage_vector"], upstream
        )
        sums = dict(zip(self.summed, (by_key, *by_vectors), strict=True))
        return by_query, {"coverage": by_coverage}, sums

    def memory_gradients(self, upstream, query, key, weights, sums):
        vector = ops.cast(weights["score_vector"], sums["key"].dtype)
        return {**sums, "key": sums["key"] * vector}

    def keep(self, state, attention):
        coverage = state["coverage"]
        return {"coverage": coverage + ops.cast(attention, coverage.dtype)}

    def keep_gradients(self, upstream, state, attention):
        return upstream, upstream["coverage"]
