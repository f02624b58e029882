"""The cell of `InnerAttentionGRU`: one step, its weights, and what can be computed before."""

import keras
from keras import ops

from keras_attention.layers.attention_mechanism import fresh
from keras_attention.layers.inner_attention_checks import (
    check_arguments,
    check_rates,
    check_step,
)
from keras_attention.ops.occam import occam_penalty


@keras.saving.register_keras_serializable("keras_attention")
class InnerAttentionGRUCell(keras.layers.GRUCell):
    """One step of a GRU whose input is weighed by a query before the state reads it.

    - `attention="gate"`: the query takes part in the gates, not in the candidate.
      `z = σ(W_z x + H_z h + M_z r + b_z)`, `f = σ(W_f x + H_f h + M_f r + b_f)`,
      `h̃ = tanh(W_h x + H_h (f ∘ h) + b_h)`, `h' = (1 - z) ∘ h + z ∘ h̃`
    - `attention="word"`: `α = σ(rᵀ M x)`, and `α x` goes into Keras' GRU.
    - `attention="context"`: `w = M_h h + M_q r`, `α = σ(wᵀ x)`, and `α x` goes into Keras' GRU.

    `InnerAttentionGRU` runs it over sequences, faster than `keras.layers.RNN` does. The cell alone
    is for stacks and loops of your own.

    Weights: `kernel` `(D, 3U)`, `recurrent_kernel` `(U, 3U)` in blocks of `z`, `f` (in Keras' GRU
    called `r`) and the candidate, and `bias`. For `"gate"` `bias` is `(3U,)` and `query_kernel`
    is `(Q, 2U)`. The others have the weights of `keras.layers.GRU`, `bias` `(2, 3U)` or with
    `reset_after=False` `(3U,)`, whose `z` says how much of the old state is kept; and
    `attention_kernel` `(Q, D)`; `"context"` also has `recurrent_attention_kernel` `(U, D)`.
    With `occam` there is `occam_vector` `(Q,)`.

    Args:
        units: Size `U` of the state.
        attention: `"gate"`, `"word"` or `"context"`.
        use_bias: Whether there is a bias.
        reset_after: Whether the reset gate acts after the recurrent product, as cuDNN has it, or
            before. Default: after; for `"gate"`, which has the latter form only, before.
        kernel_initializer: Initializer of `kernel`.
        recurrent_initializer: Initializer of `recurrent_kernel`.
        bias_initializer: Initializer of `bias`.
        attention_initializer: Initializer of `query_kernel`, `attention_kernel` and
            `recurrent_attention_kernel`.
        kernel_regularizer: Regularizer of `kernel`.
        recurrent_regularizer: Regularizer of `recurrent_kernel`.
        bias_regularizer: Regularizer of `bias`.
        attention_regularizer: Regularizer of the weights that `attention_initializer` makes.
        kernel_constraint: Constraint on `kernel`.
        recurrent_constraint: Constraint on `recurrent_kernel`.
        bias_constraint: Constraint on `bias`.
        attention_constraint: Constraint on the weights that `attention_initializer` makes.
        occam: Whether there is the weight of Occam's penalty.
        occam_minimum: Its least price `λ`.
        occam_initializer: Initializer of `occam_vector`.
        dropout: Rate at which features of the input are dropped before its products with
            `kernel`, the same ones at every step. The attention sees all of them.
        recurrent_dropout: The same for the state and `recurrent_kernel`.
        seed: Seed of the dropout.
        **kwargs: Arguments of every Keras layer.

    Call arguments:
        inputs: `(B, D)`.
        states: The list of one state `(B, U)`.
        query: `(B, Q)`. Default: the inputs, which are their own mean.
        training: Whether dropout applies.
        return_attention_scores: Whether to return the weight `α` too; not for `"gate"`.

    Returns:
        The output `(B, U)` and the list of the state after the step; with
        `return_attention_scores` also the weights `(B,)`.

    Raises:
        ValueError: Where arguments do not go together, or shapes do not fit.

    Reference:
        Wang, Liu and Zhao 2016, "Inner attention based recurrent neural networks for answer
        selection", section 3.

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
        units,
        attention="gate",
        use_bias=True,
        reset_after=None,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        bias_initializer="zeros",
        attention_initializer="glorot_uniform",
        kernel_regularizer=None,
        recurrent_regularizer=None,
        bias_regularizer=None,
        attention_regularizer=None,
        kernel_constraint=None,
        recurrent_constraint=None,
        bias_constraint=None,
        attention_constraint=None,
        occam=False,
        occam_minimum=0.001,
        occam_initializer="glorot_uniform",
        dropout=0.0,
        recurrent_dropout=0.0,
        seed=None,
        **kwargs,
    ):
        check_arguments(units, attention, reset_after, occam, occam_minimum)
        check_rates(dropout=dropout, recurrent_dropout=recurrent_dropout)
        super().__init__(
            units,
            use_bias=use_bias,
            reset_after=attention != "gate" if reset_after is None else reset_after,
            kernel_initializer=kernel_initializer,
            recurrent_initializer=recurrent_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            recurrent_regularizer=recurrent_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            recurrent_constraint=recurrent_constraint,
            bias_constraint=bias_constraint,
            dropout=dropout,
            recurrent_dropout=recurrent_dropout,
            seed=seed,
            **kwargs,
        )
        self.dropout_mask_count = None  # one mask for all gates, as Keras' GRU mostly has it
        self.attention = attention
        self.attention_initializer = keras.initializers.get(attention_initializer)
        self.attention_regularizer = keras.regularizers.get(attention_regularizer)
        self.attention_constraint = keras.constraints.get(attention_constraint)
        self.occam = occam
        self.occam_minimum = occam_minimum
        self.occam_initializer = keras.initializers.get(occam_initializer)

    def build(self, inputs_shape, query_shape=None):
        query_shape = inputs_shape if query_shape is None else query_shape
        super().build(inputs_shape)
        self.input_size, self.query_size = inputs_shape[-1], query_shape[-1]
        if self.attention == "gate":
            self.query_kernel = self._add("query_kernel", (self.query_size, 2 * self.units))
        else:
            self.attention_kernel = self._add(
                "attention_kernel", (self.query_size, self.input_size)
            )
        if self.attention == "context":
            self.recurrent_attention_kernel = self._add(
                "recurrent_attention_kernel", (self.units, self.input_size)
            )
        if self.occam:
            self.occam_vector = self.add_weight(
                (self.query_size,), initializer=self.occam_initializer, name="occam_vector"
            )

    def _add(self, name, shape):
        return self.add_weight(
            shape,
            initializer=fresh(self.attention_initializer),
            regularizer=self.attention_regularizer,
            constraint=self.attention_constraint,
            name=name,
        )

    def call(self, inputs, states, query=None, training=False, return_attention_scores=False):
        check_step(self, inputs, states, query, return_attention_scores)
        hidden = states[0] if isinstance(states, (list, tuple)) else states
        inputs, hidden = self.cast(inputs), self.cast(hidden)
        query = inputs if query is None else self.cast(query)
        dropped = self.drop_inputs(inputs, training)
        shift = self.input_shift(query)
        products = ops.matmul(dropped, self.cast(self.kernel))
        weight = None
        if self.attention != "gate":
            asked = ops.sum(self.asked(query) * inputs, axis=1, keepdims=True)
            if self.attention == "context":
                reader = ops.matmul(hidden, self.cast(self.recurrent_attention_kernel))
                asked = asked + ops.sum(reader * inputs, axis=1, keepdims=True)
            weight = ops.sigmoid(asked)
            products = products * weight
        after = self._recur(products if shift is None else products + shift, hidden, training)
        results = (after, [after] if isinstance(states, (list, tuple)) else after)
        return (*results, ops.squeeze(weight, 1)) if return_attention_scores else results

    def _recur(self, products, hidden, training):
        """Return the state after a step from the products of its input."""
        units, kernel = self.units, self.cast(self.recurrent_kernel)
        mask = self.recurrent_mask(hidden, training)
        read = hidden if mask is None else hidden * mask
        if self.reset_after:
            recurrent = ops.matmul(read, kernel)
            bias = self.recurrent_bias()
            recurrent = recurrent if bias is None else recurrent + bias
        else:
            recurrent = ops.matmul(read, kernel[:, : 2 * units])
        gates = ops.sigmoid(products[:, : 2 * units] + recurrent[:, : 2 * units])
        update, reset = gates[:, :units], gates[:, units:]
        if self.reset_after:
            met = reset * recurrent[:, 2 * units :]
        else:
            met = ops.matmul(reset * read, kernel[:, 2 * units :])
        candidate = ops.tanh(products[:, 2 * units :] + met)
        if self.update_keeps:
            return candidate + update * (hidden - candidate)
        return hidden + update * (candidate - hidden)

    # What the layer's loop needs of the weights.

    @property
    def update_keeps(self) -> bool:
        """Whether `z` says how much of the old state is kept, as in Keras' GRU, or replaced."""
        return self.attention != "gate"

    def asked(self, query):
        """Return the part of the attention that a query alone decides, `(B, Q)` to `(B, D)`."""
        return ops.matmul(query, self.cast(self.attention_kernel))

    def input_shift(self, query):
        """Return what is added to the products of the inputs: `(3U,)`, `(B, 3U)` or `None`."""
        bias = None
        if self.use_bias:
            bias = self.cast(self.bias)
            bias = bias[0] if self.reset_after else bias
        if self.attention != "gate":
            return bias
        gates = ops.matmul(query, self.cast(self.query_kernel))
        shift = ops.pad(gates, ((0, 0), (0, self.units)))
        return shift if bias is None else shift + bias

    def recurrent_bias(self):
        """Return the bias `(3U,)` of the recurrent products, or `None`."""
        return self.cast(self.bias)[1] if self.use_bias and self.reset_after else None

    def drop_inputs(self, inputs, training):
        """Return inputs `(B, D)` without the features that are dropped."""
        if not (training and self.dropout):
            return inputs
        return inputs * self.get_dropout_mask(inputs)

    def recurrent_mask(self, state, training):
        """Return the factors `(B, U)` of the state in the recurrent products, or `None`."""
        if not (training and self.recurrent_dropout):
            return None
        return self.get_recurrent_dropout_mask(state)

    def occam_penalty(self, scores, query, mask=None):
        """Return Occam's penalty on weights `(B, T)` for queries `(B, Q)`."""
        return occam_penalty(scores, query, self.occam_vector, self.occam_minimum, mask)

    def cast(self, tensor):
        """Return a weight or an input in the compute dtype, inside and outside of `__call__`."""
        return ops.cast(tensor, self.compute_dtype)

    def get_config(self):
        config = super().get_config()
        for name in ("activation", "recurrent_activation"):
            del config[name]  # those of the equations
        return {
            **config,
            "attention": self.attention,
            "attention_initializer": keras.initializers.serialize(self.attention_initializer),
            "attention_regularizer": keras.regularizers.serialize(self.attention_regularizer),
            "attention_constraint": keras.constraints.serialize(self.attention_constraint),
            "occam": self.occam,
            "occam_minimum": self.occam_minimum,
            "occam_initializer": keras.initializers.serialize(self.occam_initializer),
        }
