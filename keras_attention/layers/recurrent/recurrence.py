"""Keras' recurrent cells as the loops see them: what the recurrent layers share.

`GRU` and `LSTM` hold the cells' equations, forward and backward. Backward, only `vjp` runs in a
loop, and takes the gradient one step back. Before the loop, `local_derivatives` gives the factors
of all steps; after it, `product_gradients` and `weight_gradients` give the rest, all steps at once.
"""

import inspect
from dataclasses import dataclass
from typing import Any

import keras
from keras import ops, tree


def shift(first, sequence):
    """Return the sequence `(T, B, D)` one step later: `first`, then all but its last."""
    return ops.concatenate([ops.expand_dims(first, 0), sequence[:-1]], axis=0)


def outer(left, right):
    """Return the sum over batch and steps of the outer products, as one matrix product."""
    left = ops.reshape(left, (-1, left.shape[-1]))
    return ops.matmul(ops.transpose(left), ops.reshape(right, (-1, right.shape[-1])))


def total(parts):
    """Return the sums over batch and steps of gradients, concatenated."""
    return ops.concatenate([ops.sum(part, axis=(0, 1)) for part in parts])


@dataclass(frozen=True)
class GRU:
    """`keras.layers.GRUCell`, with `p` the products of the input and `R` the recurrent kernel.

    `u, f = σ(p_uf + (h R)_uf)`, `c = tanh(p_c + f (h R)_c)`, or with `reset_after=False`
    `c = tanh(p_c + ((f h) R)_c)`; `h' = k h + (1 - k) c`, where `k` is `u`, or `1 - u` unless
    `update_keeps`. Products and gates are lists of tensors `(..., U)`, of one step or of all.
    """

    units: int
    reset_after: bool = True
    update_keeps: bool = True

    state_count = 1

    def gates(self, inputs, read, weights, made=()):
        """Return the gates, and the recurrent products, unless they are `made` already.

        The gates are update, reset, candidate, and the inner product that reset acts on (without
        `reset_after`, the reset state). `read` is the state after dropout.
        """
        units, kernel = self.units, weights["recurrent"]
        width = 3 * units if self.reset_after else 2 * units
        recurrent = made[0] if made else ops.matmul(read, kernel[:, :width])
        products = [recurrent]
        if "recurrent_bias" in weights:
            recurrent = recurrent + weights["recurrent_bias"]
        update = ops.sigmoid(inputs[0] + recurrent[..., :units])
        reset = ops.sigmoid(inputs[1] + recurrent[..., units : 2 * units])
        if self.reset_after:
            inner = recurrent[..., 2 * units :]
            met = reset * inner
        else:
            inner = reset * read
            met = made[1] if made else ops.matmul(inner, kernel[:, 2 * units :])
            products.append(met)
        return [update, reset, ops.tanh(inputs[2] + met), inner], products

    def after(self, gates, hidden):
        """Return the state after a step, from its gates and the state before."""
        update, _, candidate, _ = gates
        if self.update_keeps:
            return candidate + update * (hidden - candidate)
        return hidden + update * (candidate - hidden)

    def step(self, products, states, weights):
        """Return the list of states after a step, and the gates; `products` are one tensor."""
        inputs = ops.split(products, 3, axis=1)
        gates, _ = self.gates(inputs, states[0], weights)
        return [self.after(gates, states[0])], gates

    def local_derivatives(self, gates, before, after=None, read=None, mask=None):
        """Return the factors of all steps' gradients; `mask` is 0 where a step keeps its state."""
        update, reset, candidate, inner = gates
        (before,) = before
        read = before if read is None else read
        new = 1 - update if self.update_keeps else update
        toward = before - candidate if self.update_keeps else candidate - before
        slope = toward * update * (1 - update)
        if mask is not None:
            new, slope = new * mask, slope * mask
        local = {"state": 1 - new, "update": slope, "candidate": new * (1 - candidate * candidate)}
        opening = reset * (1 - reset)
        if self.reset_after:
            local["reset"] = local["candidate"] * inner * opening
            local["recurrent"] = local["candidate"] * reset
        else:
            local |= {"reset": read * opening, "open": reset}
        return local

    def vjp(self, gradients, local, kernel, dropout=None):
        """Take the gradients of the states a step back; return what the products need, and them."""
        gradient, width = gradients[0], 2 * self.units
        update = gradient * local["update"]
        if self.reset_after:
            parts = [update, gradient * local["reset"], gradient * local["recurrent"]]
            saved, reached = [gradient], ops.matmul(ops.concatenate(parts, axis=1), kernel)
        else:
            inner = ops.matmul(gradient * local["candidate"], kernel[width:])
            gates = ops.concatenate([update, inner * local["reset"]], axis=1)
            reached = ops.matmul(gates, kernel[:width]) + inner * local["open"]
            saved = [gradient, inner]
        reached = reached if dropout is None else reached * dropout
        return saved, [reached + gradient * local["state"]]

    def product_gradients(self, saved, local):
        """Return the gradients of the input's products, a list; of one step or of all."""
        gradient, inner = saved[0], saved[-1]  # with `reset_after` one and the same
        d_reset = inner * local["reset"]
        return [gradient * local["update"], d_reset, gradient * local["candidate"]]

    def weight_gradients(self, saved, local, gates, read, weights):
        """Return the gradients of the weights, each one product over all steps."""
        parts = self.product_gradients(saved, local)
        lefts = [read, read, read if self.reset_after else gates[3]]
        if self.reset_after:
            parts[2] = saved[0] * local["recurrent"]
        blocks = [outer(left, part) for left, part in zip(lefts, parts, strict=True)]
        gradients = {"recurrent": ops.concatenate(blocks, axis=1)}
        if "recurrent_bias" in weights:
            gradients["recurrent_bias"] = total(parts)
        return gradients


@dataclass(frozen=True)
class LSTM:
    """`i, f, g, o = σ, σ, tanh, σ (p + h R)`, `c' = f c + i g`, `h' = o tanh(c')`; as `GRU`."""

    units: int

    state_count = 2

    def step(self, products, states, weights):
        hidden, carry = states
        gates = ops.split(products + ops.matmul(hidden, weights["recurrent"]), 4, axis=1)
        into, forget, out = (ops.sigmoid(gates[i]) for i in (0, 1, 3))
        new = ops.tanh(gates[2])
        carry = forget * carry + into * new
        return [out * ops.tanh(carry), carry], [into, forget, new, out]

    def local_derivatives(self, gates, before, after):
        into, forget, new, out = gates
        squashed = ops.tanh(after[1])
        return {
            "carry": out * (1 - squashed * squashed),
            "into": new * into * (1 - into),
            "forget": before[1] * forget * (1 - forget),
            "new": into * (1 - new * new),
            "out": squashed * out * (1 - out),
            "state": forget,
        }

    def vjp(self, gradients, local, kernel):
        hidden, carry = gradients
        carry = carry + hidden * local["carry"]
        saved = [hidden, carry]
        parts = ops.concatenate(self.product_gradients(saved, local), axis=1)
        return saved, [ops.matmul(parts, kernel), carry * local["state"]]

    def product_gradients(self, saved, local):
        hidden, carry = saved
        parts = [carry * local[name] for name in ("into", "forget", "new")]
        return [*parts, hidden * local["out"]]

    def weight_gradients(self, saved, local, gates, read, weights):
        parts = ops.concatenate(self.product_gradients(saved, local), axis=-1)
        return {"recurrent": outer(read, parts)}


def equations_of(cell) -> GRU | LSTM | None:
    """Return a Keras cell's equations; `None` where a subclass or an option changes its step."""
    kinds = (keras.layers.GRUCell, keras.layers.LSTMCell)
    kind = next((kind for kind in kinds if isinstance(cell, kind)), None)
    names = ("call", "_compute_carry_and_output", "_compute_carry_and_output_fused")
    if kind is None or any(
        getattr(type(cell), name, None) is not getattr(kind, name, None) for name in names
    ):
        return None
    usual = (keras.activations.tanh, keras.activations.sigmoid)
    if (cell.activation, cell.recurrent_activation) != usual or cell.implementation == 1:
        return None
    is_lstm = kind is keras.layers.LSTMCell
    return LSTM(cell.units) if is_lstm else GRU(cell.units, cell.reset_after)


def recurrent_weights(cell, dtype) -> dict[str, Any]:
    """Return the weights of a Keras cell that its equations read at every step."""
    weights = {"recurrent": ops.cast(cell.recurrent_kernel, dtype)}
    if cell.use_bias and getattr(cell, "reset_after", False):
        weights["recurrent_bias"] = ops.cast(cell.bias, dtype)[1]
    return weights


def input_bias(cell, dtype):
    """Return the bias of a Keras cell's input products, or `None`."""
    if not cell.use_bias:
        return None
    bias = ops.cast(cell.bias, dtype)
    return bias[0] if getattr(cell, "reset_after", False) else bias


@dataclass(frozen=True)
class DecoderCell:
    """A view of any Keras RNN cell, also a stack; `dtype` is that of the states in a loop."""

    cell: keras.layers.Layer
    dtype: str

    @property
    def output_size(self) -> int:
        """Size of the cell's output, of the top one's in a stack."""
        size = getattr(self.cell, "output_size", None)
        return self.state_sizes[0] if size is None else size

    @property
    def state_sizes(self) -> list[int]:
        """Sizes of all states, one cell after the other."""
        return tree.flatten(self.cell.state_size)

    @property
    def cells(self) -> list:
        """The cells of a stack, or the cell alone."""
        stacked = isinstance(self.cell, keras.layers.StackedRNNCells)
        return list(self.cell.cells) if stacked else [self.cell]

    def __call__(self, inputs, flat_states, training=False):
        """Return the output and the flat list of states after one step."""
        output, states = self._step(inputs, flat_states, training)
        # The cell may compute in another dtype; what the loop carries keeps its own.
        return self._cast(output), [self._cast(state) for state in states]

    def _step(self, inputs, flat_states, training=False):
        takes_training = "training" in inspect.signature(self.cell.call).parameters
        arguments = {"training": bool(training)} if takes_training else {}
        size = self.cell.state_size
        structure = size if tree.is_nested(size) else [size]
        states = tree.pack_sequence_as(structure, list(flat_states))
        output, states = self.cell(inputs, states, **arguments)
        return output, tree.flatten(states)

    @property
    def first_of_top(self) -> int:
        """Index of the first state of the top cell, among the flat states of a stack."""
        return len(self.state_sizes) - len(tree.flatten(self.cells[-1].state_size))

    def output_state(self, input_size: int) -> int | None:
        """Return which of its flat states a built cell gives as its output; `None` where none.

        `GRUCell` and `LSTMCell` give `h`. Of another cell one step tells.
        """
        inputs = ops.zeros((1, input_size), self.cell.compute_dtype)
        output, states = self._step(inputs, self.initial_states(1))
        if output.shape[-1] != self.output_size:
            raise ValueError(
                "`cell` must say the size of its output by an attribute `output_size`. Received: "
                f"cell={self.cell}, with an output of size {output.shape[-1]} where "
                f"{self.output_size} was expected"
            )
        same = [index for index, state in enumerate(states) if state is output]
        return same[-1] if same else None

    def initial_states(self, batch_size, given=None) -> list:
        """Return the flat list of first states: those given, or else the cell's own zeros."""
        if given is not None:
            self.check_states(given, batch_size)
        elif hasattr(self.cell, "get_initial_state"):
            given = self.cell.get_initial_state(batch_size=batch_size)
        else:
            given = [ops.zeros((batch_size, size)) for size in self.state_sizes]
        return [self._cast(state) for state in tree.flatten(given)]

    def check_states(self, given, batch_size):
        """Raise a ValueError where states are not this cell's."""
        sizes = self.state_sizes
        shapes = [tuple(state.shape) for state in tree.flatten(given)]
        batch_sizes = [*(shape[0] for shape in shapes if shape), batch_size]
        known = {size for size in batch_sizes if isinstance(size, int)}
        if [shape[1:] for shape in shapes] != [(size,) for size in sizes] or len(known) > 1:
            raise ValueError(
                f"`initial_state` must hold {len(sizes)} states of sizes {sizes}, in the cell's "
                f"order, one row for each example. Received: {len(shapes)} of shapes {shapes}"
            )

    def draw_dropout(self, batch_size, input_size: int) -> list:
        """Draw dropout's masks before the loop, which is stateless; return the inputs'."""
        size, masks = input_size, []
        for cell in self.cells:
            state_size, mask = tree.flatten(cell.state_size)[0], None
            # A cell of another kind may drop by itself, and call that `dropout` too.
            is_keras = hasattr(cell, "get_dropout_mask")
            if is_keras and cell.dropout:
                mask = cell.get_dropout_mask(ops.ones((batch_size, size), cell.compute_dtype))
            if is_keras and cell.recurrent_dropout:
                ones = ops.ones((batch_size, state_size), cell.compute_dtype)
                cell.get_recurrent_dropout_mask(ones)
            masks.append(mask)
            size = getattr(cell, "output_size", None) or state_size
        return masks

    def forget_dropout(self):
        """Drop the masks that were drawn."""
        for cell in self.cells:
            if hasattr(cell, "reset_dropout_mask"):
                cell.reset_dropout_mask()
                cell.reset_recurrent_dropout_mask()

    def _cast(self, tensor):
        return ops.cast(tensor, self.dtype)
