"""Multiplicative attention and its variants (Luong, Pham and Manning 2015)."""

from typing import Any

import keras
from keras import ops

from keras_attention.layers.attention.base import AttentionMechanism, fresh
from keras_attention.layers.attention.loop_scores import AdditiveScore, DotScore, LocationScore
from keras_attention.layers.checks import check_choice, check_integer
from keras_attention.ops.scores import additive_score, dot_score, location_score

SCORES = ("dot", "general", "concat", "location")


@keras.saving.register_keras_serializable("keras_attention")
class LuongAttention(AttentionMechanism):
    """Global attention with one of Luong's four scores.

    | `score` | `e_ts` | weights |
    | --- | --- | --- |
    | `"dot"` | `q_t . k_s` | none |
    | `"general"` | `q_t W k_s` | `score_kernel` |
    | `"concat"` | `v . tanh(W [q_t; k_s])` | `query_kernel`, `key_kernel`, `score_vector` |
    | `"location"` | `(W q_t)_s` | `location_kernel` |

    Shapes: `score_kernel (Dq, Dk)`, `query_kernel (Dq, U)`, `key_kernel (Dk, U)`,
    `score_vector (U,)`, `location_kernel (Dq, max_length)`.

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
        ValueError: Where an argument belongs to another score or is missing, or where shapes or
            masks do not fit.

    Reference:
        Luong, Pham and Manning 2015, "Effective approaches to attention-based neural machine
        translation", section 3.1, equations 7 and 8. Their `h_t` is the query, `h_s` key and value.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import LuongAttention

    states = np.random.normal(size=(2, 5, 8))
    memory = np.random.normal(size=(2, 7, 12))
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
            setattr(self, name, self._add_kernel(name, shape))

    def _add_kernel(self, name, shape):
        initializer = self.kernel_initializer
        if initializer is None:
            small = keras.initializers.RandomNormal(stddev=0.01)
            initializer = small if name == "score_kernel" else "glorot_uniform"
        return self.add_weight(shape, initializer=fresh(initializer), name=name)

    def project_query(self, query):
        if self.score_name == "concat":
            return ops.matmul(query, self.cast(self.query_kernel))
        return query

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
        return {
            **super().get_config(),
            "score": self.score_name,
            "units": self.units,
            "max_length": self.max_length,
            "kernel_initializer": self.kernel_initializer
            and keras.initializers.serialize(self.kernel_initializer),
        }


def _size_of(name, size, needed, owner):
    """Return a size; refuse one that is missing, is not a positive integer, or has no use."""
    if size is None and needed:
        raise ValueError(f"{owner} needs `{name}`, a positive integer. Received: {name}=None")
    if size is not None and needed is False:
        raise ValueError(f"{owner} has no use for `{name}`; leave it out. Received: {name}={size}")
    return None if size is None else check_integer(name, size)
