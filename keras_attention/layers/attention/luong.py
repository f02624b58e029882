"""Multiplicative attention and its variants, global and local (Luong, Pham and Manning 2015)."""

from typing import Any

import keras
from keras import ops

from keras_attention.layers.arguments import check_choice, check_integer, fresh, with_arguments
from keras_attention.layers.attention.base import AttentionMechanism, row_zeros
from keras_attention.layers.attention.loop_scores import AdditiveScore, DotScore, LoopScore
from keras_attention.ops.masks import combine_masks, lengths
from keras_attention.ops.normalizers import masked_softmax
from keras_attention.ops.scores import additive_score, dot_score, location_score
from keras_attention.ops.windows import gather_windows, in_window, spread_windows, window_positions

SCORES = ("dot", "general", "concat", "location")
ALIGNMENTS = ("monotonic", "predictive")

# From this many windows' widths on, a memory is read window by window: below it, one product over
# the whole memory is as fast as gathering (python -m benchmarks.local_attention).
WINDOWED_FROM = 4


@keras.saving.register_keras_serializable("keras_attention")
class LuongAttention(AttentionMechanism):
    """Global attention with one of Luong's four scores.

    | `score` | `e_ts` | weights |
    | --- | --- | --- |
    | `"dot"` | `q_t . k_s` | none |
    | `"general"` | `q_t W k_s` | `score_kernel (Dq, Dk)` |
    | `"concat"` | `v . tanh(W q_t + U k_s)` | `query_kernel (Dq, U)`, `key_kernel (Dk, U)`, |
    | | | `score_vector (U,)` |
    | `"location"` | `(W q_t)_s` | `location_kernel (Dq, max_length)` |

    `a_t = softmax(e_t)`, `c_t = sum_s a_ts v_s`

    Args:
        score: `"dot"` (queries and keys of one size), `"general"`, `"concat"` or `"location"`.
        units: Size `U` of the hidden layer of `"concat"`; the other scores have none.
        max_length: The longest memory whose words `"location"` tells apart; a word past it gets
            weight 0.
        kernel_initializer: Initializer of the weights. Default: Glorot's, but for the
            `score_kernel` of `"general"` a normal with a deviation of 0.01, so that all places
            have nearly the same weight at first. From Glorot's its weights are sharp before they
            mean something, and were seen to stay on the first word (ADR 5).
        dropout, seed, **kwargs: As in `AttentionMechanism`, and so are the call and its results.

    Raises:
        ValueError: Where an argument belongs to another score or is missing.

    Reference:
        Luong, Pham and Manning 2015, "Effective approaches to attention-based neural machine
        translation", section 3.1, equations 7 and 8. Their `h_t` is the query, `h_s` key and value.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import LuongAttention

    states, memory = np.random.normal(size=(2, 5, 8)), np.random.normal(size=(2, 7, 12))
    context, scores = LuongAttention("general")(states, memory, return_attention_scores=True)
    assert tuple(context.shape) == (2, 5, 12) and tuple(scores.shape) == (2, 5, 7)
    ```
    """

    def __init__(
        self,
        score: str = "dot",
        units: int | None = None,
        max_length: int | None = None,
        kernel_initializer: Any = None,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(dropout=dropout, seed=seed, **kwargs)
        self.score_name = check_choice("score", score, SCORES)
        owner = f"score={score!r}"
        self.units = _size_of("units", units, self._needs_units(score), owner)
        self.max_length = _size_of("max_length", max_length, score == "location", owner)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    @staticmethod
    def _needs_units(score) -> bool | None:
        """Whether `units` is required (True), has no meaning (False) or may be given (None)."""
        return score == "concat"

    def build_score(self, query_size, key_size):
        if self.score_name == "dot" and query_size != key_size:
            raise ValueError(
                "score='dot' needs queries and keys of one size; score='general' does not. "
                f"Received: query size {query_size}, key size {key_size}"
            )
        shapes = {
            "dot": {},
            "general": {"score_kernel": (query_size, key_size)},
            "concat": {
                "query_kernel": (query_size, self.units),
                "key_kernel": (key_size, self.units),
                "score_vector": (self.units,),
            },
            "location": {"location_kernel": (query_size, self.max_length)},
        }[self.score_name]
        for name, shape in shapes.items():
            self._add_kernel(name, shape)

    def _add_kernel(self, name, shape):
        initializer = self.kernel_initializer
        if initializer is None:
            small = keras.initializers.RandomNormal(stddev=0.01)
            initializer = small if name == "score_kernel" else "glorot_uniform"
        self._make_weight(name, shape, fresh(initializer))

    def project_query(self, query):
        is_concat = self.score_name == "concat"
        return ops.matmul(query, self.cast(self.query_kernel)) if is_concat else query

    def project_key(self, key):
        if self.score_name == "general":
            # q W k as q (W k): the product with W is made once for a memory.
            return ops.matmul(key, ops.transpose(self.cast(self.score_kernel)))
        if self.score_name == "concat":
            return ops.matmul(key, self.cast(self.key_kernel))
        return key

    def score(self, query, key, positions):
        if self.score_name == "concat":
            return additive_score(query, key, self.cast(self.score_vector))
        if self.score_name == "location":
            return location_score(query, self.cast(self.location_kernel), positions)
        return dot_score(query, key)

    def score_mask(self, positions):
        return positions < self.max_length if self.score_name == "location" else None

    def loop_score(self):
        if self.score_name == "location":
            return LocationScore(self.cast(self.location_kernel))
        if self.score_name == "concat":
            return AdditiveScore(self.cast(self.query_kernel), self.cast(self.score_vector))
        return DotScore()

    def get_config(self):
        config = {**super().get_config(), "score": self.score_name}
        return with_arguments(config, self, LuongAttention)


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
        score, max_length, kernel_initializer: As in `LuongAttention`.
        units: Size `U` of the hidden layers of `"concat"` and of the position; for the position
            the default is the size of the queries.
        dropout, seed, **kwargs: As in `AttentionMechanism`, and so are the call and its results.

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
        super().__init__(score, units, max_length, kernel_initializer, dropout, seed, **kwargs)

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

    def initial_state(self, memory):
        if self.alignment == "predictive":
            return {}
        return {"position": row_zeros(memory["value"])}

    def attend(self, query, memory, state, query_mask=None, return_attention_scores=True):
        center, state = self._center(query, memory, state)
        length = ops.shape(memory["value"])[1]
        wanted = (query, memory, center, query_mask, return_attention_scores)
        is_long = length > WINDOWED_FROM * (2 * self.half_width + 1)
        if isinstance(is_long, bool):
            results = (self._attend_windows if is_long else self._attend_all)(*wanted)
        else:  # a length that is known when the graph runs
            results = ops.cond(
                is_long, lambda: self._attend_windows(*wanted), lambda: self._attend_all(*wanted)
            )
        return results[0], results[1] if return_attention_scores else None, state

    def _attend_windows(self, query, memory, center, query_mask, return_attention_scores):
        """Read the windows alone; return the context and, where wanted, the weights."""
        places = window_positions(center, self.half_width)
        weights = self._weights(query, memory, places, center, query_mask)
        read = weights
        if "dropout" in memory:
            read = weights * gather_windows(memory["dropout"], places)
        context = ops.matmul(ops.expand_dims(read, 2), gather_windows(memory["value"], places))
        length = ops.shape(memory["value"])[1]
        wanted = (spread_windows(weights, places, length),) if return_attention_scores else ()
        return ops.squeeze(context, 2), *wanted

    def _attend_all(self, query, memory, center, query_mask, return_attention_scores):
        """Read the whole memory under a mask: the same, faster where the memory is short."""
        places = ops.arange(ops.shape(memory["value"])[1], dtype="int32")
        weights = self._weights(query, memory, places, center, query_mask)
        return self.read(weights, memory), *((weights,) if return_attention_scores else ())

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
        mask, key, real = in_window(places, center, self.half_width), memory["key"], None
        if windowed:
            length = ops.shape(memory["value"])[1]
            mask = combine_masks(mask, places >= 0, places < length)
            key = gather_windows(key, places)
        if "mask" in memory:
            real = memory["mask"]
            real = gather_windows(real, places) if windowed else ops.expand_dims(real, 1)
        asking = None if query_mask is None else ops.expand_dims(query_mask, 2)
        mask = combine_masks(mask, real, asking, self.score_mask(places))
        scores = self.score(self.queries(query), key, places)
        weights = self.cast(masked_softmax(scores, mask))
        if self.alignment == "monotonic":
            return weights
        distance = ops.cast(places, "float32") - ops.expand_dims(center, -1)
        sigma = self.half_width / 2
        return weights * ops.cast(ops.exp(-(distance**2) / (2 * sigma**2)), weights.dtype)

    def get_config(self):
        return with_arguments(super().get_config(), self, LocalAttention)


class LocationScore(LoopScore):
    """`e_s = q_s`: the query, multiplied with its kernel, is the score of each place."""

    def score(self, query, key, state, weights):
        return _resized(query, ops.shape(key)[1])

    def query_gradient(self, upstream, query, key, state, weights):
        return _resized(upstream, query.shape[1]), {}, {}

    def memory_gradients(self, upstream, query, key, weights, sums):
        return {}


def _resized(rows, size):
    """Return rows `(B, N)` cut or filled with zeros to `(B, size)`."""
    filling = ops.zeros((ops.shape(rows)[0], size), rows.dtype)
    rows = ops.concatenate([rows, filling], axis=1)[:, :size]
    return ops.reshape(rows, (ops.shape(rows)[0], size))


def _size_of(name, size, needed, owner):
    """Return a size; refuse one that is missing, is not a positive integer, or has no use."""
    if size is None and needed:
        raise ValueError(f"{owner} needs `{name}`, a positive integer. Received: {name}=None")
    if size is not None and needed is False:
        raise ValueError(f"{owner} has no use for `{name}`; leave it out. Received: {name}={size}")
    return None if size is None else check_integer(name, size)
