"""Local attention (Luong, Pham and Manning 2015): a window around one place of the memory."""

from typing import Any

import keras
from keras import ops

from keras_attention.layers.attention.base import row_zeros
from keras_attention.layers.attention.luong import LuongAttention
from keras_attention.layers.checks import check_choice, check_integer
from keras_attention.ops.masks import lengths
from keras_attention.ops.normalizers import masked_softmax
from keras_attention.ops.windows import (
    gather_windows,
    in_window,
    spread_windows,
    window_positions,
)

ALIGNMENTS = ("monotonic", "predictive")

# From this many windows' widths on, a memory is read window by window: below it, one product over
# the whole memory is as fast as gathering (python -m benchmarks.local_attention).
WINDOWED_FROM = 4


@keras.saving.register_keras_serializable("keras_attention")
class LocalAttention(LuongAttention):
    """Local attention: only the words within `D` places of a position `p_t` are read.

    - `alignment="monotonic"` (local-m): `p_t = t`, the query's own place counted from 0 (in
      `step`, carried in the state). `a_t = softmax(e_t)` inside the window.
    - `alignment="predictive"` (local-p): `p_t = S sigmoid(v_p . tanh(W_p q_t))` with `S` the
      length of that example, padding not counted, and
      `a_ts = softmax(e_t)_s exp(-(s - p_t)^2 / (2 sigma^2))`, `sigma = D / 2`. The weights are not
      normalised again, so they sum to less than 1.

    The window holds the places `s` with `|s - p_t| <= D`, cut to the sentence. A window past the
    sentence's end is empty: zero weights and a zero context. Long memories are read window by
    window, so that time and memory do not grow with their length.

    Weights: those of the score (see `LuongAttention`); for predictive alignment also
    `position_kernel` `W_p (Dq, U)` and `position_vector` `v_p (U,)`.

    Args:
        half_width: `D`.
        alignment: `"monotonic"` or `"predictive"`.
        score: `"dot"`, `"general"`, `"concat"` or `"location"`.
        units: Size `U` of the hidden layers of `"concat"` and of the position; for the position
            the default is the size of the queries.
        max_length: The longest memory that `"location"` tells apart.
        kernel_initializer: Initializer of the weights, with the default of `LuongAttention`.
        dropout: Rate at which weights are dropped in training.
        seed: Seed of the dropout.
        **kwargs: Arguments of every Keras layer.

    Call arguments:
        query: `(B, T, Dq)`.
        value: `(B, S, Dv)`. Default: the queries.
        key: `(B, S, Dk)`. Default: the values.
        query_mask: Boolean `(B, T)`, True = attend.
        value_mask: Boolean `(B, S)`, True = attend.
        return_attention_scores: Whether to return the weights too.
        training: Whether dropout applies.

    Returns:
        The context `(B, T, Dv)`; with `return_attention_scores`, a tuple of it and the weights
        `(B, T, S)`.

    Raises:
        ValueError: Where an argument is out of range, is missing or would be ignored, or where
            shapes or masks do not fit.

    Reference:
        Luong, Pham and Manning 2015, section 3.2, equations 9 and 10.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import LocalAttention

    states = np.random.normal(size=(2, 5, 8))
    memory = np.random.normal(size=(2, 7, 8))
    _, scores = LocalAttention(half_width=1)(states, memory, return_attention_scores=True)
    assert not np.any(np.asarray(scores)[:, 0, 2:])    # the first query sees places 0 and 1
    ```
    """

    def __init__(
        self,
        half_width: int = 10,
        alignment: str = "monotonic",
        score: str = "dot",
        units: int | None = None,
        max_length: int | None = None,
        kernel_initializer: Any = None,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        self.alignment = check_choice("alignment", alignment, ALIGNMENTS)
        self.half_width = check_integer("half_width", half_width)
        super().__init__(
            score=score,
            units=units,
            max_length=max_length,
            kernel_initializer=kernel_initializer,
            dropout=dropout,
            seed=seed,
            **kwargs,
        )

    def _needs_units(self, score):
        if score == "concat":
            return True
        return None if self.alignment == "predictive" else False

    def build_score(self, query_size, key_size):
        super().build_score(query_size, key_size)
        if self.alignment == "predictive":
            units = self.units or query_size
            self.position_kernel = self._add_kernel("position_kernel", (query_size, units))
            self.position_vector = self._add_kernel("position_vector", (units,))

    def initial_state(self, memory):
        if self.alignment == "predictive":
            return {}
        return {"position": row_zeros(memory["value"])}

    def attend(self, query, memory, state, query_mask=None, return_attention_scores=True):
        center, state = self._center(query, memory, state)
        length = ops.shape(memory["value"])[1]
        wanted = (query, memory, center, query_mask, return_attention_scores)
        is_long = length > WINDOWED_FROM * (2 * self.half_width + 1)
        if not isinstance(is_long, bool):  # a length that is known when the graph runs
            results = ops.cond(
                is_long, lambda: self._attend_windows(*wanted), lambda: self._attend_all(*wanted)
            )
        elif is_long:
            results = self._attend_windows(*wanted)
        else:
            results = self._attend_all(*wanted)
        return results[0], results[1] if return_attention_scores else None, state

    def _attend_windows(self, query, memory, center, query_mask, return_attention_scores):
        """Read the windows alone; return the context and, where wanted, the weights."""
        places = window_positions(center, self.half_width)
        weights = self._weights(query, memory, places, center, query_mask)
        context = self._read_windows(weights, memory, places)
        if not return_attention_scores:
            return (context,)
        return context, spread_windows(weights, places, ops.shape(memory["value"])[1])

    def _attend_all(self, query, memory, center, query_mask, return_attention_scores):
        """Read the whole memory under a mask: the same, faster where the memory is short."""
        places = ops.arange(ops.shape(memory["value"])[1], dtype="int32")
        weights = self._weights(query, memory, places, center, query_mask)
        context = self.read(weights, memory)
        return (context, weights) if return_attention_scores else (context,)

    def _center(self, query, memory, state):
        """Return `p_t` of each query, float32 `(B, T)`, and the state after the queries."""
        if self.alignment == "monotonic":
            steps = ops.shape(query)[1]
            center = ops.expand_dims(state["position"], 1) + ops.arange(steps, dtype="int32")
            return ops.cast(center, "float32"), {"position": state["position"] + steps}
        hidden = ops.tanh(ops.matmul(query, self.cast(self.position_kernel)))
        logit = ops.matmul(hidden, ops.expand_dims(self.cast(self.position_vector), -1))
        share = ops.sigmoid(ops.cast(ops.squeeze(logit, -1), "float32"))
        length = lengths(memory.get("mask"), memory["value"])
        return ops.expand_dims(length, 1) * share, state

    def _weights(self, query, memory, places, center, query_mask):
        """Return the weights over `places`, `(S,)` or windows `(B, T, W)`."""
        windowed = len(places.shape) == 3
        mask = in_window(places, center, self.half_width)
        key = memory["key"]
        if windowed:
            length = ops.shape(memory["value"])[1]
            mask = ops.logical_and(mask, ops.logical_and(places >= 0, places < length))
            key = gather_windows(key, places)
        mask = ops.logical_and(mask, self._memory_mask(memory, places, windowed))
        if query_mask is not None:
            mask = ops.logical_and(mask, ops.expand_dims(ops.cast(query_mask, "bool"), 2))
        reach = self.score_mask(places)
        if reach is not None:
            mask = ops.logical_and(mask, reach)
        scores = self.score(self.queries(query), key, places)
        weights = self.cast(masked_softmax(scores, mask))
        if self.alignment == "monotonic":
            return weights
        distance = ops.cast(places, "float32") - ops.expand_dims(center, -1)
        sigma = self.half_width / 2
        return weights * ops.cast(ops.exp(-(distance**2) / (2 * sigma**2)), weights.dtype)

    def _memory_mask(self, memory, places, windowed):
        if "mask" not in memory:
            return True
        mask = memory["mask"]
        return gather_windows(mask, places) if windowed else ops.expand_dims(mask, 1)

    def _read_windows(self, weights, memory, places):
        if "dropout" in memory:
            weights = weights * gather_windows(memory["dropout"], places)
        values = gather_windows(memory["value"], places)
        return ops.squeeze(ops.matmul(ops.expand_dims(weights, 2), values), 2)

    def get_config(self):
        return {
            **super().get_config(),
            "half_width": self.half_width,
            "alignment": self.alignment,
        }
