"""Monotonic attention over the score of any mechanism (Raffel et al. 2017)."""

from typing import Any

import keras
from keras import ops, random

from ...ops.masks import attention_mask
from ...ops.monotonic import monotonic_weights
from ...ops.types import at_least_float32
from .. import arguments
from .base import row_zeros
from .scored import ScoredAttention

MODES = ("auto", "soft", "hard")


@keras.saving.register_keras_serializable("keras_attention")
class MonotonicAttention(ScoredAttention):
    """Monotonic attention: each query goes on from the position where the last one stopped.

    `p_ts = sigmoid(e_ts + r)`, `a_ts = p_ts q_ts`, `q_ts = (1 - p_t(s-1)) q_t(s-1) + a_(t-1)s`,
    `c_t = sum_s a_ts v_s`

    `e` is the score of another mechanism, and `a_0 = (1, 0, ...)`. In training this is the expected
    weight of a query that stops at each position with the probability `p_ts`. In inference a query
    stops at the first position with `p_ts > 1/2`: one weight is 1, all others are 0, and the memory
    is read once from start to end. A query that stops nowhere has zero weights and a zero context,
    and so have all later ones.

    Weights: those of the mechanism, and `energy_bias` `r ()`.

    Args:
        mechanism: A `ScoredAttention`, such as `BahdanauAttention(units, normalize=True)`.
        sigmoid_noise: Standard deviation of the noise that is added to `e_ts` in training, which
            makes the model choose scores far from 0.
        mode: `"soft"` for the expected weights, `"hard"` for the first position, or `"auto"`: soft
            in training, hard otherwise.
        energy_bias_initializer: Initializer of `r`. Default: -1. The longer the memory, the lower
            it should start, so that the first queries see more than the first words.
        dropout: As in `ScoredAttention`, and so are the call and its results.
        seed: Seed of the dropout and of the noise.
        **kwargs: As in `ScoredAttention`.

    Raises:
        ValueError: If the mechanism has no score of its own, or an argument is out of range.

    Reference:
        Raffel, Luong, Liu, Weiss and Eck 2017, "Online and linear-time attention by enforcing
        monotonic alignments", section 2: equations 9 and 10 for the expectation, algorithm 1 for
        inference, section 2.4 for bias and noise. Their `a(s_{i-1}, h_j)` is `e_ts`.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import BahdanauAttention, MonotonicAttention

    states, memory = np.random.normal(size=(2, 5, 8)), np.random.normal(size=(2, 7, 12))
    layer = MonotonicAttention(BahdanauAttention(units=16, normalize=True))
    context, soft = layer(states, memory, return_attention_scores=True, training=True)
    _, hard = layer(states, memory, return_attention_scores=True)
    assert tuple(context.shape) == (2, 5, 12) and set(np.unique(hard)) <= {0.0, 1.0}
    ```
    """

    def __init__(
        self,
        mechanism: ScoredAttention,
        sigmoid_noise: float = 0.0,
        mode: str = "auto",
        energy_bias_initializer: Any = None,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        is_scored = isinstance(mechanism, ScoredAttention) and mechanism.has_derived_steps
        if not is_scored or not mechanism.has_softmax:
            raise ValueError(
                "`mechanism` must be an attention mechanism whose weights are the softmax of its "
                "`score`, such as BahdanauAttention(256, normalize=True). "
                f"Received: mechanism={mechanism}"
            )
        kwargs.setdefault("dtype", mechanism.dtype_policy)
        super().__init__(dropout=dropout, seed=seed, **kwargs)
        self.mechanism = mechanism
        self.sigmoid_noise = arguments.check_number("sigmoid_noise", sigmoid_noise)
        self.mode = arguments.check_choice("mode", mode, MODES)
        if energy_bias_initializer is None:
            energy_bias_initializer = keras.initializers.Constant(-1.0)
        self.energy_bias_initializer = keras.initializers.get(energy_bias_initializer)
        if sigmoid_noise:
            self._noise_seed = keras.random.SeedGenerator(self.seed)

    def build(self, query_shape, value_shape=None, key_shape=None):
        if not self.mechanism.built:
            self.mechanism.build(query_shape, value_shape, key_shape)
        super().build(query_shape, value_shape, key_shape)

    def build_score(self, query_size, key_size):
        self._make_weight("energy_bias", (), self.energy_bias_initializer, "energy_bias")

    @property
    def reads_positions(self):
        return self.mechanism.reads_positions

    def project_query(self, query):
        return self.mechanism.project_query(query)

    def prepare_memory(self, value, key=None, mask=None, training=None):
        arguments.check_built(self, "query_shape, value_shape")
        memory = self.mechanism.prepare_memory(value, key, mask, training)
        rows = ops.cast(row_zeros(memory["value"]), "float32")
        if self.mode == "soft" or (training and self.mode == "auto"):
            memory["soft"] = rows  # its presence tells the steps
        if training and self.sigmoid_noise:
            memory["noise"] = rows + self.sigmoid_noise
        if training and self.dropout:
            memory["dropout"] = memory.get("dropout", 1) * self.dropout_factors(memory["value"])
        return memory

    def initial_state(self, memory):
        # The state of the mechanism stands beside the weights of the query before.
        zeros = at_least_float32(ops.zeros_like(memory["value"][:, :, 0]))
        first = ops.ones_like(zeros[:, :1])
        alignment = ops.concatenate([first, zeros[:, 1:]], axis=1)
        return {**self.mechanism.initial_state(memory), "alignment": alignment}

    def scores(self, query, memory, state):
        scores = at_least_float32(self.mechanism.scores(query, memory, _own(state)))
        scores = scores + ops.cast(self.energy_bias, scores.dtype)
        if "noise" not in memory:
            return scores
        noise = random.normal(ops.shape(scores), dtype="float32", seed=self._noise_seed)
        noise = noise * ops.expand_dims(memory["noise"], (1, 2))
        return scores + ops.cast(noise, scores.dtype)

    def weights_of(self, scores, memory, query_mask=None, state=None):
        mask = attention_mask(None, memory.get("mask"))
        weights = monotonic_weights(scores, state["alignment"], mask, hard="soft" not in memory)
        real = 1 if query_mask is None else ops.expand_dims(ops.cast(query_mask, weights.dtype), 2)
        return self.cast(weights * real)

    def update(self, state, scores, weights):
        return {**self.mechanism.update(_own(state), scores, weights), "alignment": weights}

    @property
    def has_sequence_loss(self):
        return self.mechanism.has_sequence_loss

    def add_sequence_loss(self, scores, query_mask=None, training=None):
        self.mechanism.add_sequence_loss(scores, query_mask, training)

    def enable_lora(self, rank, lora_alpha=None, a_initializer="he_uniform", b_initializer="zeros"):
        self.mechanism.enable_lora(rank, lora_alpha, a_initializer, b_initializer)

    def quantize(self, mode=None, type_check=True, config=None):
        self.mechanism.quantize(mode, type_check=type_check, config=config)

    @classmethod
    def from_config(cls, config):
        mechanism = keras.saving.deserialize_keras_object(config["mechanism"])
        return cls(**{**config, "mechanism": mechanism})


def _own(state: dict) -> dict:
    """Return the state of the mechanism itself."""
    return {name: part for name, part in state.items() if name != "alignment"}
