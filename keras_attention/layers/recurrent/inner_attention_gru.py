"""Recurrent nets with attention before the state (Wang, Liu and Zhao 2016)."""

import inspect
from typing import Any

import keras
from keras import ops

from ...ops.loops import swap_time
from ...ops.masks import check_mask, for_batch, lengths, zero_masked
from ...ops.penalties import occam_penalty
from ...ops.types import at_least_float32
from .. import arguments
from ..attention.base import is_list
from .inner_attention_cell import (
    GATES,
    InnerAttentionGRUCell,
    InnerLoop,
    attention_weight,
    check_scores_wanted,
)
from .recurrence import DecoderCell, recurrent_weights, shift

CELL_ARGUMENTS = set(inspect.signature(InnerAttentionGRUCell).parameters) - {"kwargs"}
FLAGS = ("return_sequences", "return_state", "go_backwards", "stateful", "unroll") + (
    "zero_output_for_mask",
)


@keras.saving.register_keras_serializable("keras_attention")
class InnerAttentionGRU(arguments.CallRules, keras.layers.RNN):
    """A GRU whose inputs are weighed by a query before the state reads them.

    Attention after a recurrent net favours the end of a text. Here a query `r`, such as a question,
    acts before the state.

    - `attention="gate"`: the query takes part in the gates, not in the candidate.
      `z = σ(W_z x + H_z h + M_z r + b_z)`, `f = σ(W_f x + H_f h + M_f r + b_f)`,
      `h̃ = tanh(W_h x + H_h (f ∘ h) + b_h)`, `h' = (1 - z) ∘ h + z ∘ h̃`
    - `attention="word"`: a word counts by itself. `α = σ(rᵀ M x)`, and `α x` goes into Keras' GRU.
    - `attention="context"`: a word counts by what was read before it. `w = M_h h + M_q r`,
      `α = σ(wᵀ x)`, and `α x` goes into Keras' GRU.

    The weights `α` do not sum to 1. The loop has a gradient of its own.

    Weights, on `cell`: `kernel` `(D, 3U)` and `recurrent_kernel` `(U, 3U)` in blocks of `z`, `f`
    (Keras' `r`) and the candidate; `bias` `(2, 3U)`, without `reset_after` `(3U,)`; for `"gate"`
    `query_kernel` `(Q, 2U)`, else `attention_kernel` `(Q, D)`, and for `"context"` also
    `recurrent_attention_kernel` `(U, D)`; with `occam` `occam_vector` `(Q,)`. In `"word"` and
    `"context"` `z` says how much of the old state is kept, as in `keras.layers.GRU`.

    Args:
        units: Size `U` of the state.
        attention: `"gate"`, `"word"` or `"context"`.
        use_bias: Whether there is a bias.
        reset_after: Whether the reset gate acts after the recurrent product, as cuDNN has it, or
            before. Default: after; for `"gate"`, which has the latter form only, before.
        kernel_initializer: As in `keras.layers.GRU`, and so are `recurrent_initializer`,
            `bias_initializer`, and the regularizers and constraints of these three weights.
        attention_initializer: Initializer of `query_kernel`, `attention_kernel` and
            `recurrent_attention_kernel`.
        attention_regularizer: Regularizer of the same weights.
        attention_constraint: Constraint of the same weights.
        occam: Whether [Occam's penalty][keras_attention.losses.occam_penalty] on the weights `α` is
            added as a loss (by `add_loss`); not for `"gate"`, which has none.
        occam_minimum: Its minimum price `λ` of a word.
        occam_initializer: Initializer of `occam_vector`. Zeros never learn: at the minimum price
            there is no gradient.
        dropout, recurrent_dropout: As in `keras.layers.GRU`, the same features at every step. The
            attention sees all of them.
        return_sequences, return_state, go_backwards, stateful, unroll, zero_output_for_mask: As in
            `keras.layers.RNN`. Outputs of `go_backwards` come in the order in which they were made.
        use_cudnn: Whether Keras' GRU runs the loop of `"word"`, which cuDNN can serve: `"auto"`
            on TensorFlow where there is a GPU, or `True`, or `False`, as XLA on a GPU needs it.
        seed: Seed of the dropout.
        **kwargs: The arguments of every Keras layer.

    Call arguments:
        inputs: `(B, T, D)`; or a pair of inputs and query, for wrappers that pass one argument:
            `keras.layers.Bidirectional(InnerAttentionGRU(8))([inputs, query])`.
        query: `(B, Q)`. Default: the mean of the inputs that are not masked.
        mask: Boolean `(B, T)`, True = a real step; a masked one keeps the state. Default: the mask
            that the inputs carry.
        initial_state: The state before the first step, `(B, U)` or a list of it. Default: zeros.
        training: Whether dropout applies.
        return_attention_scores: Whether to return the weights `α` too; not for `"gate"`.
        inputs_mask: The mask that the inputs carry, which Keras passes by itself.

    Returns:
        The last state `(B, U)`, or with `return_sequences` all, `(B, T, U)`; with `return_state`
        also the last state; with `return_attention_scores` also the weights `(B, T)`, in the
        order of the inputs, 0 where masked.

    Raises:
        ValueError: Where arguments do not go together, or shapes or masks do not fit.

    Reference:
        Wang, Liu and Zhao 2016, "Inner attention based recurrent neural networks for answer
        selection", section 3: their IARNN-gate, IARNN-word and IARNN-context, and IARNN-Occam.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import InnerAttentionGRU

    answer = np.random.normal(size=(2, 7, 5))   # seven embedded words
    question = np.random.normal(size=(2, 3))    # the state of a net that has read the question
    layer = InnerAttentionGRU(16, attention="word")
    state, weights = layer(answer, question, return_attention_scores=True)
    assert tuple(state.shape) == (2, 16) and tuple(weights.shape) == (2, 7)
    ```
    """

    def __init__(
        self,
        units: int,
        attention: str = "gate",
        use_bias: bool = True,
        reset_after: bool | None = None,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        attention_initializer: Any = "glorot_uniform",
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        attention_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        attention_constraint: Any = None,
        occam: bool = False,
        occam_minimum: float = 0.001,
        occam_initializer: Any = "glorot_uniform",
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: int | None = None,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        zero_output_for_mask: bool = False,
        use_cudnn: bool | str = "auto",
        **kwargs: Any,
    ):
        # The cell's arguments are those of the layer with the same names.
        given = dict(locals())
        of_cell = {name: given[name] for name in CELL_ARGUMENTS}
        flags = {name: arguments.check_flag(name, given[name]) for name in FLAGS}
        arguments.check_choice("use_cudnn", use_cudnn, ("auto", True, False))
        dtype, trainable = kwargs.get("dtype"), kwargs.get("trainable", True)
        cell = InnerAttentionGRUCell(**of_cell, dtype=dtype, trainable=trainable, name="cell")
        super().__init__(cell, **flags, **kwargs)
        self.use_cudnn = use_cudnn
        if self._runs_on_stock_gru:
            self.supports_jit = False  # cuDNN's operations are none of XLA's

    def build(self, inputs_shape, query_shape=None):
        inputs_shape, query_shape = _apart(inputs_shape, query_shape)
        self._check_shapes(inputs_shape, query_shape)
        query_shape = query_shape or (inputs_shape[0], inputs_shape[-1])
        if not self.cell.built:
            self.cell.build((inputs_shape[0], inputs_shape[-1]), query_shape)
        super().build(inputs_shape)

    def call(
        self,
        inputs: Any,
        query: Any = None,
        mask: Any = None,
        initial_state: Any = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
        inputs_mask: Any = None,
    ) -> Any:
        inputs, query = _apart(inputs, query)
        mask = inputs_mask if mask is None else mask
        mask, state = self._check(inputs, query, mask, initial_state, return_attention_scores)
        inputs = ops.cast(inputs, self.compute_dtype)
        mask = None if mask is None else ops.cast(mask, "bool")
        inputs = zero_masked(inputs, mask)  # no NaN in the padding reaches a state or a gradient
        query = _mean(inputs, mask) if query is None else ops.cast(query, self.compute_dtype)
        (first,) = self._cell.initial_states(ops.shape(inputs)[0], state)
        if self.go_backwards:
            inputs = ops.flip(inputs, axis=1)
            mask = None if mask is None else ops.flip(mask, axis=1)
        is_empty = inputs.shape[1] == 0
        if is_empty:  # Keras' loop needs a step: take a masked one, and give none of it
            inputs = ops.zeros((ops.shape(inputs)[0], 1, inputs.shape[2]), inputs.dtype)
            mask = ops.zeros_like(inputs[:, :, 0], "bool")
        states, scores = self._run(inputs, query, mask, first, bool(training))
        last = states[:, -1]
        if self.cell.occam:
            price = (self.cell.occam_vector, self.cell.occam_minimum)
            self.add_loss(occam_penalty(scores, query, *price, mask))
        if self.stateful:
            self.states[0].assign(ops.cast(last, self.states[0].dtype))
        if is_empty:
            states, mask = states[:, :0], None
            scores = None if scores is None else scores[:, :0]
        return self._results(states, last, scores, mask, return_attention_scores)

    def _run(self, inputs, query, mask, first, training):
        """Run the cell; return the states `(B, T, U)`, and the weights `(B, T)` or `None`."""
        cell = self.cell
        dropped = inputs
        if training and cell.dropout:
            mask_of_inputs = cell.get_dropout_mask(at_least_float32(inputs[:, 0]))
            dropped = inputs * ops.expand_dims(cell.cast(mask_of_inputs), 1)
        dropout = cell.recurrent_mask(first, training)
        cell.reset_dropout_mask()
        cell.reset_recurrent_dropout_mask()
        scores = None
        if cell.attention == "word":
            weights = attention_weight(_query_logits(cell, inputs, query), None, first)
            dropped, scores = dropped * weights, ops.squeeze(weights, 2)
            if self._runs_on_stock_gru and dropout is None:
                return stock_gru(cell, dropped, first, mask, self.use_cudnn), scores
        tensors = {
            "first": first,
            **recurrent_weights(cell, cell.compute_dtype),
            "dropout": dropout,
            "mask": None if mask is None else swap_time(ops.cast(mask, inputs.dtype)[..., None]),
        }
        loop = InnerLoop(cell.equations(), training, self.unroll)
        bias, is_context = cell.input_shift(query), cell.attention == "context"
        tensors |= _products(cell, swap_time(dropped), None if is_context else bias)
        if not is_context:
            return swap_time(loop(**tensors)), scores
        # w . x_t with w = M_h h + M_q r is (M_h' x_t) . h + (M_q r) . x_t: of these only a dot
        # product with the state is left to the loop.
        kernel = ops.transpose(cell.cast(cell.recurrent_attention_kernel))
        projection = ops.matmul(swap_time(inputs), kernel)
        logit = swap_time(_query_logits(cell, inputs, query))
        states = loop(projection=projection, logit=logit, shift=bias, **tensors)
        weights = attention_weight(logit, projection, shift(first, states))
        return swap_time(states), ops.squeeze(swap_time(weights), 2)

    @property
    def _cell(self) -> DecoderCell:
        return DecoderCell(self.cell, self.compute_dtype)

    @property
    def _runs_on_stock_gru(self) -> bool:
        """Whether Keras' GRU runs the loop: where cuDNN can serve it."""
        if self.cell.attention != "word" or self.use_cudnn is False:
            return False
        if self.use_cudnn is True:
            return True
        able = self.cell.reset_after and self.cell.use_bias and not self.unroll
        on_tensorflow = keras.backend.backend() == "tensorflow"
        return able and on_tensorflow and bool(keras.distribution.list_devices("gpu"))

    def _results(self, states, last, scores, mask, return_attention_scores):
        outputs = states if self.return_sequences else last
        if self.zero_output_for_mask and mask is not None:
            real = ops.expand_dims(mask, 2) if self.return_sequences else mask[:, -1:]
            outputs = ops.where(real, outputs, ops.zeros_like(outputs))
        results = [outputs]
        if self.return_state:
            results.append(last)
        if return_attention_scores:
            if mask is not None:
                scores = ops.where(mask, scores, ops.zeros_like(scores))
            # Weights belong to words: they come in the order in which the words came.
            results.append(ops.flip(scores, axis=1) if self.go_backwards else scores)
        return tuple(results) if len(results) > 1 else results[0]

    def _check(self, inputs, query, mask, initial_state, return_attention_scores):
        """Check the arguments of a call; return the mask and the state, with their defaults."""
        mask = mask[0] if isinstance(mask, (list, tuple)) else mask
        cell = self.cell
        check_scores_wanted(cell.attention, return_attention_scores)
        self._check_sizes(inputs.shape, None if query is None else query.shape)
        check_mask(mask, tuple(inputs.shape[:2]), "mask")
        mask = for_batch(mask, inputs)
        if self.unroll and inputs.shape[1] is None:
            raise ValueError(
                "`unroll=True` needs inputs of known length, such as Input((20, 8)). "
                f"Received: inputs of shape {tuple(inputs.shape)}"
            )
        state = self.states if initial_state is None and self.stateful else initial_state
        if state is not None:
            self._cell.check_states(state, inputs.shape[0])
        return mask, state

    def _check_sizes(self, inputs, query):
        """Refuse shapes that do not fit each other or the cell."""
        self._check_shapes(inputs, query)
        cell = self.cell
        sizes = (inputs[-1], (inputs if query is None else query)[-1])
        if cell.built and sizes != (cell.input_size, cell.query_size):
            raise ValueError(
                f"The layer was built for inputs of {cell.input_size} features and a query of "
                f"{cell.query_size}. Received: inputs of {sizes[0]}, a query of {sizes[1]}"
                + (" (the mean of the inputs, since none was given)" if query is None else "")
            )

    def _check_shapes(self, inputs, query):
        sequence, one = arguments.SEQUENCE, "batch, features"
        arguments.check_shapes(inputs=(inputs, sequence), query=(query, one))

    # Keras' bookkeeping.

    def compute_output_shape(self, inputs_shape, query_shape=None, initial_state_shape=None):
        inputs_shape, query_shape = _apart(inputs_shape, query_shape)
        self._check_sizes(inputs_shape, query_shape)
        return super().compute_output_shape(inputs_shape)

    @arguments.for_own_call
    def compute_output_spec(self, *args, **kwargs):
        of = arguments.call_arguments(self, args, kwargs)
        inputs, query = _apart(of.inputs, of.query)
        self._check(inputs, query, of.mask, of.initial_state, of.return_attention_scores)
        shapes = super().compute_output_shape(tuple(inputs.shape))
        shapes = list(shapes) if self.return_state else [shapes]
        shapes += [tuple(inputs.shape[:2])] if of.return_attention_scores else []
        return arguments.specs(shapes, self.compute_dtype)

    def get_config(self):
        config = super().get_config()
        del config["cell"]
        return {**self.cell.get_config(), **config, "use_cudnn": self.use_cudnn}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def _apart(inputs, query):
    """Take a pair of inputs and query apart; of tensors, or of their shapes."""
    if not is_list(inputs):
        return inputs, query
    if query is not None or len(inputs) != 2:
        raise ValueError(
            "The first argument is the inputs, or a list of them and one query. "
            f"Received: a list of {len(inputs)}" + (" and a query" if query is not None else "")
        )
    return inputs


def _mean(inputs, mask):
    """Return the mean of the inputs that are real; zeros where none is."""
    count = ops.maximum(lengths(mask, inputs), 1.0)
    total = ops.sum(at_least_float32(inputs), axis=1)
    return ops.cast(total / ops.expand_dims(count, 1), inputs.dtype)


def _products(cell, inputs, shift):
    """Return the products of the inputs `(T, B, D)` with each of the kernel's blocks."""
    products = {}
    for index, name in enumerate(GATES):
        block = slice(index * cell.units, (index + 1) * cell.units)
        products[name] = ops.matmul(inputs, cell.cast(cell.kernel)[:, block])
        if shift is not None:
            products[name] = products[name] + shift[..., block]
    return products


def _query_logits(cell, inputs, query):
    """Return `(M_q r) . x_t` of all steps, `(B, T, 1)`."""
    return ops.matmul(inputs, ops.expand_dims(cell.query_logits(query), 2))


def stock_gru(cell, inputs, first, mask, use_cudnn):
    """Run `keras.layers.GRU` with the weights of a cell; return the states `(B, T, U)`.

    cuDNN's masks are padding at the end: we sort masked steps behind the real ones, run all, and
    give each step the state after the last real step up to it.
    """
    gru = keras.layers.GRU(
        cell.units,
        use_bias=cell.use_bias,
        reset_after=cell.reset_after,
        return_sequences=True,
        use_cudnn=use_cudnn,
        dtype=cell.dtype_policy,
    )
    # A plain cell: were the loop not cuDNN's, it would call the cell itself.
    for name in ("kernel", "recurrent_kernel", "bias"):
        setattr(gru.cell, name, getattr(cell, name))
    gru.cell.built = True
    if mask is None:
        return gru.inner_loop(inputs, [first], mask=None)[1]
    mask = ops.cast(mask, "int32")
    # Unique keys, so that a sort that is not stable keeps the order too.
    steps = ops.arange(ops.shape(mask)[1], dtype="int32")
    order = ops.argsort(steps + (1 - mask) * ops.shape(mask)[1], axis=1)
    inputs = ops.take_along_axis(inputs, ops.expand_dims(order, 2), axis=1)
    states = gru.inner_loop(inputs, [first], mask=None)[1]
    states = ops.concatenate([ops.expand_dims(first, 1), states], axis=1)
    done = ops.expand_dims(ops.cumsum(mask, axis=1), 2)
    return ops.take_along_axis(states, done, axis=1)
