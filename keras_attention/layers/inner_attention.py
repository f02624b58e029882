"""Recurrent nets with attention before the state (Wang, Liu and Zhao 2016)."""

import keras
from keras import ops

from keras_attention.layers.inner_attention_cell import InnerAttentionGRUCell
from keras_attention.layers.inner_attention_checks import check_call, check_shapes, check_state
from keras_attention.layers.inner_attention_run import run_inner_attention
from keras_attention.ops.masks import lengths


@keras.saving.register_keras_serializable("keras_attention")
class InnerAttentionGRU(keras.layers.RNN):
    """A GRU whose inputs are weighed by a query before the state reads them.

    Attention after a recurrent net reads states, of which the late ones have heard most: it favours
    the end of a text. Here a query `r` (of answer selection: the question) acts before the state.

    - `attention="gate"`: the query takes part in the gates, not in the candidate.
      `z = σ(W_z x + H_z h + M_z r + b_z)`, `f = σ(W_f x + H_f h + M_f r + b_f)`,
      `h̃ = tanh(W_h x + H_h (f ∘ h) + b_h)`, `h' = (1 - z) ∘ h + z ∘ h̃`
    - `attention="word"`: a word counts by itself. `α = σ(rᵀ M x)`, and `α x` goes into Keras' GRU.
    - `attention="context"`: a word counts by what was read before it. `w = M_h h + M_q r`,
      `α = σ(wᵀ x)`, and `α x` goes into Keras' GRU.

    The weights `α` are sigmoids, each between 0 and 1: they do not sum to 1.

    All products with inputs stand outside of the loop, `wᵀ x` too, which is `(M_hᵀ x) · h` and what
    the query asks. The loop has a gradient of its own (first order only).

    Weights, on `cell`: `kernel` `(D, 3U)`, `recurrent_kernel` `(U, 3U)` in blocks of `z`, `f` (in
    Keras' GRU called `r`) and the candidate, and `bias`. For `"gate"` `bias` is `(3U,)` and
    `query_kernel` is `(Q, 2U)`. The others have the weights of `keras.layers.GRU`, `bias` `(2, 3U)`
    or with `reset_after=False` `(3U,)`, whose `z` says how much of the old state is kept; and
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
        occam: Whether Occam's penalty on the weights `α` is added as a loss (by `add_loss`); not
            for `"gate"`, which has none. See
            [`occam_penalty`][keras_attention.losses.occam_penalty].
        occam_minimum: Its least price `λ` of a word.
        occam_initializer: Initializer of `occam_vector`. Zeros would never learn: at the least
            price it has no gradient.
        dropout: Rate at which features of the inputs are dropped before their products with
            `kernel`, the same ones at every step. The attention sees all of them.
        recurrent_dropout: The same for the state and `recurrent_kernel`.
        seed: Seed of the dropout.
        return_sequences: Whether to return the states of all steps, or the last one.
        return_state: Whether to return the last state too.
        go_backwards: Whether to begin with the last step; the outputs come in the order in which
            they were made.
        stateful: Whether the last state of a batch is the first of the next.
        unroll: Whether the loop is written out, which needs inputs of known length.
        zero_output_for_mask: Whether outputs of masked steps are zeros, not the state they keep.
        use_cudnn: Whether Keras' GRU runs the loop of `"word"`, which cuDNN can serve: `"auto"`
            on TensorFlow where there is a GPU, or `True`, or `False`, as XLA on a GPU needs it.
        **kwargs: Arguments of every Keras layer.

    Call arguments:
        inputs: `(B, T, D)`; or a pair of inputs and query, for wrappers that pass one argument
            only: `keras.layers.Bidirectional(InnerAttentionGRU(8))([inputs, query])`.
        query: `(B, Q)`. Default: the mean of the inputs that are not masked.
        mask: Boolean `(B, T)`, True = a real step. A masked step keeps the state, and what it
            holds does not matter. Keras' implicit mask of the inputs is used and passed on.
        initial_state: The state before the first step, `(B, U)` or a list of it. Default: zeros.
        training: Whether dropout applies.
        return_attention_scores: Whether to return the weights `α` too; not for `"gate"`.

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
        return_sequences=False,
        return_state=False,
        go_backwards=False,
        stateful=False,
        unroll=False,
        zero_output_for_mask=False,
        use_cudnn="auto",
        **kwargs,
    ):
        if use_cudnn not in ("auto", True, False):
            raise ValueError(
                f"`use_cudnn` must be 'auto', True or False. Received: use_cudnn={use_cudnn!r}"
            )
        cell = InnerAttentionGRUCell(
            units,
            attention=attention,
            use_bias=use_bias,
            reset_after=reset_after,
            kernel_initializer=kernel_initializer,
            recurrent_initializer=recurrent_initializer,
            bias_initializer=bias_initializer,
            attention_initializer=attention_initializer,
            kernel_regularizer=kernel_regularizer,
            recurrent_regularizer=recurrent_regularizer,
            bias_regularizer=bias_regularizer,
            attention_regularizer=attention_regularizer,
            kernel_constraint=kernel_constraint,
            recurrent_constraint=recurrent_constraint,
            bias_constraint=bias_constraint,
            attention_constraint=attention_constraint,
            occam=occam,
            occam_minimum=occam_minimum,
            occam_initializer=occam_initializer,
            dropout=dropout,
            recurrent_dropout=recurrent_dropout,
            seed=seed,
            dtype=kwargs.get("dtype"),
            trainable=kwargs.get("trainable", True),
            name="cell",
        )
        super().__init__(
            cell,
            return_sequences=return_sequences,
            return_state=return_state,
            go_backwards=go_backwards,
            stateful=stateful,
            unroll=unroll,
            zero_output_for_mask=zero_output_for_mask,
            **kwargs,
        )
        self.use_cudnn = use_cudnn
        if self._runs_on_stock_gru:
            self.supports_jit = False  # cuDNN's operations are none of XLA's

    def build(self, inputs_shape, query_shape=None):
        inputs_shape, query_shape = _apart(inputs_shape, query_shape)
        check_shapes(inputs_shape, query_shape)
        query_shape = query_shape or (inputs_shape[0], inputs_shape[-1])
        if not self.cell.built:
            self.cell.build((inputs_shape[0], inputs_shape[-1]), query_shape)
            self.cell.built = True
        super().build(inputs_shape)

    def call(
        self,
        inputs,
        query=None,
        mask=None,
        initial_state=None,
        training=None,
        return_attention_scores=False,
    ):
        inputs, query = _apart(inputs, query)
        mask = self._check(inputs, query, mask, initial_state, return_attention_scores)
        inputs = ops.cast(inputs, self.compute_dtype)
        if mask is not None:
            # What padding holds must not matter, be it not a number.
            mask = ops.cast(mask, "bool")
            inputs = ops.where(ops.expand_dims(mask, 2), inputs, ops.zeros_like(inputs))
        query = _mean(inputs, mask) if query is None else ops.cast(query, self.compute_dtype)
        first = self._first_state(inputs, initial_state)
        if self.go_backwards:
            inputs = ops.flip(inputs, axis=1)
            mask = None if mask is None else ops.flip(mask, axis=1)
        states, scores = run_inner_attention(
            self.cell,
            inputs,
            query,
            mask,
            first,
            training=bool(training),
            unroll=self.unroll,
            use_cudnn=self.use_cudnn if self._runs_on_stock_gru else None,
        )
        if self.cell.occam:
            self.add_loss(self.cell.occam_penalty(scores, query, mask))
        if self.stateful:
            self.states[0].assign(ops.cast(states[:, -1], self.states[0].dtype))
        return self._results(states, scores, mask, return_attention_scores)

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

    def _first_state(self, inputs, initial_state):
        if initial_state is None and self.stateful:
            initial_state = self.states
        if initial_state is None:
            return ops.zeros((ops.shape(inputs)[0], self.cell.units), self.compute_dtype)
        state = initial_state[0] if isinstance(initial_state, (list, tuple)) else initial_state
        return ops.cast(state, self.compute_dtype)

    def _results(self, states, scores, mask, return_attention_scores):
        outputs = states if self.return_sequences else states[:, -1]
        if self.zero_output_for_mask and mask is not None:
            real = ops.expand_dims(mask, 2) if self.return_sequences else mask[:, -1:]
            outputs = ops.where(real, outputs, ops.zeros_like(outputs))
        results = [outputs]
        if self.return_state:
            results.append(states[:, -1])
        if return_attention_scores:
            if mask is not None:
                scores = ops.where(mask, scores, ops.zeros_like(scores))
            # Weights belong to words: they come in the order in which the words came.
            results.append(ops.flip(scores, axis=1) if self.go_backwards else scores)
        return tuple(results) if len(results) > 1 else results[0]

    def _check(self, inputs, query, mask, initial_state, return_attention_scores):
        """Refuse what does not fit; return the mask, the inputs' own where none is given."""
        mask = mask[0] if isinstance(mask, (list, tuple)) else mask
        if mask is None:
            # Keras hands it over by itself only where the inputs are the only tensors.
            mask = getattr(inputs, "_keras_mask", None)
        check_call(self.cell, inputs, query, mask, return_attention_scores)
        if self.unroll and inputs.shape[1] is None:
            raise ValueError(
                "`unroll=True` needs inputs of known length, such as Input((20, 8)). "
                f"Received: inputs of shape {tuple(inputs.shape)}"
            )
        state = self.states if initial_state is None and self.stateful else initial_state
        if state is not None:
            check_state(state, (inputs.shape[0], self.cell.units))
        return mask

    # Keras' bookkeeping.

    def compute_output_shape(self, inputs_shape, query_shape=None, initial_state_shape=None):
        return super().compute_output_shape(_apart(inputs_shape, query_shape)[0])

    def compute_output_spec(
        self,
        inputs,
        query=None,
        mask=None,
        initial_state=None,
        training=None,
        return_attention_scores=False,
    ):
        inputs, query = _apart(inputs, query)
        mask = self._check(inputs, query, mask, initial_state, return_attention_scores)
        shapes = super().compute_output_shape(tuple(inputs.shape))
        shapes = list(shapes) if self.return_state else [shapes]
        shapes += [tuple(inputs.shape[:2])] if return_attention_scores else []
        specs = [keras.KerasTensor(shape, self.compute_dtype) for shape in shapes]
        return tuple(specs) if len(specs) > 1 else specs[0]

    def get_config(self):
        config = super().get_config()
        del config["cell"]
        of_cell = self.cell.get_config()
        for name in ("name", "trainable", "dtype"):
            of_cell.pop(name)
        return {**of_cell, **config, "use_cudnn": self.use_cudnn}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def _apart(inputs, query):
    """Take a pair of inputs and query apart; of tensors, or of their shapes."""
    pair = isinstance(inputs, (list, tuple)) and not isinstance(inputs[0], (int, type(None)))
    if not pair:
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
    total = ops.sum(ops.cast(inputs, "float32"), axis=1)
    return ops.cast(total / ops.expand_dims(count, 1), inputs.dtype)
