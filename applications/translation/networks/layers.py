"""The layers that translation networks are made of: encoders, a GRU cell, readout, word scores."""

from typing import Any

import keras
from keras import ops

from keras_attention.layers import lora_and_quantization

from ...base.network import recurrent_start

# Added to an update gate before its sigmoid, which is then 1 in every float type.
_HOLD = 1e4


@keras.saving.register_keras_serializable("keras_attention.translation")
class ProjectedGRUCell(keras.layers.Layer):
    """GRU cell whose input `(B, 3 units)` is projected already: that depends on no step.

    $$z = \\sigma(x_z + h W_z), \\quad r = \\sigma(x_r + h W_r), \\quad
      \\tilde h = \\tanh(x_h + (r \\circ h) W_h), \\quad
      h' = z \\circ h + (1 - z) \\circ \\tilde h$$

    It computes what `keras.layers.GRUCell(reset_after=False)` does, which is the cell of Cho et al.
    (2014) and Bahdanau et al. (2015), with the gate's sense turned round ($z_{Keras} = 1 - z$). It
    trains 1.4 times faster on a CPU, for that cell cuts its recurrent kernel in two at every step
    and puts the gradient together again.
    """

    def __init__(self, units: int, **kwargs):
        super().__init__(**kwargs)
        self.units = self.state_size = self.output_size = units

    def build(self, input_shape=None):
        start = recurrent_start(self.dtype_policy)

        def kernel(width, name):
            return self.add_weight((self.units, width), initializer=start, name=name)

        self.gate_kernel = kernel(2 * self.units, "gate_kernel")
        self.candidate_kernel = kernel(self.units, "candidate_kernel")

    def call(self, inputs, states):
        (hidden,) = states
        units = self.units
        gates = ops.sigmoid(inputs[:, : 2 * units] + ops.matmul(hidden, self.gate_kernel))
        update, reset = gates[:, :units], gates[:, units:]
        recurrent = ops.matmul(reset * hidden, self.candidate_kernel)
        candidate = ops.tanh(inputs[:, 2 * units :] + recurrent)
        hidden = candidate + update * (hidden - candidate)
        return hidden, [hidden]


@keras.saving.register_keras_serializable("keras_attention.translation")
class BidirectionalEncoder(keras.layers.Layer):
    """The encoder of Bahdanau et al. (2015), section 3.2: a GRU in each direction.

    Each word's annotation joins the states of both: $h_s = [\\overrightarrow{h}_s;
    \\overleftarrow{h}_s]$. Of words `(B, S, E)` and a mask `(B, S)` it returns the annotations
    `(B, S, 2U)`, the state `(B, U)` after the last word and the backward state at the first word.
    Masked words leave the states as they are; of a row that is masked, all is zeros.
    """

    def __init__(self, units: int, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.projection = keras.layers.Dense(6 * units, name="projection", dtype=self.dtype_policy)
        self.forward_layer = self._direction("forward", False)
        self.backward_layer = self._direction("backward", True)

    def _direction(self, name, go_backwards):
        cell = ProjectedGRUCell(self.units, name="cell", dtype=self.dtype_policy)
        options = {"go_backwards": go_backwards, "name": name, "dtype": self.dtype_policy}
        return keras.layers.RNN(cell, return_sequences=True, **options)

    def build(self, input_shape):
        self.projection.build(tuple(input_shape))
        self.forward_layer.build((*input_shape[:2], 3 * self.units))
        self.backward_layer.build((*input_shape[:2], 3 * self.units))

    def call(self, inputs, mask=None):
        forward, backward = ops.split(self.projection(inputs), 2, axis=-1)
        if mask is not None:
            forward, backward = _held(forward, mask), _held(backward, mask)
        forward = self.forward_layer(forward)
        backward = ops.flip(self.backward_layer(backward), axis=1)
        annotations = ops.concatenate([forward, backward], axis=-1)
        return annotations, forward[:, -1], backward[:, 0]

    def compute_mask(self, inputs, previous_mask):
        return None  # Whoever attends is handed the mask by name.

    def compute_output_shape(self, input_shape):
        state = (input_shape[0], self.units)
        return (*input_shape[:2], 2 * self.units), state, state


def _held(projected, mask):
    """Return projected inputs `(B, S, 3U)` with which the cell keeps its state at masked steps.

    The mask enters through the update gate, so that the loop itself needs none.
    """
    units = projected.shape[-1] // 3
    hold = ops.concatenate([ops.full((units,), _HOLD), ops.zeros((2 * units,))])
    masked = ops.expand_dims(ops.cast(ops.logical_not(mask), projected.dtype), -1)
    return projected + masked * ops.cast(hold, projected.dtype)


@keras.saving.register_keras_serializable("keras_attention.translation")
class StackedEncoder(keras.layers.Layer):
    """The encoder of Luong et al. (2015), sections 2 and 4.1: stacked LSTMs in one direction.

    Of words `(B, S, E)` and a mask `(B, S)` it returns the top layer's outputs `(B, S, U)` and the
    final states of every layer in the cells' order, `[h_1, c_1, h_2, c_2, ...]`, each `(B, U)`.
    With `backwards` it reads from the last word to the first; outputs stay at their words.
    """

    def __init__(
        self,
        units: int,
        layers: int = 1,
        dropout: float = 0.0,
        backwards: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.units, self.backwards = units, backwards
        options = {"return_sequences": True, "return_state": True, "dtype": self.dtype_policy}
        options["recurrent_initializer"] = recurrent_start(self.dtype_policy)
        options["use_cudnn"] = False  # it refuses padding in front, and a row of padding alone
        self.stack = [
            keras.layers.LSTM(units, name=f"lstm_{index}", **options) for index in range(layers)
        ]
        self.between = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape):
        shape = tuple(input_shape)
        for layer in self.stack:
            layer.build(shape)
            shape = (*shape[:2], self.units)

    def call(self, inputs, mask=None, training=None):
        outputs, states = inputs, []
        if self.backwards:  # padding then comes first, where the mask holds the states at zero
            outputs, mask = ops.flip(inputs, axis=1), None if mask is None else ops.flip(mask, 1)
        for index, layer in enumerate(self.stack):
            if index:
                outputs = self.between(outputs, training=training)
            outputs, hidden, carry = layer(outputs, mask=mask)
            states += [hidden, carry]
        return ops.flip(outputs, axis=1) if self.backwards else outputs, states

    def compute_mask(self, inputs, previous_mask):
        return None  # Whoever attends is handed the mask by name.

    def compute_output_shape(self, input_shape):
        state = (input_shape[0], self.units)
        return (*input_shape[:2], self.units), [state] * (2 * len(self.stack))


def encoded(encoder: keras.layers.Layer, words, mask):
    """Return the annotations `(B, S, D)` of an encoder and the vector that the decoder starts from.

    That is the last state the encoder returns; of an encoder without states, the mean annotation.
    """
    results = encoder(words, mask=mask)
    if isinstance(results, (tuple, list)):
        return results[0], keras.tree.flatten(results)[-1]
    real = ops.cast(ops.expand_dims(mask, -1), results.dtype)
    return results, ops.sum(results * real, axis=1) / ops.maximum(ops.sum(real, axis=1), 1)


def encoder_shapes(encoder: keras.layers.Layer, words: tuple) -> tuple[tuple, tuple]:
    """Build an encoder; return the shapes of annotations and of the start vector."""
    if not encoder.built:
        encoder.build(words)
    shapes = encoder.compute_output_shape(words)
    if isinstance(shapes[0], (tuple, list)):
        last = shapes[-1]
        return shapes[0], last[-1] if isinstance(last[0], (tuple, list)) else last
    return shapes, (shapes[0], shapes[-1])


def first_states(cell: keras.layers.Layer, first):
    """Return the first states of a cell, or of stacked cells: each outputs `first` at first."""
    states = []
    for each in getattr(cell, "cells", [cell]):
        sizes = keras.tree.flatten(each.state_size)
        rest = [ops.zeros((ops.shape(first)[0], size), first.dtype) for size in sizes[1:]]
        states += [first, *rest]
    return states


def last_output(cell: keras.layers.Layer, states):
    """Return the last output of the (top) cell: its first state."""
    own = getattr(cell, "cells", [cell])[-1]
    return states[-len(keras.tree.flatten(own.state_size))]


def padding_mask(ids):
    """Return the boolean mask of token ids, True where there is a word (pad is 0)."""
    return ops.not_equal(ids, 0)


@keras.saving.register_keras_serializable("keras_attention.translation")
class MaxoutReadout(keras.layers.Layer):
    """Maxout of state, word and context, before the word scores (Bahdanau et al., 2015, A.2.2).

    $$\\tilde t_i = U_o s_{i-1} + V_o E y_{i-1} + C_o c_i + b, \\qquad
      t_{i,j} = \\max(\\tilde t_{i,2j}, \\tilde t_{i,2j+1}).$$

    It takes a list of state, word and context `(..., D_i)` and returns `(..., units)`. The three
    matrices stand one above the other in one kernel, so that the sum is one product.
    """

    def __init__(self, units: int, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, input_shape):
        width = sum(shape[-1] for shape in input_shape)
        self.kernel = self.add_weight((width, 2 * self.units), name="kernel")
        self.bias = self.add_weight((2 * self.units,), initializer="zeros", name="bias")

    def call(self, inputs):
        sums = flat_matmul(ops.concatenate(inputs, axis=-1), self.kernel) + self.bias
        return ops.max(ops.reshape(sums, (*ops.shape(sums)[:-1], self.units, 2)), axis=-1)


@keras.saving.register_keras_serializable("keras_attention.translation")
class Embedding(keras.layers.Embedding):
    """`keras.layers.Embedding` whose `quantize("int8")` keeps a table that has eight bits already.

    A table of integers over one scale, as a file of eight bits holds it, is stored as it is. Files
    of weights name layers by their class, so this one has the name of Keras'.
    """

    def quantize(
        self, mode: str | None = None, type_check: bool = True, config: Any = None
    ) -> None:
        exact = None
        if mode == "int8" and getattr(config, "weight_quantizer", None) is None:
            exact = lora_and_quantization.exact_int8(ops.convert_to_numpy(self.embeddings))
        settings = {} if config is None else {"config": config}
        super().quantize(mode, type_check=False, **settings)
        if exact is not None:
            whole, scale = exact
            self._embeddings.assign(whole)
            self.embeddings_scale.assign(ops.full(self.embeddings_scale.shape, scale))


@keras.saving.register_keras_serializable("keras_attention.translation")
class WordLogits(keras.layers.Layer):
    """Scores `(..., V)` of every word of the vocabulary, $W_o t + b$, of vectors `(..., D)`.

    Where `tied`, the target embedding's table `(V, D)` serves as $W_o$, handed over at each call
    ([Press and Wolf, 2017](https://arxiv.org/abs/1608.05859)); the layer then owns a bias only.
    """

    def __init__(self, vocabulary_size: int, tied: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.tied = tied

    def build(self, input_shape):
        if not self.tied:
            self.kernel = self.add_weight((input_shape[-1], self.vocabulary_size), name="kernel")
        self.bias = self.add_weight((self.vocabulary_size,), initializer="zeros", name="bias")

    def call(self, inputs, table=None):
        if self.tied != (table is not None):
            raise ValueError(
                "`table` must be given where `tied=True`, and only there. "
                f"Received: tied={self.tied}, table={table}"
            )
        kernel = ops.cast(ops.transpose(table), self.compute_dtype) if self.tied else self.kernel
        return flat_matmul(inputs, kernel) + self.bias


def flat_matmul(inputs, kernel):
    """Return `inputs (..., D) @ kernel (D, V)` as one product over all rows.

    Some releases of Keras compute a product of rank 3 by rank 2 as a broadcast batch product, which
    makes a gradient `(D, V)` for each sentence and adds them up.
    """
    shape = ops.shape(inputs)
    if len(shape) == 2:
        return ops.matmul(inputs, kernel)
    rows = ops.matmul(ops.reshape(inputs, (-1, shape[-1])), kernel)
    return ops.reshape(rows, (*shape[:-1], kernel.shape[-1]))
