"""The cell of `InnerAttentionGRU`: one step, and the loop over a whole sequence."""

from dataclasses import dataclass, replace
from typing import Any

import keras
from keras import ops, tree

from ...ops.loops import run_given, run_steps, with_loop_gradient
from ...ops.types import at_least_float32
from .. import arguments
from .recurrence import GRU, input_bias, recurrent_weights, shift, total

GATES = ("update", "reset", "candidate")
OF_KERAS = ("use_bias", "dropout", "recurrent_dropout", "seed") + tuple(
    f"{weight}_{what}"
    for weight in ("kernel", "recurrent", "bias")
    for what in ("initializer", "regularizer", "constraint")
)
"""The arguments that the cell hands to `keras.layers.GRUCell` as they are."""


@keras.saving.register_keras_serializable("keras_attention")
class InnerAttentionGRUCell(arguments.Configured, keras.layers.GRUCell):
    """One step of an `InnerAttentionGRU`, with its equations and weights.

    That layer runs it faster than `keras.layers.RNN`. The cell alone serves stacks and your loops;
    with `occam` it has the `occam_vector`, but only the layer adds the penalty.

    Args: those of `InnerAttentionGRU`, from `units` to `seed`, and those of every Keras layer.

    Call arguments:
        inputs, states: `(B, D)`, and the list of one state `(B, U)`.
        query: `(B, Q)`. Default: the inputs, which are their own mean.
        training: Whether dropout applies.
        return_attention_scores: Whether to return the weight `α` too; not for `"gate"`.

    Returns:
        The output `(B, U)`, the list of the state, and where asked for the weights `(B,)`.

    Reference:
        Wang, Liu and Zhao 2016, section 3.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import InnerAttentionGRUCell

    cell = InnerAttentionGRUCell(8, attention="context")
    word, question = np.random.normal(size=(2, 5)), np.random.normal(size=(2, 3))
    output, states, weights = cell(
        word, [np.zeros((2, 8))], question, return_attention_scores=True
    )
    assert tuple(output.shape) == (2, 8) and tuple(weights.shape) == (2,)
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
        **kwargs: Any,
    ):
        of_keras = {name: value for name, value in locals().items() if name in OF_KERAS}
        arguments.check_choice("attention", attention, ("gate", "word", "context"))
        arguments.check_flag("use_bias", use_bias)
        arguments.check_choice("reset_after", reset_after, (None, True, False))
        if attention == "gate" and reset_after:
            raise ValueError(
                "attention='gate' has its reset gate before the recurrent product; "
                "`reset_after=True` goes with 'word' and 'context'. "
                "Received: attention='gate', reset_after=True"
            )
        if arguments.check_flag("occam", occam) and attention == "gate":
            raise ValueError(
                "Occam's penalty needs the weight of each word, which attention='word' and "
                "'context' have. Received: attention='gate', occam=True"
            )
        for name in ("dropout", "recurrent_dropout"):
            of_keras[name] = arguments.check_rate(name, of_keras[name])
        of_keras["seed"] = arguments.check_seed(seed)
        reset_after = attention != "gate" if reset_after is None else reset_after
        units = arguments.check_integer("units", units)
        super().__init__(units, reset_after=reset_after, **of_keras, **kwargs)
        self.dropout_mask_count = None  # one mask for all gates, as Keras' GRU mostly has it
        self.attention = attention
        self.attention_initializer = keras.initializers.get(attention_initializer)
        self.attention_regularizer = keras.regularizers.get(attention_regularizer)
        self.attention_constraint = keras.constraints.get(attention_constraint)
        self.occam = occam
        self.occam_minimum = arguments.check_number("occam_minimum", occam_minimum, above=True)
        self.occam_initializer = keras.initializers.get(occam_initializer)

    def build(self, inputs_shape, query_shape=None):
        query_shape = inputs_shape if query_shape is None else query_shape
        super().build(inputs_shape)
        self.input_size, self.query_size = inputs_shape[-1], query_shape[-1]
        if self.attention == "gate":
            self._add("query_kernel", (self.query_size, 2 * self.units))
        else:
            self._add("attention_kernel", (self.query_size, self.input_size))
        if self.attention == "context":
            self._add("recurrent_attention_kernel", (self.units, self.input_size))
        if self.occam:
            self._make_weight("occam_vector", (self.query_size,), self.occam_initializer)

    def _add(self, name, shape):
        initializer = arguments.fresh(self.attention_initializer)
        regularizer, constraint = self.attention_regularizer, self.attention_constraint
        self._make_weight(name, shape, initializer, regularizer=regularizer, constraint=constraint)

    def call(
        self,
        inputs: Any,
        states: Any,
        query: Any = None,
        training: bool = False,
        return_attention_scores: bool = False,
    ) -> tuple:
        hidden = states[0] if isinstance(states, (list, tuple)) else states
        query = inputs if query is None else query
        self._check_step(inputs, hidden, query, return_attention_scores)
        inputs, hidden, query = self.cast(inputs), self.cast(hidden), self.cast(query)
        is_dropped = training and self.dropout
        dropped = inputs
        if is_dropped:  # drawn in at least float32: a half rounds the rate
            dropped = inputs * self.cast(self.get_dropout_mask(at_least_float32(inputs)))
        products = ops.split(ops.matmul(dropped, self.cast(self.kernel)), 3, axis=1)
        shift = self.input_shift(query)
        logit, projection = None, None
        if self.attention == "gate":
            products = add_shift(products, shift)
        else:
            logit = ops.sum(self.query_logits(query) * inputs, axis=1, keepdims=True)
        if self.attention == "context":
            kernel = ops.transpose(self.cast(self.recurrent_attention_kernel))
            projection = ops.matmul(inputs, kernel)
        after, weight, *_ = inner_step(
            self.equations(),
            products,
            hidden,
            recurrent_weights(self, self.compute_dtype),
            dropout=self.recurrent_mask(hidden, training),
            logit=logit,
            projection=projection,
            shift=shift,
        )
        results = (after, [after] if isinstance(states, (list, tuple)) else after)
        return (*results, ops.squeeze(weight, 1)) if return_attention_scores else results

    # The layer's loop reads the weights by these.

    def equations(self) -> GRU:
        """Return the GRU's equations; in those of `"gate"` `z` says how much is replaced."""
        return GRU(self.units, self.reset_after, update_keeps=self.attention != "gate")

    def query_logits(self, query):
        """Return `M r` `(B, D)` of queries `(B, Q)`: its product with an input is a logit."""
        return ops.matmul(query, self.cast(self.attention_kernel))

    def input_shift(self, query):
        """Return what is added to the products of the inputs: `(3U,)`, `(B, 3U)` or `None`."""
        bias = input_bias(self, self.compute_dtype)
        if self.attention != "gate":
            return bias
        gates = ops.matmul(query, self.cast(self.query_kernel))
        shifted = ops.pad(gates, ((0, 0), (0, self.units)))
        return shifted if bias is None else shifted + bias

    def recurrent_mask(self, state, training):
        """Return the factors `(B, U)` of the state in the recurrent products, or `None`."""
        if not (training and self.recurrent_dropout):
            return None
        return self.cast(self.get_recurrent_dropout_mask(at_least_float32(state)))

    def _check_step(self, inputs, state, query, return_attention_scores):
        check_scores_wanted(self.attention, return_attention_scores)
        shapes = {"inputs": inputs.shape, "state": state.shape, "query": query.shape}
        arguments.check_shapes(**{name: (s, "batch, features") for name, s in shapes.items()})
        sizes = (self.input_size, self.units, self.query_size)
        for (name, shape), size in zip(shapes.items(), sizes, strict=True):
            arguments.check_features(name, shape, size)

    def cast(self, tensor):
        """Return a weight or an input in the compute dtype, inside and outside of `__call__`."""
        return ops.cast(tensor, self.compute_dtype)

    def get_config(self):
        config = super().get_config()
        for name in ("activation", "recurrent_activation"):
            del config[name]  # those of the equations
        return config


def check_scores_wanted(attention, wanted):
    """Raise a ValueError where weights are asked of the kind that has none."""
    if wanted and attention == "gate":
        raise ValueError(
            "`return_attention_scores` goes with attention='word' or 'context': with 'gate' the "
            "query acts inside of the gates and weighs no word as a whole. "
            "Received: attention='gate', return_attention_scores=True"
        )


def inner_step(
    equations: GRU,
    products: list,
    hidden: Any,
    weights: dict,
    dropout: Any = None,
    logit: Any = None,
    projection: Any = None,
    shift: Any = None,
) -> tuple:
    """Take one step of an `InnerAttentionGRU`.

    `α = σ(logit + projection . h)`, and the inputs' products become `α p + shift`; then a GRU. The
    other arguments are optional: `"gate"` has no logit, and only `"context"` has a projection.

    Args:
        equations: Those of the GRU.
        products: The inputs' products with the three blocks of the kernel, `(B, U)`.
        hidden: The state before the step, `(B, U)`.
        weights: Those that `equations` read.
        dropout: Factors `(B, U)` of the state in the recurrent products.
        logit: The part of `α`'s logit that the state does not change, `(B, 1)`.
        projection: `M_hᵀ x`, `(B, U)`.
        shift: The bias `(3U,)` that is added behind `α`, or `None`.

    Returns:
        The state after the step, `α` or `None`, and the recurrent products.
    """
    products, weight = attended(products, hidden, logit, projection, shift)
    (after,), _, recurrent = equations.step(products, [hidden], weights, dropout)
    return after, weight, recurrent


def attended(products: list, hidden: Any, logit: Any, projection: Any, shift: Any) -> tuple:
    """Return `α p + shift` and `α`, from the states before a step or before all steps."""
    if logit is None:
        return products, None
    weight = attention_weight(logit, projection, hidden)
    return add_shift([product * weight for product in products], shift), weight


def attention_weight(logit: Any, projection: Any, hidden: Any) -> Any:
    """Return `α`, `(..., 1)`, from the states before the steps."""
    if projection is not None:
        logit = logit + ops.sum(projection * hidden, axis=-1, keepdims=True)
    return ops.sigmoid(logit)


def add_shift(products: list, shift: Any) -> list:
    """Return products with their blocks of a shift `(..., 3U)` added; `None` adds nothing."""
    if shift is None:
        return products
    return [a + b for a, b in zip(products, ops.split(shift, 3, axis=-1), strict=True)]


@dataclass
class InnerLoop:
    """The states of all steps, with a gradient of their own.

    The loop computes only what needs the state before. In `training` the recurrent products are
    saved for the gradient.
    """

    equations: GRU
    training: bool = False
    unroll: bool = False

    def __call__(self, **tensors):
        """Run all steps; return the states `(T, B, U)`.

        The tensors are `update`, `reset` and `candidate`, the products of the inputs, `(T, B, U)`;
        `first` `(B, U)`; `recurrent` `(U, 3U)`; and where they are not `None` `recurrent_bias`
        `(3U,)`; `mask` `(T, B, 1)` as numbers; and as in `inner_step` `dropout`, `logit`,
        `projection` and `shift`.
        """
        given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        return with_loop_gradient(self._forward, self._backward, given, self._plain)

    def _plain(self, given):
        return replace(self, training=False)._forward(given, again=True)[0]

    def _forward(self, given, again=False):
        def step(index, hidden, given):
            own = {name: given[name][index] for name in ("logit", "projection") if name in given}
            after, _, recurrent = inner_step(
                self.equations,
                [given[name][index] for name in GATES],
                hidden,
                given,
                given.get("dropout"),
                shift=given.get("shift"),
                **own,
            )
            if "mask" in given:
                after = ops.where(given["mask"][index] > 0.5, after, hidden)
            return (after, recurrent if self.training else {}), after

        count, sequences = ops.shape(given["update"])[0], (*GATES, "projection", "logit", "mask")
        (states, recurrent), _ = run_given(
            step, count, given["first"], given, sequences, again, self.unroll
        )
        return states, recurrent

    def _backward(self, given, states, recurrent, d_states):
        """Return the gradient of every tensor that has one."""
        equations = self.equations
        dropout = given.get("dropout")
        projection = given.get("projection")
        products = [given[name] for name in GATES]
        before = shift(given["first"], states)
        inputs, weight = attended(
            products, before, given.get("logit"), projection, given.get("shift")
        )
        _, values, _ = equations.step(inputs, [before], given, dropout, recurrent or None)
        local = equations.local_derivatives(values, given.get("mask"))
        kernel, by_logit = ops.transpose(given["recurrent"]), {}
        if projection is not None:
            steep = weight * (1 - weight)
            by_logit = {
                name: steep * _dot(zip(equations.inputs, products, strict=True), own)
                for name, own in local.items()
            }

        def step(index, d_after):
            at, at_logit = tree.map_structure(lambda part: part[index], (local, by_logit))
            d_state = d_after + d_states[index]
            gradients, _, (d_before,) = equations.vjp([d_state], at, kernel, dropout)
            if projection is not None:
                d_logit = ops.sum(_dot(gradients.items(), at_logit), axis=1, keepdims=True)
                d_before = d_before + projection[index] * d_logit
            return gradients, d_before

        count, zeros = ops.shape(given["update"])[0], ops.zeros_like(given["first"])
        results, first = run_steps(step, count, zeros, reverse=True, unroll=self.unroll)
        d_sums = equations.sum_gradients(results, local)
        gradients = equations.weight_gradients(d_sums, values, given)
        parts = [d_sums[name] for name in equations.inputs]
        if projection is not None:
            if "shift" in given:
                gradients["shift"] = total(parts)
            d_weight = sum(map(ops.multiply, parts, products))
            d_logit = ops.sum(d_weight, axis=2, keepdims=True) * weight * (1 - weight)
            gradients |= {"logit": d_logit, "projection": before * d_logit}
            parts = [part * weight for part in parts]
        return gradients | dict(zip(GATES, parts, strict=True)) | {"first": first}


def _dot(pairs, factors):
    """Return the sum of the named tensors by the factors of their names."""
    return sum(tensor * factors[name] for name, tensor in pairs if name in factors)
