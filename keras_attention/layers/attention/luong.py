"""Global attention with one of four scores (Luong, Pham and Manning 2015)."""

from typing import Any

import keras
from keras import ops

from ...ops.masks import combine_masks
from ...ops.scores import additive_score, dot_score
from ...ops.shapes import product
from ..arguments import check_choice, check_flag, check_integer, fresh
from .scored import ScoredAttention, ignores_positions

SCORES = ("dot", "general", "concat", "location")


@keras.saving.register_keras_serializable("keras_attention")
class LuongAttention(ScoredAttention):
    """Global attention with one of Luong's four scores.

    | `score` | `e_ts` | weights |
    | --- | --- | --- |
    | `"dot"` | `q_t . k_s` | none |
    | `"general"` | `q_t W k_s` | `score_kernel (Dq, Dk)` |
    | `"concat"` | `v . tanh(W q_t + U k_s)` | `query_kernel (Dq, U)`, `key_kernel (Dk, U)`, |
    | | | `score_vector (U,)` |
    | `"location"` | `(W q_t)_s` | `location_kernel (Dq, max_length)` |

    `a_t = softmax(e_t)`, `c_t = sum_s a_ts v_s`

    With `scale` each score is multiplied by the learned number `gain` `g ()`, which starts at 1.

    Args:
        score: `"dot"` (queries and keys of one size), `"general"`, `"concat"` or `"location"`.
        units: Size `U` of the hidden layer of `"concat"`; the other scores have none.
        max_length: How many words `"location"` reads; a word past them gets weight 0. Padding,
            before the words too, does not count.
        kernel_initializer: Initializer of the weights. Default: Glorot's, but for the
            `score_kernel` of `"general"` a normal with a deviation of 0.01 (ADR 5).
        dropout: As in `ScoredAttention`, and so are the call and its results.
        seed: Seed of the dropout.
        scale: Whether the score is `g e_ts`.
        **kwargs: As in `ScoredAttention`.

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

    attribute_of = {"score": "score_name"}

    def __init__(
        self,
        score: str = "dot",
        units: int | None = None,
        max_length: int | None = None,
        kernel_initializer: Any = None,
        dropout: float = 0.0,
        seed: int | None = None,
        scale: bool = False,
        **kwargs: Any,
    ):
        super().__init__(dropout=dropout, seed=seed, **kwargs)
        self.scale = check_flag("scale", scale)
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
        if self.score_name == "general":
            self._add_kernel("score_kernel", (query_size, key_size))
        if self.score_name == "location":
            self._add_kernel("location_kernel", (query_size, self.max_length))
        if self.score_name == "concat":
            self._add_kernel("query_kernel", (query_size, self.units))
            self._add_kernel("key_kernel", (key_size, self.units))
            self._add_kernel("score_vector", (self.units,))
        if self.scale:
            self._make_weight("gain", (), "ones")

    def _add_kernel(self, name, shape):
        initializer = self.kernel_initializer
        if initializer is None:
            small = keras.initializers.RandomNormal(stddev=0.01)
            initializer = small if name == "score_kernel" else "glorot_uniform"
        self._make_weight(name, shape, fresh(initializer), "kernel")

    def project_query(self, query):
        is_concat = self.score_name == "concat"
        return product(query, self.cast(self.query_kernel)) if is_concat else query

    def project_key(self, key):
        if self.score_name == "general":
            # q W k as q (W k): the product with W is made once for a memory.
            return ops.matmul(key, ops.transpose(self.cast(self.score_kernel)))
        if self.score_name == "concat":
            return ops.matmul(key, self.cast(self.key_kernel))
        return key

    @ignores_positions
    def score(self, query, key, positions):
        if self.score_name == "concat":
            scores = additive_score(query, key, self.cast(self.score_vector))
        else:
            scores = dot_score(query, key)
        return scores * ops.cast(self.gain, scores.dtype) if self.scale else scores

    @property
    def reads_positions(self):
        return self.score_name == "location" or super().reads_positions

    def prepare_memory(self, value, key=None, mask=None, training=None):
        memory = super().prepare_memory(value, key, mask, training)
        if self.score_name == "location":
            # The score of a position is the product of the query and that column of the kernel.
            columns = ops.transpose(self.cast(self.location_kernel))
            positions = memory["position"]
            is_reached = positions < self.max_length
            index = ops.where(is_reached, positions, ops.zeros_like(positions))
            memory["key"] = ops.take(columns, index, axis=0)
            memory["mask"] = combine_masks(memory.get("mask"), is_reached)
        return memory


def _size_of(name, size, needed, owner):
    """Return a size; refuse one that is missing, is not a positive integer, or has no use."""
    if size is None and needed:
        raise ValueError(f"{owner} needs `{name}`, a positive integer. Received: {name}=None")
    if size is not None and needed is False:
        raise ValueError(f"{owner} has no use for `{name}`; leave it out. Received: {name}={size}")
    return None if size is None else check_integer(name, size)
