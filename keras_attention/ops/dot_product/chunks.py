"""Attention in chunks of queries, where only the graph knows the lengths.

The chunks are the iterations of a loop, which is one small graph to trace. XLA requires chunks of
one size: the last chunk begins early enough to be full. Each chunk reads all keys.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from keras import ops

from ..shapes import minimum, size_of, sized_as
from ..types import Tensor, accumulator_dtype, at_least_float32
from .blocks import (
    WeightOptions,
    added,
    block_context,
    block_gradients,
    block_weights,
    cast_as,
    dropout_factor,
    inner_products,
)
from .mask_spec import Range

# Numbers in the scores of a chunk, unless it then has fewer queries than this.
CHUNK_NUMBERS = 2_000_000
MIN_QUERIES = 16


def forward(tensors: Sequence[Tensor], options: WeightOptions, plan: None = None) -> tuple:
    """Return the context; nothing is saved."""
    query, key, value, *rest = tensors
    keys = [Range.of_axis(key, 2)]

    def attend(index: Tensor, rows: Range, is_new: Tensor, context: Tensor) -> tuple:
        weights = block_weights(rows.cut(query, 2), key, rest, options, rows, keys, index)
        part = ops.cast(block_context(weights, value), context.dtype)
        # A query of two chunks keeps the first result: its gradient has that chunk's dropout.
        part = ops.where(rows.cut(is_new, 0) > 0, part, rows.cut(context, 2))
        return (ops.slice_update(context, (0, 0, rows.start, 0), part),)

    shape = (*ops.shape(query)[:3], value.shape[3])
    return _over_chunks(query, key, attend, ops.zeros(shape, query.dtype))[0], None


def backward(
    tensors: Sequence[Tensor],
    options: WeightOptions,
    plan: None,
    context: Tensor,
    saved: None,
    d_context: Tensor,
) -> tuple:
    """Return the gradients of all tensors."""
    query, key, value, *rest = tensors
    keys = [Range.of_axis(key, 2)]
    inner = inner_products(context, d_context)

    def add(index: Tensor, rows: Range, is_new: Tensor, d_query: Tensor, *totals: Tensor) -> tuple:
        given = (rows.cut(query, 2), key, rest, options, rows, keys)
        # Queries that an earlier chunk has handled add nothing.
        is_new = rows.cut(is_new, 0)
        d_block = rows.cut(d_context, 2) * ops.cast(is_new, d_context.dtype)
        inner_block = None if inner is None else rows.cut(inner, 2) * is_new
        weights = block_weights(*given, index)
        part, *parts = block_gradients(weights, d_block, inner_block, value, *given)
        return rows.add(d_query, part, 2), *added(totals, parts, keys)

    totals = [at_least_float32(ops.zeros_like(tensor)) for tensor in tensors[1:]]
    return cast_as(_over_chunks(query, key, add, ops.zeros_like(query), *totals), tensors)


def differentiable(tensors: Sequence[Tensor], options: WeightOptions, plan: None = None) -> Tensor:
    """Return the context of all queries at once, by operations with derivatives."""
    query, key, value, *rest = tensors
    rows, keys = Range.of_axis(query, 2), [Range.of_axis(key, 2)]
    without_dropout = replace(options, dropout=0.0)
    weights = block_weights(query, key, rest, without_dropout, rows, keys, 0)
    if options.dropout:
        factor = ops.stop_gradient(_dropout_factor(query, key, options))
        weights = weights._replace(factor=factor)
    return block_context(weights, value)


def _dropout_factor(query: Tensor, key: Tensor, options: WeightOptions) -> Tensor:
    """Return the factors of dropout of all weights, each drawn in its chunk."""
    batch_size, heads, steps, _ = ops.shape(query)
    length = ops.shape(key)[2]
    dtype = accumulator_dtype(query.dtype)

    def draw(index: Tensor, rows: Range, is_new: Tensor, factor: Tensor) -> tuple:
        zeros = ops.zeros((batch_size, heads, rows.size, length), dtype)
        part = dropout_factor(zeros, options, index)
        part = ops.where(rows.cut(is_new, 0) > 0, part, rows.cut(factor, 2))
        return (ops.slice_update(factor, (0, 0, rows.start, 0), part),)

    return _over_chunks(query, key, draw, ops.zeros((batch_size, heads, steps, length), dtype))[0]


def _over_chunks(query: Tensor, key: Tensor, step: Callable, *state: Tensor) -> tuple:
    """Run `step(index, rows, is_new, *state)` for each chunk; `is_new (T, 1)` is 1 for new rows."""
    batch_size, heads, steps, _ = ops.shape(query)
    length = size_of(key, 2)
    size = CHUNK_NUMBERS // ops.maximum(batch_size * heads * length, 1)
    size = ops.minimum(ops.maximum(size, MIN_QUERIES), steps)

    def chunk(index: Tensor, *state: Tensor) -> tuple:
        rows = Range(minimum(index * size, steps - size), size)
        is_new = ops.arange(steps, dtype="int32") >= index * size
        is_new = ops.expand_dims(ops.cast(is_new, accumulator_dtype(query.dtype)), 1)
        return index + 1, *map(sized_as, step(index, rows, is_new, *state), state)

    return ops.while_loop(lambda index, *_: index * size < steps, chunk, (0, *state))[1:]
