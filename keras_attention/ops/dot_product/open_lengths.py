"""Attention in parts over sequences whose lengths are known only when the graph runs.

The parts are the turns of a loop then, one small graph: written out one by one they would take the
longer to trace the more there are, for each attention of a model. XLA wants one size for all
turns, so the last part begins early enough to be full, and every part reads the whole memory.
"""

from collections.abc import Callable

from keras import ops

from ..masks import sized_as
from ..types import Tensor
from ..vjp import with_gradient
from .blocks import Rule, add_part, attend_part, slope_of, weights_of
from .reach import Part, Piece, Span, least

# Numbers in the scores of one turn, where that leaves it this many queries at least.
BLOCK_NUMBERS = 2_000_000
LEAST_QUERIES = 16


def attend_in_turns(tensors: tuple, rule: Rule) -> Tensor:
    """Return the context; the arguments are those of `blocked_attention`, without a plan."""

    @with_gradient
    def attend(*tensors: Tensor) -> tuple:
        context = _forward(tensors, rule)
        return context, lambda upstream: _backward(tensors, context, upstream, rule)

    return attend(*tensors)


def _forward(tensors: tuple, rule: Rule) -> Tensor:
    query, value = tensors[0], tensors[2]

    def attend(turn: Tensor, part: Part, _: Tensor, context: Tensor) -> tuple:
        rows, _ = attend_part(part, tensors, rule, turn)
        start = (0, 0, part.rows.start, 0)
        return (ops.slice_update(context, start, ops.cast(rows, context.dtype)),)

    context = ops.zeros((*ops.shape(query)[:3], value.shape[3]), query.dtype)
    return _turns(tensors, rule, attend, context)[0]


def _backward(tensors: tuple, context: Tensor, upstream: Tensor, rule: Rule) -> tuple:
    slope = slope_of(context, upstream)

    def attend(
        turn: Tensor, part: Part, is_new: Tensor, of_query: Tensor, *totals: Tensor
    ) -> tuple:
        # Zero the gradient of rows that an overlapping turn already handled.
        given = upstream * ops.cast(is_new, upstream.dtype)
        of_context = None if slope is None else slope * is_new
        weights = weights_of(part, tensors, rule, turn)
        rows, sums = add_part(part, weights, tensors, of_context, given, list(totals), rule)
        return part.rows.add(of_query, rows, 2), *sums

    totals = [ops.zeros_like(tensor, dtype="float32") for tensor in tensors[1:]]
    gradients = _turns(tensors, rule, attend, ops.zeros_like(tensors[0]), *totals)
    return tuple(ops.cast(g, t.dtype) for g, t in zip(gradients, tensors, strict=True))


def _turns(tensors: tuple, rule: Rule, attend: Callable, *state: Tensor) -> tuple:
    """Run `attend(turn, part, is_new, *state)` for each part; `is_new` is 1 for new queries."""
    batch_size, heads, steps, _ = ops.shape(tensors[0])
    length = ops.shape(tensors[1])[2]
    size = BLOCK_NUMBERS // ops.maximum(batch_size * heads * length, 1)
    size = ops.minimum(ops.maximum(size, LEAST_QUERIES), steps)
    pieces = (Piece(Span(0, length, is_all=True), rule.reach),)

    def turn(index: Tensor, *state: Tensor) -> tuple:
        rows = Span(least(index * size, steps - size), size)
        part = Part(rows, pieces, 1 - steps, apart=True)
        is_new = ops.cast(ops.arange(steps, dtype="int32") >= index * size, "float32")
        after = attend(index, part, ops.expand_dims(is_new, 1), *state)
        return index + 1, *map(sized_as, after, state)

    return ops.while_loop(lambda index, *_: index * size < steps, turn, (0, *state))[1:]
