"""Local attention, which reads a window of the memory (Luong, Pham and Manning 2015)."""

from functools import partial
from typing import Any

from keras import ops, saving

from ...ops.loops import flatten, float_weights, functional, packed
from ...ops.masks import combine_masks, lengths
from ...ops.normalizers import masked_softmax
from ...ops.positions import (
    gather_windows,
    in_window,
    real_order,
    real_positions,
    spread_windows,
    window_positions,
)
from ...ops.shapes import is_symbol, product, size_of
from ...ops.types import is_float
from ...ops.vjp import pullback, unwatched, with_gradient
from ..arguments import check_choice, check_integer
from .base import row_zeros
from .luong import LuongAttention

ALIGNMENTS = ("monotonic", "predictive")
# A memory of more than this many windows' widths is read window by window; in a shorter one, one
# product over all of it is as fast (python -m benchmarks local-attention).
WINDOWED_FROM = 4


@saving.register_keras_serializable("keras_attention")
class LocalAttention(LuongAttention):
    """Local attention: only the words within `D` positions of a position `p_t` are read.

    - `alignment="monotonic"` (local-m): `p_t = t`, the query's own position counted from 0 (in
      `step`, carried in the state). `a_t = softmax(e_t)` inside the window.
    - `alignment="predictive"` (local-p): `p_t = S sigmoid(v_p . tanh(W_p q_t))` with `S` the
      length of that example, padding not counted, and
      `a_ts = softmax(e_t)_s exp(-(s - p_t)^2 / (2 sigma^2))`, `sigma = D / 2`. The weights are not
      normalised again, so they sum to less than 1.

    The window holds the positions `s` with `|s - p_t| <= D`, cut to the sentence. An empty window
    has zero weights and context. Positions of queries and words do not count padding, wherever it
    is.

    Weights: those of the score (see `LuongAttention`); for predictive alignment also
    `position_kernel` `W_p (Dq, U)` and `position_vector` `v_p (U,)`.

    Args:
        half_width: `D`.
        alignment: `"monotonic"` or `"predictive"`.
        score, max_length, kernel_initializer: As in `LuongAttention`.
        units: Size `U` of the hidden layers of `"concat"` and of the position, there by default
            the size of the queries.
        dropout: As in `ScoredAttention`, and so are the call and its results.
        seed: Seed of the dropout.
        scale: As in `LuongAttention`.
        **kwargs: As in `ScoredAttention`.

    Raises:
        ValueError: Where an argument is out of range, is missing or would be ignored.

    Reference:
        Luong, Pham and Manning 2015, section 3.2, equations 9 and 10.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import LocalAttention

    states, memory = np.random.normal(size=(2, 5, 8)), np.random.normal(size=(2, 7, 8))
    _, scores = LocalAttention(half_width=1)(states, memory, return_attention_scores=True)
    assert not np.any(np.asarray(scores)[:, 0, 2:])    # the first query sees positions 0 and 1
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
        scale: bool = False,
        **kwargs: Any,
    ):
        self.alignment = check_choice("alignment", alignment, ALIGNMENTS)
        self.half_width = check_integer("half_width", half_width)
        options = (score, units, max_length, kernel_initializer, dropout, seed, scale)
        super().__init__(*options, **kwargs)

    def _needs_units(self, score):
        if score == "concat":
            return True
        return None if self.alignment == "predictive" else False

    def build_score(self, query_size, key_size):
        super().build_score(query_size, key_size)
        if self.alignment == "predictive":
            units = self.units or query_size
            self._add_kernel("position_kernel", (query_size, units))
            self._add_kernel("position_vector", (units,))

    @property
    def reads_positions(self):
        return True

    def prepare_memory(self, value, key=None, mask=None, training=None):
        memory = super().prepare_memory(value, key, mask, training)
        memory["length"] = lengths(mask, memory["value"])
        if mask is not None and self._is_long(value) is not False:
            memory["order"] = real_order(mask, memory["position"])
        return memory

    def _is_long(self, value):
        """Whether a memory is read window by window; a tensor where a graph must ask."""
        length = size_of(value, 1)
        return not is_symbol(length) and length > WINDOWED_FROM * (2 * self.half_width + 1)

    def initial_state(self, memory):
        if self.alignment == "predictive":
            return {}
        return {"position": row_zeros(memory["value"])}

    def attend(self, query, memory, state, query_mask=None, return_attention_scores=True):
        center, state = self._center(query, memory, state, query_mask)
        is_long = self._is_long(memory["value"])
        given = {"query": self.queries(query), "center": center, "memory": memory}
        options = query_mask, return_attention_scores
        if isinstance(is_long, bool):
            results = (self._attend_windows if is_long else self._attend_all)(given, *options)
        else:  # a length that is known when the graph runs
            results = self._attend_either(is_long, given, *options)
        return results[0], results[1] if return_attention_scores else None, state

    def _attend_either(self, is_long, given, query_mask, return_attention_scores):
        """Read windows of a long memory, and else all of it, as the graph finds when it runs.

        The gradient takes the same branch once more: XLA can keep nothing that has another shape in
        the other branch.
        """
        fixed = {name: part for name, part in given["memory"].items() if not is_float(part)}
        memory = {name: part for name, part in given["memory"].items() if is_float(part)}
        weights = float_weights(self)
        given = {**given, "memory": memory, "weights": [weight.value for weight in weights]}

        def function_of(attend):
            attend = functional(attend, weights)

            def run(*tensors):
                inside = packed(given, tensors)
                inside["memory"] |= fixed
                options = query_mask, return_attention_scores
                return list(attend(inside.pop("weights"), inside, *options)[0])

            return run

        windows, whole = map(function_of, (self._attend_windows, self._attend_all))

        def attend(*tensors):
            tensors = unwatched(tensors)

            def gradient(upstream):
                branches = [partial(_pulled, each, tensors, upstream) for each in (windows, whole)]
                return ops.cond(is_long, *branches)

            return ops.cond(is_long, lambda: windows(*tensors), lambda: whole(*tensors)), gradient

        return with_gradient(attend, windows)(*flatten(given))

    def _attend_windows(self, given, query_mask, return_attention_scores):
        """Read the windows alone; return the context and, where wanted, the weights."""
        center, memory = given["center"], given["memory"]
        positions = window_positions(center, self.half_width)
        index = gather_windows(memory["order"], positions) if "order" in memory else positions
        length = ops.cast(ops.expand_dims(memory["length"], (1, 2)), "int32")
        inside = ops.logical_and(positions >= 0, positions < length)
        if "mask" in memory:
            inside = ops.logical_and(inside, gather_windows(memory["mask"], index))
        key = gather_windows(memory["key"], index)
        weights = self._weights(given, key, positions, inside, query_mask)
        read = weights
        if "dropout" in memory:
            read = weights * gather_windows(memory["dropout"], index)
        context = ops.matmul(ops.expand_dims(read, 2), gather_windows(memory["value"], index))
        context = ops.squeeze(context, 2)
        if not return_attention_scores:
            return (context,)
        scores = spread_windows(weights, positions, ops.expand_dims(memory["position"], 1))
        if "mask" in memory:
            scores = ops.where(ops.expand_dims(memory["mask"], 1), scores, ops.zeros_like(scores))
        return context, scores

    def _attend_all(self, given, query_mask, return_attention_scores):
        """Read the whole memory under a mask: the same, faster where the memory is short."""
        memory = given["memory"]
        positions = ops.expand_dims(memory["position"], 1)
        real = ops.expand_dims(memory["mask"], 1) if "mask" in memory else None
        weights = self._weights(given, memory["key"], positions, real, query_mask)
        return self.read(weights, memory), *((weights,) if return_attention_scores else ())

    def _center(self, query, memory, state, query_mask):
        """Return `p_t` of each query, `(B, T)`, and the state after the queries."""
        dtype = memory["length"].dtype
        if self.alignment == "monotonic":
            start, steps = state["position"], ops.shape(query)[1]
            if query_mask is None:
                own = ops.arange(steps, dtype="int32")
            else:
                own = real_positions(query_mask, query)
                steps = ops.sum(ops.cast(query_mask, "int32"), axis=1)
            center = ops.cast(ops.expand_dims(start, 1) + own, dtype)
            return center, {"position": start + steps}
        hidden = ops.tanh(product(query, self.cast(self.position_kernel)))
        logit = product(hidden, ops.expand_dims(self.cast(self.position_vector), -1))
        share = ops.sigmoid(ops.cast(ops.squeeze(logit, -1), dtype))
        return ops.expand_dims(memory["length"], 1) * share, state

    def _weights(self, given, key, positions, real, query_mask):
        """Return the weights over keys at positions `(B, 1, S)`, or at windows `(B, T, W)`."""
        center = given["center"]
        asking = None if query_mask is None else ops.expand_dims(query_mask, 2)
        mask = combine_masks(in_window(positions, center, self.half_width), real, asking)
        scores = self.score(given["query"], key, positions)
        weights = self.cast(masked_softmax(scores, mask))
        if self.alignment == "monotonic":
            return weights
        distance = ops.cast(positions, center.dtype) - ops.expand_dims(center, -1)
        sigma = self.half_width / 2
        return weights * ops.cast(ops.exp(-(distance**2) / (2 * sigma**2)), weights.dtype)


def _pulled(function, tensors, upstream):
    return pullback(function, tensors)[1](upstream)
