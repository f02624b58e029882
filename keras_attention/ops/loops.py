"""Loops over steps whose gradients are loops again, so that they have derivatives of any order.

`keras.layers.RNN` runs them. TensorFlow cannot differentiate the gradient of its own loop where XLA
compiles it for lengths that the graph leaves open, so second gradients are written here.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops, tree

from .shapes import sized_as
from .types import Tensor, accumulator_dtype, is_float
from .vjp import custom_gradient, is_in_graph, pullback, with_gradient


class _LoopCell:
    """A function of one step in the form in which `keras.layers.RNN` takes a cell."""

    def __init__(self, step: Callable):
        self.step = step
        self.state_size = self.output_size = 1

    def call(self, inputs: Tensor, states: Sequence[Tensor]) -> tuple:
        return self.step(inputs, states)

    __call__ = call


def run_loop(
    step: Callable, sequence: Tensor, states: Sequence[Tensor], given: Any = None
) -> tuple[list, list]:
    """Run `step(x, states, given) -> (outputs, states)`, lists of `(B, ...)`, over `(B, T, D)`.

    `given` nests all other tensors that the step reads and that a gradient has to reach.
    """
    if not is_in_graph(sequence):
        return _run_loop(step, sequence, states, given)
    leaves = flatten(given)
    moving = [index for index, leaf in enumerate(leaves) if is_float(leaf)]

    def one(floats: list, states: list, at: list) -> tuple:
        new = dict(zip(moving, floats, strict=True))
        read = packed(given, [new.get(index, leaf) for index, leaf in enumerate(leaves)])
        return step(at[0], states, read)

    floats = [leaves[index] for index in moving]
    outputs, after = scan(one, floats, list(states), [swap_time(sequence)])
    return [swap_time(output) for output in outputs], after


def _run_loop(step: Callable, sequence: Tensor, states: Sequence[Tensor], given: Any) -> tuple:
    # `keras.layers.RNN` itself would cast every state, masks too, to a float dtype.
    cell = _LoopCell(lambda x, states: step(x, states, given))
    loop = keras.layers.RNN(cell, return_sequences=True)
    _, outputs, states = loop.inner_loop(sequence, list(states), mask=None)
    return list(outputs), list(states)


def run_steps(
    step: Callable,
    count: Tensor,
    states: Any,
    reverse: bool = False,
    unroll: bool = False,
) -> tuple:
    """Run `step(index, states) -> (outputs, states)` for the indices 0 to `count - 1`.

    A step reads `sequence[index]` of each `(T, B, D)`: under XLA on a CPU that takes half the time
    of slices of one wide sequence. Use it within `with_loop_gradient`: the backend's gradient is
    slow. Outputs `(T, B, ...)` come in the order of the indices, with `reverse` too.
    """
    if unroll:
        results = []
        for index in reversed(range(count)) if reverse else range(count):
            outputs, states = step(index, states)
            results.append(outputs)
        results = results[::-1] if reverse else results
        return tree.map_structure(lambda *column: ops.stack(column), *results), states
    structure = {}

    def at_index(x: Tensor, flat: Sequence[Tensor], _: Any) -> tuple:
        outputs, after = step(x[0, 0], packed(states, list(flat)))
        structure["outputs"] = tree.map_structure(lambda _: 0, outputs)
        return flatten(outputs), flatten(after)

    indices = ops.arange(count, dtype="int32")
    # Not `go_backwards`: on JAX it takes a single output only.
    indices = ops.flip(indices, axis=0) if reverse else indices
    outputs, after = _run_loop(at_index, indices[None, :, None], flatten(states), None)
    # Keras' loop gives the batch first; when compiled, the two transpositions cancel out.
    outputs = [swap_time(output) for output in outputs]
    outputs = [ops.flip(output, axis=0) for output in outputs] if reverse else outputs
    outputs = packed(structure["outputs"], outputs)
    return outputs, packed(states, after)


def run_given(
    step: Callable,
    count: Tensor,
    states: Any,
    given: dict,
    sequences: Sequence[str],
    again: bool = False,
    unroll: bool = False,
) -> tuple:
    """Run `step(index, states, given)` as `run_steps` does.

    With `again` the result has derivatives of any order, in graphs of TensorFlow too. A step reads
    a tensor of the `sequences` in `given` at its own index alone.
    """
    if not again or not is_in_graph(flatten(given)[0]):
        return run_steps(
            lambda index, states: step(index, states, given), count, states, unroll=unroll
        )
    structure = {}
    fixed = {name: part for name, part in given.items() if name not in sequences}
    moving = {name: given[name] for name in sequences if name in given}

    def one(flat: list, states_at: list, at: list) -> tuple:
        index, *at = at
        parts = {name: _At(part) for name, part in zip(sorted(moving), at, strict=True)}
        outputs, after = step(index, packed(states, states_at), {**packed(fixed, flat), **parts})
        structure["outputs"] = tree.map_structure(lambda _: 0, outputs)
        return flatten(outputs), flatten(after)

    xs = [ops.arange(count, dtype="int32"), *flatten(moving)]
    outputs, after = scan(one, flatten(fixed), flatten(states), xs)
    return packed(structure["outputs"], outputs), packed(states, after)


class _At:
    """One step of a sequence, in the form of the whole sequence."""

    def __init__(self, part: Tensor) -> None:
        self.part = part

    def __getitem__(self, index: Tensor) -> Tensor:
        return self.part


def scan(
    step: Callable,
    given: Sequence[Tensor],
    states: Sequence[Tensor],
    xs: Sequence[Tensor],
    reverse: bool = False,
) -> tuple[list, list]:
    """Run `step(given, states, xs_t) -> (outputs, states)`, lists, in a graph of TensorFlow.

    `xs` are sequences `(T, ...)`, and so are the outputs. The gradient is a scan itself, which
    takes the vector-Jacobian product of one step after the other.
    """
    sizes = [len(given), len(states), len(xs)]
    counts = []

    def run(*tensors: Tensor) -> tuple:
        given, states, xs = _split(tensors, sizes)

        def one(index: Tensor, before: list) -> tuple:
            outputs, after = step(given, before, [x[index] for x in xs])
            counts.append(len(outputs))
            after = [sized_as(new, old) for new, old in zip(after, before, strict=True)]
            # Keras' loop swaps two axes of each output.
            return [ops.expand_dims(part, 0) for part in (*outputs, *before)], after

        found, last = run_steps(one, ops.shape(xs[0])[0], list(states), reverse)
        found = [ops.squeeze(part, 1) for part in found]
        outputs, befores = _split(found, [counts[0], len(states)])

        def gradient(tensors: Sequence[Tensor], *upstreams: Tensor) -> list:
            given, states, xs = _split(tensors, sizes)
            d_outputs, d_last = _split(upstreams, [counts[0], len(states)])
            return _scan_back(step, given, befores, xs, d_outputs, d_last, reverse)

        return [*outputs, *last], gradient

    found = custom_gradient(run, [*given, *states, *xs])
    return _split(found, [counts[0], len(states)])


def scan_sequences(step: Callable, states: list, sequences: Sequence[Tensor]) -> tuple[list, list]:
    """Run `step(states, at) -> (outputs, states)`, lists of tensors, over sequences `(N, ...)`.

    `at` lists the sequences at one index. Outputs `(N, ...)` have derivatives of any order.
    """
    if is_in_graph(sequences[0]):
        return scan(lambda _, states, at: step(states, at), [], states, sequences)
    if keras.backend.backend() == "jax":
        states, outputs = ops.scan(
            lambda states, at: step(states, at)[::-1], list(states), list(sequences)
        )
        return outputs, states

    def at_index(index: int, states: list) -> tuple:
        return step(states, [x[index] for x in sequences])

    return run_steps(at_index, sequences[0].shape[0], states, unroll=True)


def _scan_back(
    step: Callable,
    given: list,
    befores: list,
    xs: list,
    d_outputs: list,
    d_last: list,
    reverse: bool,
) -> list:
    """Return the gradients of given, states and sequences."""
    sizes = [len(given), len(befores), len(xs)]

    def one(given: list, carried: list, at: list) -> tuple:
        d_after, totals = _split(carried, [len(befores), len(given)])
        before, x, d_output = _split(at, [len(befores), len(xs), len(d_outputs)])

        def forward(*tensors: Tensor) -> list:
            outputs, after = step(*_split(tensors, sizes))
            return [*outputs, *after]

        _, back = pullback(forward, [*given, *before, *x])
        d_given, d_before, d_x = _split(back([*d_output, *d_after]), sizes)
        totals = [total + part for total, part in zip(totals, d_given, strict=True)]
        return [part for part, x in zip(d_x, xs, strict=True) if is_float(x)], [
            *d_before,
            *totals,
        ]

    zeros = [ops.zeros_like(tensor) for tensor in given]
    sequences = [*befores, *xs, *d_outputs]
    d_xs, last = scan(one, given, [*d_last, *zeros], sequences, not reverse)
    d_states, d_given = _split(last, [len(befores), len(given)])
    d_xs = [d_xs.pop(0) if is_float(x) else ops.zeros_like(x) for x in xs]
    return [*d_given, *d_states, *d_xs]


def with_loop_gradient(forward: Callable, backward: Callable, given: Any, plain: Callable) -> Any:
    """Return `forward(given)[0]`, nested tensors, with the gradient that `backward` gives.

    `forward(given)` returns the results and the `saved` of `backward(given, results, saved,
    upstream)`, which returns gradients nested as `given`, with `None` or nothing in place of zeros.
    `given` must hold every tensor that the two read, masks too. `plain(given)` returns the same
    results by operations that the backend can differentiate.
    """
    structure = {}

    def run(*tensors: Tensor) -> tuple:
        inside = packed(given, tensors)
        results, saved = forward(inside)
        structure["results"] = tree.map_structure(lambda _: 0, results)

        def gradient(upstream: list) -> tuple:
            found = backward(inside, results, saved, packed(results, upstream))
            return tuple(_completed(inside, found))

        return flatten(results), gradient

    def again(*tensors: Tensor) -> list:
        results = plain(packed(given, tensors))
        structure["results"] = tree.map_structure(lambda _: 0, results)
        return flatten(results)

    results = with_gradient(run, again)(*flatten(given))
    return packed(structure["results"], results)


def _completed(given: Any, gradients: Any) -> list:
    """List the gradients in the order of `flatten(given)`, with zeros for missing ones."""
    if isinstance(given, dict):
        found = gradients or {}
        return [g for name in sorted(given) for g in _completed(given[name], found.get(name))]
    if isinstance(given, (list, tuple)):
        found = gradients or [None] * len(given)
        return [g for one, other in zip(given, found, strict=True) for g in _completed(one, other)]
    return [ops.zeros_like(given) if gradients is None else ops.cast(gradients, given.dtype)]


def nested_vjp(function: Callable, inputs: Any, upstream: Any) -> Any:
    """Return the gradients of nested `inputs` from that of `function(inputs)`, nested as well."""
    leaves = flatten(inputs)
    if not leaves:
        return inputs
    results, vjp = pullback(lambda *tensors: flatten(function(packed(inputs, tensors))), leaves)
    pairs = zip(flatten(upstream), results, strict=True)
    return packed(inputs, vjp([ops.cast(part, result.dtype) for part, result in pairs]))


def as_floats(nested: Any) -> Any:
    """Return nested tensors with integers and Booleans as floating point numbers.

    Loops with a gradient of their own take floating point tensors alone.
    """

    def cast(part: Tensor) -> Tensor:
        return part if is_float(part) else ops.cast(part, accumulator_dtype())

    return tree.map_structure(cast, nested)


def dtypes_of(nested: Any) -> Any:
    """Return the dtypes of nested tensors."""
    return tree.map_structure(lambda part: keras.backend.standardize_dtype(part.dtype), nested)


def cast_to(nested: Any, dtypes: Any) -> Any:
    """Return nested tensors in these dtypes."""
    return tree.map_structure(ops.cast, nested, dtypes)


def where_real(real: Tensor, after: Any, before: Any) -> Any:
    """Return the states `(B, ...)` after a step, and those before it where it is masked.

    `real` `(B,)` is Boolean, or 1 and 0; `None` is no mask.
    """
    if real is None:
        return after
    real = ops.cast(real, "bool")

    def choose(after: Tensor, before: Tensor) -> Tensor:
        is_real = ops.expand_dims(real, tuple(range(1, len(after.shape))))
        return ops.where(is_real, after, before)

    return tree.map_structure(choose, after, before)


def functional(function: Callable, variables: Sequence[keras.Variable]) -> Callable:
    """Make the variables that a function reads an argument of it, and their new values a result.

    Returns `run(values, *args) -> (result, values)`.
    """

    def run(values: Sequence[Tensor], *args: Any) -> tuple:
        with keras.StatelessScope(list(zip(variables, values, strict=True))) as scope:
            result = function(*args)
        after = [scope.get_current_value(variable) for variable in variables]
        return result, [old if new is None else new for old, new in zip(values, after, strict=True)]

    return run


def float_weights(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Return the weights of a layer that have a gradient, or would have if they were trainable."""
    return [weight for weight in layer.weights if keras.backend.is_float_dtype(weight.dtype)]


def _split(tensors: Sequence[Tensor], sizes: Sequence[int]) -> tuple:
    """Cut a list to lists of these sizes."""
    tensors = list(tensors)
    return tuple([tensors.pop(0) for _ in range(size)] for size in sizes)


def flatten(structure: Any) -> list:
    """List the tensors of nested dictionaries and lists, in an order that no backend changes."""
    # `keras.tree` takes the keys of a dictionary as they come on PyTorch, and sorted elsewhere.
    if isinstance(structure, dict):
        return [leaf for name in sorted(structure) for leaf in flatten(structure[name])]
    if isinstance(structure, (list, tuple)):
        return [leaf for part in structure for leaf in flatten(part)]
    return [] if structure is None else [structure]


def packed(structure: Any, leaves: Sequence[Tensor]) -> Any:
    """Return leaves nested as a structure is, in the order of `flatten`."""
    left = iter(leaves)

    def fill(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: fill(part[name]) for name in sorted(part)}
        if isinstance(part, (list, tuple)):
            return [fill(one) for one in part]
        return None if part is None else next(left)

    return fill(structure)


def swap_time(sequence: Tensor) -> Tensor:
    """Return a sequence with batch and time exchanged."""
    return ops.transpose(sequence, (1, 0, *range(2, len(sequence.shape))))
