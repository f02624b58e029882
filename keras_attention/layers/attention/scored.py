"""The base of the mechanisms with a score: `e_ts`, softmax, and what is kept between steps."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops, tree

from ...ops.loops import where_real
from ...ops.masks import (
    attention_mask,
    check_dense,
    check_mask,
    combine_masks,
    for_batch,
    zero_masked,
)
from ...ops.normalizers import masked_softmax
from ...ops.positions import real_positions
from ...ops.scores import dot_score
from ...ops.types import Tensor, at_least_float32
from .. import arguments
from .attention_steps import weigh_in_order, with_step_axis, without_step_axis
from .base import AttentionMechanism, is_self_attention, masks_of, unpack_qkv

HALF_OF_FLOAT16 = 32752.0  # half of the largest number


def ignores_positions(score: Callable) -> Callable:
    """Mark a `score` that reads no positions, so that none are computed for it."""
    score.ignores_positions = True
    return score


class ScoredAttention(AttentionMechanism):
    """Base class of the mechanisms with a score, to write your own.

    `a_ts = softmax_s(e_ts)`, `c_t = sum_s a_ts v_s`

    A subclass writes its `score`, and where it has them `build_score`, `project_query` and
    `project_key`. One that keeps a state also writes `initial_state` and `update`. The calls on
    whole sequences, steps, an `AttentionDecoder`'s loop, and all gradients follow from these.

    Args:
        dropout: Rate at which weights are dropped in training, at the same memory positions for
            every query of a sequence. Scores returned are those before dropout.
        seed: Seed of the dropout.
        **kwargs: The arguments of every Keras layer. Where a mechanism has a `kernel_initializer`,
            these include a `kernel_regularizer` and a `kernel_constraint` of the same weights, as
            in `keras.layers.Dense`; and so for each other initializer.

    Call arguments:
        query: Queries `(B, T, Dq)`; or a list `[query, value]` or `[query, value, key]`.
        value: Values `(B, S, Dv)`. Default: the queries, which is self-attention.
        key: Keys `(B, S, Dk)`. Default: the values.
        query_mask: Boolean `(B, T)`; a masked query gets zero weights and a zero context.
        value_mask: Boolean `(B, S)`; a masked memory position gets weight 0.
        return_attention_scores: Whether to return the weights.
        training: Whether dropout applies.
        mask: As `query_mask`, or a list `[query_mask, value_mask]`. Keras passes by itself the
            masks that inputs carry.

    Returns:
        The context `(B, T, Dv)`; with `return_attention_scores` also the weights `(B, T, S)`.

    Raises:
        ValueError: Where shapes or masks do not fit each other.

    Reference:
        Bahdanau, Cho and Bengio 2015, section 3.1, equations 5 and 6; Luong, Pham and Manning 2015,
        section 3.1, equation 7.

    Example:

    ```python
    import keras
    import numpy as np
    from keras import ops
    from keras_attention.layers import AttentionDecoder, ScoredAttention

    class CosineAttention(ScoredAttention):
        def project_query(self, query):
            return ops.normalize(query, axis=-1)

        def project_key(self, key):
            return ops.normalize(key, axis=-1)

        def score(self, query, key, positions):
            return ops.matmul(query, ops.swapaxes(key, 1, 2))

    words, memory = np.random.normal(size=(2, 5, 6)), np.random.normal(size=(2, 7, 8))
    decoder = AttentionDecoder(keras.layers.GRUCell(8), CosineAttention())
    outputs, scores = decoder(words, memory, return_attention_scores=True)
    assert tuple(outputs.shape) == (2, 5, 8) and tuple(scores.shape) == (2, 5, 7)
    ```
    """

    # A subclass writes these.

    def build_score(self, query_size: int, key_size: int) -> None:
        """Make the weights of the score."""

    def project_query(self, query: Tensor) -> Tensor:
        """Return what the score needs of queries `(B, T, Dq)`."""
        return query

    def project_key(self, key: Tensor) -> Tensor:
        """Return what the score needs of keys `(B, S, Dk)`. It is computed once for a memory."""
        return key

    def score(self, query: Tensor, key: Tensor, positions: Tensor, *state: dict) -> Tensor:
        """Return the scores `(B, T, S)` of projected queries and keys. In a step, `T` is 1.

        `positions`, integers `(B, 1, S)`, are those of the keys, from 0; padding does not count.
        `LocalAttention` calls its score with windows of keys, `(B, T, W, ...)`, and their positions
        `(B, T, W)`.

        A mechanism that keeps a state gets it as a fourth argument, `state`: that before each
        query, with a second axis of `T` steps, `(B, T, ...)`.
        """
        raise NotImplementedError(f"{type(self).__name__} must write `score`.")

    def update(self, state: dict, scores: Tensor, weights: Tensor) -> dict:
        """Return the state after queries, from that before them.

        `scores` and `weights` are `(B, T, S)`, 0 where the memory is masked; the tensors of a state
        have the axis of `T` steps too. In a step, `T` is 1.
        """
        return state

    def score_mask(self, positions: Tensor) -> Tensor:
        """Return which positions `(B, S)` the score can reach, a mask, or `None` for all."""
        return None

    @property
    def reads_positions(self) -> bool:
        """Whether anything reads positions, which the memory then holds."""
        kind = type(self)
        has_mask = kind.score_mask is not ScoredAttention.score_mask
        return has_mask or not hasattr(kind.score, "ignores_positions")

    # All mechanisms share these.

    def build(self, query_shape, value_shape=None, key_shape=None):
        query_shape, value_shape, key_shape = _shapes(query_shape, value_shape, key_shape)
        self.value_size = value_shape[-1]
        self.key_size = key_shape[-1]
        self.query_size = query_shape[-1]
        self.build_score(self.query_size, self.key_size)
        self.restore_quantization()

    def call(
        self,
        query: Tensor,
        value: Tensor = None,
        key: Tensor = None,
        query_mask: Tensor = None,
        value_mask: Tensor = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        mask: Tensor = None,
    ) -> Tensor:
        query, value, key, query_mask, value_mask = self._inputs(
            query, value, key, query_mask, value_mask, mask
        )
        memory = self.prepare_memory(value, key, value_mask, training=training)
        if query.shape[1] == 0:  # Keras' loops need a step
            scores = ops.zeros((ops.shape(query)[0], 0, ops.shape(value)[1]), self.compute_dtype)
            context = ops.matmul(scores, memory["value"])
            return (context, scores) if return_attention_scores else context
        query = zero_masked(self.cast(query), query_mask)
        wanted = return_attention_scores or self.has_sequence_loss
        state = self.initial_state(memory)
        context, scores, _ = self.attend(query, memory, state, query_mask, wanted)
        self.add_sequence_loss(scores, query_mask, training)
        return (context, scores) if return_attention_scores else context

    def prepare_memory(
        self, value: Tensor, key: Tensor = None, mask: Tensor = None, training: bool | None = None
    ) -> dict:
        """Compute once what every query step reads, from the arguments of the call.

        Returns a dictionary of tensors, batch first. `training` says whether dropout applies.
        """
        arguments.check_built(self, "query_shape, value_shape")
        check_dense([value, key], "value and key")
        value = self.cast(value)
        key = value if key is None else self.cast(key)
        arguments.check_features("value", value.shape, self.value_size)
        arguments.check_features("key", key.shape, self.key_size)
        check_mask(mask, tuple(value.shape[:2]), "value_mask")
        mask = for_batch(mask, value)
        # Padding is zeroed, so that no NaN in it reaches a context or a gradient; and again after a
        # projection, which may make NaN of zeros, as `ops.normalize` does in float16.
        key = self.project_key(zero_masked(key, mask))
        key = self._bounded(zero_masked(key, mask))
        memory = {"value": zero_masked(value, mask), "key": key}
        if self.reads_positions:
            memory["position"] = real_positions(mask, value)
            mask = combine_masks(mask, self.score_mask(memory["position"]))
        if mask is not None:
            memory["mask"] = ops.cast(mask, "bool")
        if self.dropout and training:
            memory["dropout"] = self.dropout_factors(value)
        return memory

    def attend(
        self,
        query: Tensor,
        memory: dict,
        state: dict,
        query_mask: Tensor = None,
        return_attention_scores: bool = True,
    ) -> tuple:
        query = self.queries(query)
        if state and query.shape[1] != 1:
            weights, state = weigh_in_order(self, query, memory, state, query_mask)
            return self.read(weights, memory), weights, state
        before = with_step_axis(state)
        scores = self.scores(query, memory, before)
        weights = self.weights_of(scores, memory, query_mask, before)
        if state:
            after = without_step_axis(self.state_after(before, scores, weights, memory))
            state = where_real(None if query_mask is None else query_mask[:, 0], after, state)
        return self.read(weights, memory), weights, state

    # The parts of `attend`, of which a loop with a gradient of its own consists too.

    def queries(self, query):
        """Return the projected queries, as `score` takes them."""
        return self._bounded(self.project_query(query))

    def _bounded(self, projected):
        """Keep projections in float16 finite; a sum of two of them is finite too."""
        if self.compute_dtype != "float16":
            return projected
        return ops.clip(projected, -HALF_OF_FLOAT16, HALF_OF_FLOAT16)

    def scores(self, query, memory, state):
        """Return the scores of projected queries, whose states `(B, T, ...)` are known."""
        positions = ops.expand_dims(memory["position"], 1) if self.reads_positions else None
        states = [state] if state else []
        return self.score(query, memory["key"], positions, *states)

    def weights_of(self, scores, memory, query_mask=None, state=None):
        """Return the weights: the softmax of scores, in the compute dtype.

        `state` is that before the queries, as in `scores`.
        """
        return self.cast(masked_softmax(scores, attention_mask(query_mask, memory.get("mask"))))

    def state_after(self, state, scores, weights, memory):
        """Return the states after queries, in the dtypes of those before them."""
        scores = at_least_float32(scores)
        if "mask" in memory:
            scores = ops.where(ops.expand_dims(memory["mask"], 1), scores, ops.zeros_like(scores))
        after = self.update(state, scores, weights)
        return tree.map_structure(lambda new, old: ops.cast(new, old.dtype), after, state)

    @property
    def has_softmax(self) -> bool:
        """Whether the weights are the softmax of the scores, whose gradient is known."""
        return type(self).weights_of is ScoredAttention.weights_of

    @property
    def has_derived_steps(self) -> bool:
        """Whether steps in a loop can be derived from the score: nothing around it is overridden.

        A subclass that overrides `attend`, `step` or `read` weighs or reads in its own way.
        """
        names = ("attend", "step", "read", "queries")
        return all(getattr(type(self), name) is getattr(ScoredAttention, name) for name in names)

    def compute_output_shape(
        self, query_shape, value_shape=None, key_shape=None, return_attention_scores=False
    ):
        query, value, key = _shapes(query_shape, value_shape, key_shape)
        self._check_features(query, value, key)
        context = (*query[:2], value[2])
        return (context, (*query[:2], value[1])) if return_attention_scores else context

    @arguments.for_own_call
    def compute_output_spec(self, *args, **kwargs):
        of = arguments.call_arguments(self, args, kwargs)
        masks = (of.query_mask, of.value_mask, of.mask)
        query, value, key, *_ = self._inputs(of.query, of.value, of.key, *masks)
        shapes = self.compute_output_shape(query.shape, value.shape, key.shape, True)
        return arguments.specs(shapes[: 1 + bool(of.return_attention_scores)], self.compute_dtype)

    def _inputs(self, query, value, key, query_mask, value_mask, mask):
        """Return query, value, key, and the masks of query and value, from any way to give them."""
        masks, value_mask = masks_of(query_mask, value_mask, mask)
        alone = is_self_attention(query, value)
        query, value, key = unpack_qkv(query, value, key)
        for name, given in zip(("query_mask", "mask"), masks, strict=True):
            check_mask(given, tuple(query.shape[:2]), name)
        query_mask = combine_masks(*masks)
        query_mask = for_batch(query_mask, query)
        value_mask = query_mask if alone and value_mask is None else value_mask
        _shapes(query.shape, value.shape, key.shape)
        self._check_features(query.shape, value.shape, key.shape)
        check_mask(value_mask, tuple(value.shape[:2]), "value_mask")
        return query, value, key, query_mask, value_mask

    def _check_features(self, query, value, key):
        """Raise a ValueError where shapes do not fit a layer that is built."""
        if self.built:
            arguments.check_features("query", query, self.query_size)
            arguments.check_features("value", value, self.value_size)
            arguments.check_features("key", key, self.key_size)


class BilinearAttention(ScoredAttention):
    """`e_ts = q_t W k_s`, where a subclass multiplies queries or keys by `W`."""

    def __init__(
        self,
        kernel_initializer: Any = "glorot_uniform",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(dropout=dropout, seed=seed, **kwargs)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build_score(self, query_size, key_size):
        shape = (query_size, key_size)
        self._make_weight("score_kernel", shape, self.kernel_initializer, "kernel")

    @ignores_positions
    def score(self, query, key, positions):
        return dot_score(query, key)


def _shapes(query, value=None, key=None):
    """Return the shapes of query, value and key; refuse those that do not fit each other."""
    query, value, key = map(tuple, unpack_qkv(query, value, key))
    memory = {"value": (value, arguments.MEMORY), "key": (key, arguments.MEMORY)}
    arguments.check_shapes(query=(query, arguments.SEQUENCE), **memory)
    return query, value, key
