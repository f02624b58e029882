"""Attention in parts over sequences whose lengths are known only when the graph runs.

The parts are the turns of a loop, which is one small graph to trace. XLA wants one size for all
turns: the last part begins early enough to be full, and every part reads the whole memory.
"""

from collections.abc import Callable
from dataclasses import replace

from keras import ops

from ..axes import size_of
from ..masks import sized_as
from ..types import Tensor, accumulator_dtype, at_least_float32
from ..vjp import with_gradient
from .blocks import Inputs, Rule, dropout_factor, slope_of
from .reach import Part, Piece, Span, least

# Numbers in the scores of one turn, where that leaves it this many queries at least.
BLOCK_NUMBERS = 2_000_000
LEAST_QUERIES = 16


def attend_in_turns(tensors: tuple, rule: Rule) -> Tensor:
    """Return the context; the arguments are those of `blocked_attention`, without a plan."""

    def attend(*tensors: Tensor) -> tuple:
        inputs = Inputs.of(tensors, rule)
        context = _forward(inputs)
        return context, lambda upstream: _backward(inputs, context, upstream)

    return with_gradient(attend, lambda *tensors: _at_once(Inputs.of(tensors, rule)))(*tensors)


def _at_once(inputs: Inputs) -> Tensor:
    """Return the context of all queries at once, by operations with derivatives."""
    steps, length = (size_of(tensor, 2) for tensor in (inputs.query, inputs.key))
    part = _part(inputs, Span(0, steps, is_all=True), steps, length)
    weights = replace(inputs, rule=replace(inputs.rule, dropout=0.0)).weights(part, 0)
    if inputs.rule.dropout:
        weights = replace(weights, factor=ops.stop_gradient(_dropout_factor(inputs)))
    return inputs.context(part, weights)


def _dropout_factor(inputs: Inputs) -> Tensor:
    """Return what dropout multiplies all weights with, each turn's own."""
    batch_size, heads, steps, _ = ops.shape(inputs.query)
    length = ops.shape(inputs.key)[2]
    dtype = accumulator_dtype(inputs.query.dtype)

    def draw(turn: Tensor, part: Part, is_new: Tensor, factor: Tensor) -> tuple:
        shape = (batch_size, heads, part.rows.size, length)
        rows = dropout_factor(ops.zeros(shape, dtype), inputs.rule, turn)
        is_first = part.rows.cut(is_new, 0) > 0
        rows = ops.where(is_first, rows, part.rows.cut(factor, 2))
        return (ops.slice_update(factor, (0, 0, part.rows.start, 0), rows),)

    return _turns(inputs, draw, ops.zeros((batch_size, heads, steps, length), dtype))[0]


def _forward(inputs: Inputs) -> Tensor:
    def attend(turn: Tensor, part: Part, is_new: Tensor, context: Tensor) -> tuple:
        rows, _ = inputs.attend(part, turn)
        # A row of two turns keeps the first: the gradient knows that turn's dropout alone.
        is_first = part.rows.cut(is_new, 0) > 0
        rows = ops.where(is_first, ops.cast(rows, context.dtype), part.rows.cut(context, 2))
        return (ops.slice_update(context, (0, 0, part.rows.start, 0), rows),)

    shape = (*ops.shape(inputs.query)[:3], inputs.value.shape[3])
    return _turns(inputs, attend, ops.zeros(shape, inputs.query.dtype))[0]


def _backward(inputs: Inputs, context: Tensor, upstream: Tensor) -> tuple:
    slope = slope_of(context, upstream)

    def add(turn: Tensor, part: Part, is_new: Tensor, of_query: Tensor, *totals: Tensor) -> tuple:
        # Zero the gradient of rows that an overlapping turn already handled.
        given = upstream * ops.cast(is_new, upstream.dtype)
        of_context = None if slope is None else slope * is_new
        weights = inputs.weights(part, turn)
        rows, sums = inputs.add_part(part, weights, of_context, given, list(totals))
        return part.rows.add(of_query, rows, 2), *sums

    totals = [at_least_float32(ops.zeros_like(tensor)) for tensor in inputs.of_memory]
    gradients = _turns(inputs, add, ops.zeros_like(inputs.query), *totals)
    pairs = zip(gradients, (inputs.query, *inputs.of_memory), strict=True)
    return tuple(ops.cast(gradient, tensor.dtype) for gradient, tensor in pairs)


def _turns(inputs: Inputs, attend: Callable, *state: Tensor) -> tuple:
    """Run `attend(turn, part, is_new, *state)` for each part; `is_new` is 1 for new queries."""
    batch_size, heads, steps, _ = ops.shape(inputs.query)
    length = ops.shape(inputs.key)[2]
    size = BLOCK_NUMBERS // ops.maximum(batch_size * heads * length, 1)
    size = ops.minimum(ops.maximum(size, LEAST_QUERIES), steps)

    def turn(index: Tensor, *state: Tensor) -> tuple:
        rows = Span(least(index * size, steps - size), size)
        part = _part(inputs, rows, steps, length)
        dtype = accumulator_dtype(inputs.query.dtype)
        is_new = ops.cast(ops.arange(steps, dtype="int32") >= index * size, dtype)
        after = attend(index, part, ops.expand_dims(is_new, 1), *state)
        return index + 1, *map(sized_as, after, state)

    return ops.while_loop(lambda index, *_: index * size < steps, turn, (0, *state))[1:]


def _part(inputs: Inputs, rows: Span, steps: Tensor, length: Tensor) -> Part:
    """Return the part of some queries, which read the whole memory."""
    pieces = (Piece(Span(0, length, is_all=True), inputs.rule.reach),)
    return Part(rows, pieces, 1 - steps, apart=True)
