"""Keras' cells, arranged for a loop: what does not depend on the step is computed before it.

A Keras cell multiplies its whole input with its kernel at every step. In a decoder the input is
a part that is known for all steps (the embedded target) and a part that is fed back (a context);
the product with the first is one large product over the sequence, made here before the loop.
"""

import keras
from keras import ops


def cell_products(cell, input_size: int):
    """Arrange a cell for a loop.

    Args:
        cell: A Keras cell that is built.
        input_size: How many features of its input are known before the loop.

    Returns:
        An object with `project(inputs)`, from `(B, T, input_size)` to what the loop reads a slice
        of at each step, and `step(projected, feed, states)`, which gives what the cell gives.
        `None` for cells of other kinds, and for cells with dropout of their own.
    """
    if getattr(cell, "dropout", 0) or getattr(cell, "recurrent_dropout", 0):
        return None
    kinds = {keras.layers.GRUCell: GRUProducts, keras.layers.LSTMCell: LSTMProducts}
    kind = kinds.get(type(cell))
    return None if kind is None else kind(cell, input_size)


class _Products:
    """What both kinds share: the split of the kernel."""

    def __init__(self, cell, input_size):
        self.cell = cell
        self.units = cell.units
        kernel = self._cast(cell.kernel)
        self.input_kernel = kernel[:input_size]
        self.feed_kernel = kernel[input_size:] if kernel.shape[0] > input_size else None
        self.recurrent_kernel = self._cast(cell.recurrent_kernel)

    def _cast(self, tensor):
        return ops.cast(tensor, self.cell.compute_dtype)

    def _input_bias(self):
        return self._cast(self.cell.bias) if self.cell.use_bias else None

    def project(self, inputs):
        projected = ops.matmul(self._cast(inputs), self.input_kernel)
        bias = self._input_bias()
        return projected if bias is None else projected + bias

    def _inputs(self, projected, feed):
        if feed is None:
            return projected
        return projected + ops.matmul(feed, self.feed_kernel)


class LSTMProducts(_Products):
    """`keras.layers.LSTMCell`, its input product made before the loop."""

    def step(self, projected, feed, states):
        hidden, carry = states
        gates = self._inputs(projected, feed) + ops.matmul(hidden, self.recurrent_kernel)
        gate_in, gate_forget, candidate, gate_out = ops.split(gates, 4, axis=1)
        sigmoid = self.cell.recurrent_activation
        carry = sigmoid(gate_forget) * carry + sigmoid(gate_in) * self.cell.activation(candidate)
        hidden = sigmoid(gate_out) * self.cell.activation(carry)
        return hidden, [hidden, carry]


class GRUProducts(_Products):
    """`keras.layers.GRUCell`, its input product made before the loop."""

    def __init__(self, cell, input_size):
        super().__init__(cell, input_size)
        self.recurrent_bias = None
        if cell.reset_after:
            if cell.use_bias:
                self.recurrent_bias = self._cast(cell.bias)[1]
        else:
            self.gate_kernel = self.recurrent_kernel[:, : 2 * self.units]
            self.candidate_kernel = self.recurrent_kernel[:, 2 * self.units :]

    def _input_bias(self):
        bias = super()._input_bias()
        return bias[0] if bias is not None and self.cell.reset_after else bias

    def step(self, projected, feed, states):
        (hidden,) = states
        inputs = self._inputs(projected, feed)
        units, sigmoid = self.units, self.cell.recurrent_activation
        if self.cell.reset_after:
            recurrent = ops.matmul(hidden, self.recurrent_kernel)
            if self.recurrent_bias is not None:
                recurrent = recurrent + self.recurrent_bias
            gates = sigmoid(inputs[:, : 2 * units] + recurrent[:, : 2 * units])
            update, reset = gates[:, :units], gates[:, units:]
            candidate = reset * recurrent[:, 2 * units :]
        else:
            gates = sigmoid(inputs[:, : 2 * units] + ops.matmul(hidden, self.gate_kernel))
            update, reset = gates[:, :units], gates[:, units:]
            candidate = ops.matmul(reset * hidden, self.candidate_kernel)
        candidate = self.cell.activation(inputs[:, 2 * units :] + candidate)
        hidden = update * hidden + (1 - update) * candidate
        return hidden, [hidden]
