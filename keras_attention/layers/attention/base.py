"""The contract of an attention mechanism, and the steps that all mechanisms share."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from ...ops.dropout import dropout_factors
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
from ...ops.types import Tensor
from .. import arguments
from ..lora_and_quantization import AdaptableKernels
from .loop_scores import LoopScore

HALF_OF_FLOAT16 = 32752.0  # half of the largest number


def ignores_positions(score: Callable) -> Callable:
    """Mark a `score` that reads no positions, so that none are computed for it."""
    score.ignores_positions = True
    return score


class AttentionMechanism(AdaptableKernels, keras.layers.Layer):
    """Base class of the mechanisms: queries read a memory through normalised scores.

    `a_ts = softmax_s(e_ts)`, `c_t = sum_s a_ts v_s`

    Call it on whole sequences, or step by step, as a decoder does. Memory and state are
    dictionaries of tensors, batch first:

    ```
    memory = mechanism.prepare_memory(value, key, mask)        # keys are projected once
    state = mechanism.initial_state(memory)                    # {} where it keeps none
    context, scores, state = mechanism.step(query, memory, state)
    ```

    A subclass writes its score: `build_score`, `project_key`, `project_query` and `score`. One that
    normalises otherwise, or keeps a state, overrides `attend`. One whose weights are a softmax can
    declare a `loop_score`, which makes a decoder's loop faster.

    Args:
        dropout: Rate at which weights are dropped in training, at the same memory positions for
            every query of a sequence. Scores returned are those before.
        seed, **kwargs: Seed of the dropout, and the arguments of every Keras layer. Where a
            mechanism has a `kernel_initializer`, these include a `kernel_regularizer` and a
            `kernel_constraint` of the same weights, as in `keras.layers.Dense`; and so for each
            other initializer.

    Call arguments:
        query: Queries `(B, T, Dq)`; or a list `[query, value]` or `[query, value, key]`.
        value: Values `(B, S, Dv)`. Default: the queries, which is self-attention.
        key: Keys `(B, S, Dk)`. Default: the values.
        query_mask: Boolean `(B, T)`; a masked query gets zero weights and a zero context.
        value_mask: Boolean `(B, S)`; a masked memory position gets weight 0.
        return_attention_scores, training: Whether to return the weights; whether dropout applies.
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
    import numpy as np
    from keras import ops
    from keras_attention.layers import AttentionMechanism

    class CosineAttention(AttentionMechanism):
        def project_query(self, query):
            return ops.normalize(query, axis=-1)

        def project_key(self, key):
            return ops.normalize(key, axis=-1)

        def score(self, query, key, positions):
            return ops.matmul(query, ops.swapaxes(key, 1, 2))

    states, memory = np.random.normal(size=(2, 5, 8)), np.random.normal(size=(2, 7, 8))
    context, scores = CosineAttention()(states, memory, return_attention_scores=True)
    assert tuple(context.shape) == (2, 5, 8) and tuple(scores.shape) == (2, 5, 7)
    ```
    """

    def __init__(self, dropout: float = 0.0, seed: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.dropout = arguments.check_rate("dropout", dropout)
        self.seed = arguments.check_seed(seed)
        self.supports_masking = True
        if dropout:
            # No Dropout layer: `keras.Model.quantize` reaches layers without sublayers alone.
            self._dropout_seed = keras.random.SeedGenerator(self.seed)

    has_weight_options = True

    # What a subclass writes.

    def build_score(self, query_size: int, key_size: int) -> None:
        """Make the weights of the score."""

    def project_query(self, query: Tensor) -> Tensor:
        """Return what the score needs of queries `(B, T, Dq)`."""
        return query

    def project_key(self, key: Tensor) -> Tensor:
        """Return what the score needs of keys `(B, S, Dk)`."""
        return key

    def score(self, query: Tensor, key: Tensor, positions: Tensor) -> Tensor:
        """Return the scores `(B, T, S)` of projected queries and keys.

        Keys may be windows `(B, T, W, ...)`. `positions`, integers `(B, 1, S)` or `(B, T, W)`, are
        those of the keys, from 0; padding does not count.
        """
        raise NotImplementedError(f"{type(self).__name__} must write `score`.")

    def score_mask(self, positions: Tensor) -> Tensor:
        """Return which positions `(B, S)` the score can reach, a mask, or `None` for all."""
        return None

    @property
    def reads_positions(self) -> bool:
        """Whether anything reads positions, which the memory then holds."""
        kind = type(self)
        has_mask = kind.score_mask is not AttentionMechanism.score_mask
        return has_mask or not hasattr(kind.score, "ignores_positions")

    # What all share.

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
        # Padding is zeroed first, so that no NaN in it reaches a context or a gradient.
        key = zero_masked(key, mask)
        memory = {"value": zero_masked(value, mask), "key": self._bounded(self.project_key(key))}
        if self.reads_positions:
            memory["position"] = real_positions(mask, value)
            mask = combine_masks(mask, self.score_mask(memory["position"]))
        if mask is not None:
            memory["mask"] = ops.cast(mask, "bool")
        if self.dropout and training:
            memory["dropout"] = self._kept(value)
        return memory

    def _kept(self, value):
        """Return the factors `(B, S)` of dropout: 0 or `1 / (1 - dropout)`."""
        shape = ops.shape(value)[:2]
        return dropout_factors(shape, self.dropout, self._dropout_seed, self.compute_dtype)

    def initial_state(self, memory: dict) -> dict:
        """Return the state before the first query: `{}` where the mechanism keeps none."""
        return {}

    def step(
        self, query: Tensor, memory: dict, state: dict, return_attention_scores: bool = True
    ) -> tuple:
        """Attend with one query a row, `(B, Dq)`, over a prepared memory and with the last state.

        Returns:
            The context `(B, Dv)`, the weights `(B, S)` or `None`, and the state after the step.
        """
        query = ops.expand_dims(self.cast(query), 1)
        context, scores, state = self.attend(query, memory, state, None, return_attention_scores)
        scores = ops.squeeze(scores, 1) if return_attention_scores else None
        return ops.squeeze(context, 1), scores, state

    def attend(
        self,
        query: Tensor,
        memory: dict,
        state: dict,
        query_mask: Tensor = None,
        return_attention_scores: bool = True,
    ) -> tuple:
        """Attend with the next `T` queries `(B, T, Dq)`, and return the state after them."""
        positions = ops.expand_dims(memory["position"], 1) if self.reads_positions else None
        scores = self.score(self.queries(query), memory["key"], positions)
        mask = attention_mask(query_mask, memory.get("mask"))
        weights = self.cast(masked_softmax(scores, mask))
        return self.read(weights, memory), weights, state

    def queries(self, query):
        """Return the projected queries, as `score` takes them."""
        return self._bounded(self.project_query(query))

    def _bounded(self, projected):
        """Keep projections in float16 finite; a sum of two of them is finite too."""
        if self.compute_dtype != "float16":
            return projected
        return ops.clip(projected, -HALF_OF_FLOAT16, HALF_OF_FLOAT16)

    def read(self, weights, memory):
        """Return the context: the memory's values under weights `(B, T, S)`."""
        if "dropout" in memory:
            weights = weights * ops.expand_dims(memory["dropout"], 1)
        return ops.matmul(weights, memory["value"])

    def loop_score(self) -> LoopScore | None:
        """Return the score with its own gradient, for a decoder's fast loop, or `None`.

        A subclass that overrides `project_query`, `queries`, `score`, `attend`, `read`, `step` or
        `initial_state` takes the slower loop of steps, unless it declares its own `loop_score`.
        """
        return None

    # What a decoder asks for; overridden where a memory is made of several tensors.

    def memory_from(self, value, mask=None, training=None):
        """Prepare the memory from the `value` and `value_mask` that a decoder is called with."""
        return self.prepare_memory(value, mask=mask, training=training)

    def memory_spec(self, value) -> dict:
        """Return symbols of what `initial_state` reads of a memory, from those of its value."""
        return {"value": keras.KerasTensor(value.shape, self.compute_dtype)}

    @property
    def has_sequence_loss(self) -> bool:
        """Whether `add_sequence_loss` adds anything, and so needs the weights."""
        return False

    def add_sequence_loss(self, scores, query_mask=None, training=None):
        """Add to the losses what the weights `(B, T, S)` of a whole sequence cost: here nothing."""

    def compute_mask(self, inputs, previous_mask=None):
        return previous_mask[0] if isinstance(previous_mask, (list, tuple)) else previous_mask

    def compute_output_shape(
        self, query_shape, value_shape=None, key_shape=None, return_attention_scores=False
    ):
        query, value, key = _shapes(query_shape, value_shape, key_shape)
        self._check_features(query, value, key)
        context = (*query[:2], value[2])
        return (context, (*query[:2], value[1])) if return_attention_scores else context

    @arguments.of_own_call
    def compute_output_spec(self, *args, **kwargs):
        of = arguments.call_arguments(self, args, kwargs)
        masks = (of.query_mask, of.value_mask, of.mask)
        query, value, key, *_ = self._inputs(of.query, of.value, of.key, *masks)
        shapes = self.compute_output_shape(query.shape, value.shape, key.shape, True)
        return arguments.specs(shapes[: 1 + bool(of.return_attention_scores)], self.compute_dtype)

    def _inputs(self, query, value, key, query_mask, value_mask, mask):
        """Return query, value, key, and the masks of query and value, from any way to give them."""
        masks, value_mask = masks_of(query_mask, value_mask, mask)
        alone = is_alone(query, value)
        query, value, key = in_three(query, value, key)
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


class BilinearAttention(AttentionMechanism):
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


def in_three(query, value=None, key=None) -> tuple:
    """Return query, value and key, or their shapes, whether given one by one or in a list."""
    if is_list(query):
        if value is not None or key is not None or not 1 <= len(query) <= 3:
            raise ValueError(
                "A list of inputs is [query], [query, value] or [query, value, key], with no "
                f"`value` or `key` beside it. Received: a list of {len(query)}"
                + ("" if value is None else ", and a value")
            )
        query, value, key = (*query, None, None)[:3]
    value = query if value is None else value
    return query, value, value if key is None else key


def is_alone(query, value) -> bool:
    """Whether the query is the only input of a call, which then is self-attention."""
    return value is None and not (is_list(query) and len(query) > 1)


def masks_of(query_mask, value_mask, mask) -> tuple:
    """Return the queries' masks by two names, `[query_mask, mask]`, and the mask of the values."""
    of_query = []
    for given in (query_mask, mask):
        first, *others = given if isinstance(given, (list, tuple)) else [given]
        of_query.append(first)
        if others and value_mask is None:  # of values, and of keys where they have their own
            value_mask = combine_masks(*others) if others[1:] else others[0]
    return of_query, value_mask


def is_list(inputs) -> bool:
    """Whether these are several tensors or shapes, and not one."""
    if not isinstance(inputs, (list, tuple)):
        return False
    # The sizes of a shape are numbers, None, or symbols of JAX.
    return not inputs or isinstance(inputs[0], (list, tuple, dict)) or hasattr(inputs[0], "shape")


def row_zeros(value):
    """Return an integer 0 for each row of a memory `(B, S, D)`, which may be empty."""
    return ops.zeros_like(ops.sum(value[:, :1, 0], axis=1), dtype="int32")


def _shapes(query, value=None, key=None):
    """Return the shapes of query, value and key; refuse those that do not fit each other."""
    query, value, key = map(tuple, in_three(query, value, key))
    memory = {"value": (value, arguments.MEMORY), "key": (key, arguments.MEMORY)}
    arguments.check_shapes(query=(query, arguments.SEQUENCE), **memory)
    return query, value, key
