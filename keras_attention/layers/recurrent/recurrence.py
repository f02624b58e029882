"""Keras' recurrent cells as the loops see them: what the recurrent layers share.

`GRU` and `LSTM` hold the cells' equations; their gradients are derived from these (`Equations`).
`local_derivatives` gives the factors of a step, or of all steps at once. Backward, only `vjp` runs
in a loop, and takes the gradient one step back; after it, `sum_gradients` and `weight_gradients`
give the rest, all steps at once.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
from keras import ops, tree

from ...ops.vjp import pullback


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
class Equations:
    """A cell whose step is recurrent products, and functions that take each unit by itself.

    Everything has a name. A step goes through `results` in their order. Each is a function of what
    its parameters name: states before the step, sums, earlier results, and `read`, the first state
    after dropout. A product multiplies `read`, or a result, by the next columns of the recurrent
    kernel, and is added to sums, in which the input's products stand already. The result `new_h` is
    the state `h` after the step.

    As each function takes each unit by itself, its VJP with ones is its derivative at every unit,
    and one serves all steps. Tensors are `(..., U)`, of one step or of all.
    """

    units: int

    states: ClassVar[tuple[str, ...]] = ("h",)
    inputs: ClassVar[tuple[str, ...]] = ()
    """The sums to which the input's products belong."""

    @property
    def state_count(self) -> int:
        return len(self.states)

    @property
    def products(self) -> dict[str, tuple[str, ...]]:
        """Return for each left operand of a product the sums to which its blocks are added."""
        raise NotImplementedError

    @property
    def results(self) -> dict[str, Callable]:
        """Return the functions of a step, in their order."""
        raise NotImplementedError

    def step(self, inputs, states, weights, dropout=None, products=None):
        """Return the list of states after a step, all values by name, and the recurrent products.

        Where the products are known, they are not computed.
        """
        values = dict(zip(self.states, states, strict=True))
        values["read"] = states[0] if dropout is None else states[0] * dropout
        values |= zip(self.inputs, inputs, strict=True)
        made = {}
        for name in ("read", *self.results):
            if name in self.results:
                values[name] = self.results[name](*(values[read] for read in self._reads[name]))
            if name in self.products:
                columns = self._columns[name]
                if products is None:
                    made[name] = ops.matmul(values[name], weights["recurrent"][:, columns])
                    if "recurrent_bias" in weights:
                        made[name] = made[name] + weights["recurrent_bias"][columns]
                else:
                    made[name] = products[name]
                sums = self.products[name]
                for one, part in zip(sums, ops.split(made[name], len(sums), axis=-1), strict=True):
                    values[one] = values[one] + part if one in values else part
        return [values[f"new_{name}"] for name in self.states], values, made

    def local_derivatives(self, values, mask=None):
        """Return for each result of a step its derivatives by all that it reads.

        `mask` is 0 where a step keeps its states.
        """
        derivatives = {}
        for name, function in self.results.items():
            reads, before = self._reads[name], name.removeprefix("new_")
            if mask is not None and before != name:
                function = _or_kept(function, reads, before, mask)
                reads = [*dict.fromkeys([*reads, before])]
            result, vjp = pullback(function, [values[read] for read in reads])
            derivatives[name] = dict(zip(reads, vjp(ops.ones_like(result)), strict=True))
        return derivatives

    def vjp(self, d_states, local, kernel, dropout=None):
        """Take the gradients of the states a step back; `kernel` is the transposed recurrent one.

        Return the gradients of the step's results, from which the functions below make the others,
        those of the input's products, a list, and those of the states before the step.
        """
        gradients = {f"new_{n}": one for n, one in zip(self.states, d_states, strict=True)}
        for name in reversed(("read", *self.results)):
            if name in self.products:
                parts = [gradients[part] for part in self.products[name]]
                d_left = ops.matmul(ops.concatenate(parts, axis=-1), kernel[self._columns[name]])
                gradients[name] = gradients.get(name, 0) + d_left
            for read, derivative in local.get(name, {}).items():
                gradients[read] = gradients.get(read, 0) + gradients[name] * derivative
        read = gradients["read"] if dropout is None else gradients["read"] * dropout
        before = [gradients.get(name, 0) for name in self.states]
        before[0] = before[0] + read
        of_inputs = [gradients[name] for name in self.inputs]
        return {name: gradients[name] for name in self.results}, of_inputs, before

    def sum_gradients(self, gradients, local):
        """Return the gradients of the sums, a dictionary, from those of the results."""
        found = {}
        for name, derivatives in local.items():
            for read in derivatives.keys() & self._sums:
                found[read] = found.get(read, 0) + gradients[name] * derivatives[read]
        return found

    def weight_gradients(self, d_sums, lefts, weights):
        """Return the gradients of the weights, each one product over all steps."""
        blocks, biases = [], []
        for name, sums in self.products.items():
            parts = [d_sums[one] for one in sums]
            blocks.append(outer(lefts[name], ops.concatenate(parts, axis=-1)))
            biases += parts
        found = {"recurrent": ops.concatenate(blocks, axis=1)}
        if "recurrent_bias" in weights:
            found["recurrent_bias"] = total(biases)
        return found

    # A step in Python asks for these at every time step.

    @functools.cached_property
    def _reads(self) -> dict[str, list[str]]:
        """What each result is a function of."""
        return {
            name: list(inspect.signature(each).parameters) for name, each in self.results.items()
        }

    @property
    def _sums(self) -> set[str]:
        return {*self.inputs, *(one for sums in self.products.values() for one in sums)}

    @functools.cached_property
    def _columns(self) -> dict[str, slice]:
        """The columns of the recurrent kernel that belong to each product."""
        columns, first = {}, 0
        for name, sums in self.products.items():
            columns[name] = slice(first, first + len(sums) * self.units)
            first = columns[name].stop
        return columns


def _or_kept(function, reads, before, mask):
    """Return a function like `function` that gives the state `before` where `mask` is 0."""

    def or_kept(*tensors):
        kept = tensors[reads.index(before)] if before in reads else tensors[-1]
        return ops.where(mask > 0.5, function(*tensors[: len(reads)]), kept)

    return or_kept


@dataclass(frozen=True)
class GRU(Equations):
    """`keras.layers.GRUCell`, with `p` the products of the input and `R` the recurrent kernel.

    `u, f = σ(p_uf + (h R)_uf)`, `c = tanh(p_c + f (h R)_c)`, or with `reset_after=False`
    `c = tanh(p_c + ((f h) R)_c)`; `h' = k h + (1 - k) c`, where `k` is `u`, or `1 - u` unless
    `update_keeps`.
    """

    reset_after: bool = True
    update_keeps: bool = True

    inputs = ("u", "f", "c")

    @property
    def products(self):
        return (
            {"read": ("u", "f", "r")} if self.reset_after else {"read": ("u", "f"), "met": ("c",)}
        )

    @functools.cached_property
    def results(self):
        def after(u, candidate, h):
            keep = ops.sigmoid(u)
            if self.update_keeps:
                return candidate + keep * (h - candidate)
            return h + keep * (candidate - h)

        if self.reset_after:
            return {"new_h": lambda u, f, c, r, h: after(u, ops.tanh(c + ops.sigmoid(f) * r), h)}
        return {
            "met": lambda f, read: ops.sigmoid(f) * read,
            "new_h": lambda u, c, h: after(u, ops.tanh(c), h),
        }


@dataclass(frozen=True)
class LSTM(Equations):
    """`i, f, g, o = σ, σ, tanh, σ (p + h R)`, `c' = f c + i g`, `h' = o tanh(c')`."""

    states = ("h", "c")
    inputs = ("i", "f", "g", "o")
    products: ClassVar = {"read": ("i", "f", "g", "o")}

    @functools.cached_property
    def results(self):
        return {
            "new_c": lambda i, f, g, c: ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g),
            "new_h": lambda o, new_c: ops.sigmoid(o) * ops.tanh(new_c),
        }


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

    def draw_dropout(self, batch_size, input_size: int) -> list[dict[str, Any]]:
        """Draw dropout's masks before the loop, which is stateless.

        Return those of each cell, `"inputs"` and `"states"`, where it has any.
        """
        self.forget_dropout()  # Keras' simple cell draws and keeps masks in inference too
        size, masks = input_size, []
        for cell in self.cells:
            state_size, own = tree.flatten(cell.state_size)[0], {}
            # A cell of another kind may drop by itself, and call that `dropout` too.
            is_keras = hasattr(cell, "get_dropout_mask")
            if is_keras and cell.dropout:
                ones = ops.ones((batch_size, size), cell.compute_dtype)
                own["inputs"] = cell.get_dropout_mask(ones)
            if is_keras and cell.recurrent_dropout:
                ones = ops.ones((batch_size, state_size), cell.compute_dtype)
                own["states"] = cell.get_recurrent_dropout_mask(ones)
            masks.append(own)
            size = getattr(cell, "output_size", None) or state_size
        return masks

    @contextlib.contextmanager
    def with_dropout(self, masks: list[dict[str, Any]]) -> Iterator[None]:
        """Let the cells take these masks, where a gradient runs a step again after the loop."""
        getters = {"inputs": "get_dropout_mask", "states": "get_recurrent_dropout_mask"}
        changed = [
            (vars(cell), getters[name], mask)
            for cell, own in zip(self.cells, masks, strict=True)
            for name, mask in own.items()
        ]
        for attributes, getter, mask in changed:
            attributes[getter] = lambda _, mask=mask: mask
        try:
            yield
        finally:
            for attributes, getter, _ in changed:
                del attributes[getter]

    def forget_dropout(self):
        """Drop the masks that were drawn."""
        for cell in self.cells:
            if hasattr(cell, "reset_dropout_mask"):
                cell.reset_dropout_mask()
                cell.reset_recurrent_dropout_mask()

    def _cast(self, tensor):
        return ops.cast(tensor, self.dtype)
