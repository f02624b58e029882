"""The contract of an attention mechanism, and the forms in which a call takes its inputs."""

from typing import Any

import keras
from keras import ops

from ...ops.dropout import dropout_factors
from ...ops.masks import combine_masks
from ...ops.types import Tensor
from .. import arguments
from ..lora_and_quantization import AdaptableKernels


class AttentionMechanism(AdaptableKernels, keras.layers.Layer):
    """Protocol of the mechanisms: queries read a memory, in one call or step by step.

    Memory and state are dictionaries of tensors, batch first:

    ```
    context, scores = mechanism(query, value, return_attention_scores=True)

    memory = mechanism.prepare_memory(value, mask=mask)        # keys are projected once
    state = mechanism.initial_state(memory)                    # {} where it keeps none
    context, scores, state = mechanism.step(query, memory, state)
    ```

    A subclass writes `build`, `call`, `prepare_memory`, `initial_state` and `attend`. For a
    mechanism with a score, `ScoredAttention` writes all of these.

    Args:
        dropout: Rate at which weights are dropped in training, at the same memory positions for
            every query of a sequence. Scores returned are those before dropout.
        seed: Seed of the dropout.
        **kwargs: The arguments of every Keras layer. Where a mechanism has a `kernel_initializer`,
            these include a `kernel_regularizer` and a `kernel_constraint` of the same weights, as
            in `keras.layers.Dense`; and so for each other initializer.

    Example:

    ```python
    import keras
    from keras_attention.layers import AttentionMechanism, BahdanauAttention

    attention = BahdanauAttention(units=4)
    assert isinstance(attention, AttentionMechanism)
    ```
    """

    has_weight_options = True
    query_size: int | None = None  # `build` sets it

    def __init__(self, dropout: float = 0.0, seed: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.dropout = arguments.check_rate("dropout", dropout)
        self.seed = arguments.check_seed(seed)
        self.supports_masking = True
        if dropout:
            # No Dropout layer: `keras.Model.quantize` reaches layers without sublayers alone.
            self._dropout_seed = keras.random.SeedGenerator(self.seed)

    def prepare_memory(self, value: Tensor, *args: Any, **kwargs: Any) -> dict:
        """Compute once what every query step reads of the memory: a dictionary of tensors."""
        raise NotImplementedError(f"{type(self).__name__} must write `prepare_memory`.")

    def initial_state(self, memory: dict) -> dict:
        """Return the state before the first query: `{}` where the mechanism keeps none."""
        return {}

    def attend(
        self,
        query: Tensor,
        memory: dict,
        state: dict,
        query_mask: Tensor = None,
        return_attention_scores: bool = True,
    ) -> tuple:
        """Attend with the next `T` queries `(B, T, Dq)`.

        Returns:
            The contexts `(B, T, Dv)`, the weights `(B, T, S)` (or `None`, where they are not
            asked for), and the state after the last query.
        """
        raise NotImplementedError(f"{type(self).__name__} must write `attend`.")

    def step(
        self, query: Tensor, memory: dict, state: dict, return_attention_scores: bool = True
    ) -> tuple:
        """Attend with one query a row, `(B, Dq)`, over a prepared memory and with the last state.

        Returns:
            The context `(B, Dv)`, the weights `(B, S)` or `None`, and the state after the step.
        """
        query = self.cast(query)
        arguments.check_step("query", query.shape, self.query_size)
        arguments.check_parts("memory", memory, "`prepare_memory`")
        arguments.check_parts("state", state, "`initial_state`")
        query = ops.expand_dims(query, 1)
        context, scores, state = self.attend(query, memory, state, None, return_attention_scores)
        scores = ops.squeeze(scores, 1) if return_attention_scores else None
        return ops.squeeze(context, 1), scores, state

    def read(self, weights: Tensor, memory: dict) -> Tensor:
        """Return the context: the memory's values under weights `(B, T, S)`."""
        if "dropout" in memory:
            weights = weights * ops.expand_dims(memory["dropout"], 1)
        return ops.matmul(weights, memory["value"])

    def dropout_factors(self, value: Tensor) -> Tensor:
        """Return the factors `(B, S)` of dropout: 0 or `1 / (1 - dropout)`."""
        shape = ops.shape(value)[:2]
        return dropout_factors(shape, self.dropout, self._dropout_seed, self.compute_dtype)

    # A decoder calls these. They are overridden where a memory is made of several tensors.

    def memory_from(self, value: Any, mask: Any = None, training: bool | None = None) -> dict:
        """Prepare the memory from the `value` and `value_mask` that a decoder is called with."""
        return self.prepare_memory(value, mask=mask, training=training)

    def memory_spec(self, value: Any) -> dict:
        """Return symbols of what `initial_state` reads of a memory, from those of its value."""
        return {"value": keras.KerasTensor(value.shape, self.compute_dtype)}

    @property
    def has_sequence_loss(self) -> bool:
        """Whether `add_sequence_loss` adds anything, and so needs the weights."""
        return False

    def add_sequence_loss(self, scores, query_mask=None, training=None):
        """Add a loss of the weights `(B, T, S)` of a whole sequence: here nothing."""

    def compute_mask(self, inputs, previous_mask=None):
        return previous_mask[0] if isinstance(previous_mask, (list, tuple)) else previous_mask


def unpack_qkv(query, value=None, key=None) -> tuple:
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


def is_self_attention(query, value) -> bool:
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
