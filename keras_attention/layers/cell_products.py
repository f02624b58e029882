"""Keras' GRU and LSTM cells, arranged for a loop over a whole sequence.

A Keras cell multiplies its whole input with its kernel at every step. In a decoder the input is
a part that is known for all steps (the embedded target) and a part that is fed back (a context);
the product with the first is one large product over the sequence, made before the loop.

Each class gives the cell's equations forward, and backward with the gradients of the products'
results, from which the gradients of the kernels are one product each over the whole sequence.
"""

import keras
from keras import ops


def cell_products(cell, input_size: int):
    """Arrange a cell for a loop.

    Args:
        cell: A Keras cell that is built.
        input_size: How many features of its input are known before the loop.

    Returns:
        A `GRUProducts` or an `LSTMProducts`; `None` for cells of other kinds, with activations
        other than Keras' own for the kind, or with dropout of their own.
    """
    kinds = {keras.layers.GRUCell: GRUProducts, keras.layers.LSTMCell: LSTMProducts}
    kind = kinds.get(type(cell))
    if kind is None or cell.dropout or cell.recurrent_dropout:
        return None
    usual = (keras.activations.tanh, keras.activations.sigmoid)
    if (cell.activation, cell.recurrent_activation) != usual:
        return None
    return kind(cell, input_size)


class _Products:
    """What both kinds share: the split of the kernel.

    `weights` are the tensors that `step` reads: `feed`, the kernel's rows for the part of the
    input that is fed back (where there is one), `recurrent`, and for a GRU with `reset_after` and
    a bias `recurrent_bias`.
    """

    def __init__(self, cell, input_size):
        self.cell = cell
        self.units = cell.units
        kernel = self.cast(cell.kernel)
        self.input_kernel = kernel[:input_size]
        self.weights = {"recurrent": self.cast(cell.recurrent_kernel)}
        if kernel.shape[0] > input_size:
            self.weights["feed"] = kernel[input_size:]

    def cast(self, tensor):
        return ops.cast(tensor, self.cell.compute_dtype)

    def input_bias(self):
        return self.cast(self.cell.bias) if self.cell.use_bias else None

    def project(self, inputs):
        """Return the inputs' part of the products of all steps, `(B, T, E)` to `(B, T, G)`."""
        projected = ops.matmul(self.cast(inputs), self.input_kernel)
        bias = self.input_bias()
        return projected if bias is None else projected + bias


def _add_feed(projected, feed, weights):
    return projected if feed is None else projected + ops.matmul(feed, weights["feed"])


class LSTMProducts(_Products):
    """`keras.layers.LSTMCell`; the gates' order is input, forget, candidate, output."""

    state_count = 2
    residual_count = 4

    def step(self, projected, feed, states, weights):
        """Return the states after the step, and what `backward` needs of it, `(B, 4U)`."""
        hidden, carry = states
        gates = _add_feed(projected, feed, weights) + ops.matmul(hidden, weights["recurrent"])
        gate_in, forget, candidate, gate_out = ops.split(gates, 4, axis=1)
        gate_in, forget = ops.sigmoid(gate_in), ops.sigmoid(forget)
        candidate, gate_out = ops.tanh(candidate), ops.sigmoid(gate_out)
        carry = forget * carry + gate_in * candidate
        hidden = gate_out * ops.tanh(carry)
        return [hidden, carry], [gate_in, forget, candidate, gate_out]

    def backward(self, gradients, before, carry, residuals, weights):
        """Return the gradients of the input's products, of the state's, and of the states before.

        Args:
            gradients: Those of the states after the step.
            before: The states before the step.
            carry: The second state after the step, of a cell that has one.
            residuals: What `step` kept.
            weights: `self.weights`.
        """
        d_hidden, d_carry = gradients
        gate_in, forget, candidate, gate_out = residuals
        squashed = ops.tanh(carry)
        d_carry = d_carry + d_hidden * gate_out * (1 - squashed * squashed)
        d_products = ops.concatenate(
            [
                d_carry * candidate * gate_in * (1 - gate_in),
                d_carry * before[1] * forget * (1 - forget),
                d_carry * gate_in * (1 - candidate * candidate),
                d_hidden * squashed * gate_out * (1 - gate_out),
            ],
            axis=1,
        )
        d_before = ops.matmul(d_products, ops.transpose(weights["recurrent"]))
        return d_products, d_products, [d_before, d_carry * forget]

    def weight_gradients(self, hidden, residuals, d_recurrent):
        """Return the gradients of the recurrent weights from those of all steps' products."""
        return {"recurrent": _outer(hidden, d_recurrent)}


class GRUProducts(_Products):
    """`keras.layers.GRUCell`; the gates' order is update, reset, candidate."""

    state_count = 1
    residual_count = 4

    def __init__(self, cell, input_size):
        super().__init__(cell, input_size)
        self.reset_after = cell.reset_after
        if cell.reset_after and cell.use_bias:
            self.weights["recurrent_bias"] = self.cast(cell.bias)[1]

    def input_bias(self):
        bias = super().input_bias()
        return bias[0] if bias is not None and self.reset_after else bias

    def step(self, projected, feed, states, weights):
        """Return the state after the step, and what `backward` needs of it, `(B, 4U)`."""
        (hidden,) = states
        inputs, units = _add_feed(projected, feed, weights), self.units
        recurrent_kernel = weights["recurrent"]
        if self.reset_after:
            recurrent = ops.matmul(hidden, recurrent_kernel)
            if "recurrent_bias" in weights:
                recurrent = recurrent + weights["recurrent_bias"]
            gates = ops.sigmoid(inputs[:, : 2 * units] + recurrent[:, : 2 * units])
            update, reset = gates[:, :units], gates[:, units:]
            inner = recurrent[:, 2 * units :]
            candidate = reset * inner
        else:
            gates = ops.matmul(hidden, recurrent_kernel[:, : 2 * units])
            gates = ops.sigmoid(inputs[:, : 2 * units] + gates)
            update, reset = gates[:, :units], gates[:, units:]
            inner = reset * hidden
            candidate = ops.matmul(inner, recurrent_kernel[:, 2 * units :])
        candidate = ops.tanh(inputs[:, 2 * units :] + candidate)
        hidden = update * hidden + (1 - update) * candidate
        return [hidden], [update, reset, candidate, inner]

    def backward(self, gradients, before, carry, residuals, weights):
        """Return the gradients of the input's products, of the state's, and of the state before.

        The arguments are those of `LSTMProducts.backward`.
        """
        (d_hidden,), (hidden,) = gradients, before
        update, reset, candidate, inner = residuals
        units, kernel = self.units, weights["recurrent"]
        d_candidate = d_hidden * (1 - update) * (1 - candidate * candidate)
        d_update = d_hidden * (hidden - candidate) * update * (1 - update)
        slope = reset * (1 - reset)
        if self.reset_after:
            d_reset = d_candidate * inner * slope
            d_inputs = ops.concatenate([d_update, d_reset, d_candidate], axis=1)
            d_recurrent = ops.concatenate([d_update, d_reset, d_candidate * reset], axis=1)
            d_before = ops.matmul(d_recurrent, ops.transpose(kernel))
            return d_inputs, d_recurrent, [d_hidden * update + d_before]
        d_inner = ops.matmul(d_candidate, ops.transpose(kernel[:, 2 * units :]))
        d_reset = d_inner * hidden * slope
        d_gates = ops.concatenate([d_update, d_reset], axis=1)
        d_before = ops.matmul(d_gates, ops.transpose(kernel[:, : 2 * units]))
        d_before = d_before + d_hidden * update + d_inner * reset
        d_products = ops.concatenate([d_gates, d_candidate], axis=1)
        return d_products, d_products, [d_before]

    def weight_gradients(self, hidden, residuals, d_recurrent):
        """Return the gradients of the recurrent weights from those of all steps' products."""
        if not self.reset_after:
            inner, gates = residuals[3], 2 * self.units
            parts = [_outer(hidden, d_recurrent[..., :gates])]
            parts += [_outer(inner, d_recurrent[..., gates:])]
            return {"recurrent": ops.concatenate(parts, axis=1)}
        gradients = {"recurrent": _outer(hidden, d_recurrent)}
        if "recurrent_bias" in self.weights:
            gradients["recurrent_bias"] = ops.sum(d_recurrent, axis=(0, 1))
        return gradients


def _outer(left, right):
    """Return the sum over batch and steps of the outer products, one matrix product."""
    left = ops.reshape(left, (-1, left.shape[-1]))
    return ops.matmul(ops.transpose(left), ops.reshape(right, (-1, right.shape[-1])))
