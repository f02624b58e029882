"""Additive attention with coverage (See, Liu and Manning 2017)."""

from typing import Any

import keras
from keras import ops

from ...ops.penalties import mean_overlap
from ...ops.scores import additive_score
from ...ops.types import at_least_float32
from .. import arguments
from .bahdanau import BahdanauAttention
from .scored import ignores_positions


@keras.saving.register_keras_serializable("keras_attention")
class CoverageAttention(BahdanauAttention):
    """Additive attention that knows how much of each position was read already.

    `c_t = sum_(t'<t) a_t'`, `e_ts = v . tanh(W q_t + U k_s + w_c c_ts + b)`,
    `a_t = softmax(e_t)`, `context_t = sum_s a_ts v_s`

    The coverage `c`, `(B, S)`, is the state: zeros at first; each query adds its weights before
    dropout. Masked queries do not add to the coverage.

    Reading a position again costs `sum_s min(a_ts, c_ts)`. With `loss_weight`, a call of the layer
    adds this to the losses (`add_loss`), as `keras_attention.losses.coverage_loss` of the real
    queries, and so does an `AttentionDecoder` around it. A `step` alone adds nothing.

    Weights: those of `BahdanauAttention`, and `coverage_vector` `w_c (U,)`. With `loss_weight` and
    `loss_start` also the integer `loss_step`, which counts training calls.

    Args:
        units: Size `U` of the hidden layer.
        use_bias: Whether `b` is added. Default: `normalize`.
        kernel_initializer: Initializer of `W` and `U`.
        score_initializer: Initializer of `v`.
        bias_initializer: Initializer of `b`.
        loss_weight: Factor of the coverage loss; 0 adds none.
        loss_start: Number of calls with `training=True` before the loss counts. The paper adds it
            only when the model has trained without.
        coverage_initializer: Initializer of `w_c`. At zero it begins as additive attention.
        dropout: As in `ScoredAttention`, and so are the call and its results.
        seed: Seed of the dropout.
        normalize: As in `BahdanauAttention`.
        **kwargs: As in `ScoredAttention`.

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
        use_bias: bool | None = None,
        kernel_initializer: Any = "glorot_uniform",
        score_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        coverage_initializer: Any = "glorot_uniform",
        dropout: float = 0.0,
        seed: int | None = None,
        normalize: bool = False,
        **kwargs: Any,
    ):
        initializers = (kernel_initializer, score_initializer, bias_initializer)
        super().__init__(units, use_bias, *initializers, dropout, seed, normalize, **kwargs)
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

    @ignores_positions
    def score(self, query, key, positions, state):
        coverage = ops.cast(state["coverage"], query.dtype)
        vectors = self.effective_score_vector(), self.cast(self.coverage_vector)
        return additive_score(query, key, vectors[0], coverage, vectors[1])

    def update(self, state, scores, weights):
        return {"coverage": state["coverage"] + ops.cast(weights, state["coverage"].dtype)}

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
