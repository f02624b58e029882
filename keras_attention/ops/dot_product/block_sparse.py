"""Softmax attention with a `score_mod` or `mask_mod`, in square blocks of pairs.

A block that the mask hides entirely costs its mask alone. For each query the blocks update the
maximum `m` of its scores so far, the sum `l` of `exp(score - m)`, and the values `c` weighted so:

    m' = max(m, scores)
    l' = l exp(m - m') + sum exp(scores - m')
    c' = c exp(m - m') + exp(scores - m') v

In the end the context is `c / l`. With a sink of logit `z` (`softmax1`) they begin as `m = z`,
`l = 1`. The backward pass computes the weights of each block again from
`m + log l`, independently of the other blocks.

Source: Dao et al. 2022, "FlashAttention", algorithms 1 and 4; hidden blocks are skipped as in Dong
et al. 2024, "Flex attention".
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from keras import ops

from ..shapes import joined
from ..types import Tensor, accumulator_dtype, at_least_float32
from ..vjp import pullback
from .blocks import (
    HIDDEN,
    BlockPlan,
    WeightOptions,
    block_scores,
    cast_as,
    dropout_factor,
    scaled,
    split_sink,
)
from .mask_spec import MaskSpec, Range, after
from .products import dot_products, sum_over_queries, weighted_sum

# Positions on the side of a block: an eighth of the longer sequence, within these limits.
MIN_POSITIONS = 256
MAX_POSITIONS = 1024


class SquareBlock(NamedTuple):
    """The pairs of some neighbouring queries and some neighbouring keys."""

    rows: Range
    keys: Range
    column: int  # the index of the keys' range
    number: int
    mask: Tensor  # boolean, True = attend; `None` for all pairs

    def update(self, function: Callable, state: tuple, skip: bool = True) -> tuple:
        """Return `function(*state)`, or the state as it is where the mask hides all pairs."""
        if self.mask is None or not skip:
            return function(*state)
        return ops.cond(ops.any(self.mask), lambda: function(*state), lambda: state)


def forward(
    tensors: Sequence[Tensor], options: WeightOptions, plan: BlockPlan, skip: bool = True
) -> tuple[Tensor, tuple]:
    """Return the context; save it in full precision, with each query's `m + log l`.

    With `skip` hidden blocks are skipped.
    """
    query, key, value, *rest = tensors
    contexts: list[Tensor] = []
    logs: list[Tensor] = []
    for rows, blocks in _rows_of_blocks(query, key, options.spec):
        queries = after(rows.cut(query, 2), contexts[-1] if contexts else None)
        shape = (*ops.shape(queries)[:3], 1 + value.shape[3])
        zeros = ops.zeros(shape, accumulator_dtype(query.dtype))
        state = (*_first(zeros[..., :1], rest, options), zeros[..., 1:])
        for block in blocks:
            given = (queries, block.keys.cut(key, 2), block.keys.cut(value, 2), rest)
            read = functools.partial(_read, options, block, given)
            state = block.update(read, state, skip)
        maximum, total, context = state
        seen = maximum > HIDDEN / 2
        total = ops.where(seen, total, 1.0)
        contexts.append(ops.where(seen, context / total, 0.0))
        logs.append(ops.where(seen, maximum + ops.log(total), 0.0))
    context = joined(contexts, 2)
    return ops.cast(context, query.dtype), (context, joined(logs, 2))


def _first(zeros: Tensor, rest: Sequence[Tensor], options: WeightOptions) -> tuple:
    """Return the maximum and the sum of some queries before the first block."""
    if options.normalizer == "softmax":
        # Above the score of hidden keys, whose weight then is 0 from the start.
        return zeros + HIDDEN / 2, zeros
    sink, _ = split_sink(rest, options)
    sink = zeros if sink is None else zeros + ops.cast(sink, zeros.dtype)
    maximum = ops.stop_gradient(sink)
    return maximum, ops.exp(sink - maximum)


def _read(
    options: WeightOptions,
    block: SquareBlock,
    given: tuple,
    maximum: Tensor,
    total: Tensor,
    context: Tensor,
) -> tuple:
    """Return the state of some queries after a block of keys."""
    query, key, value, rest = given
    scores, _ = _scores_and_vjp(after(query, context), key, rest, options, block)
    # The context does not depend on the maximum, so that it needs no gradient.
    new = ops.maximum(maximum, ops.stop_gradient(ops.max(scores, axis=-1, keepdims=True)))
    weights = ops.exp(scores - new)
    decay = ops.exp(maximum - new)
    kept = scaled(weights, dropout_factor(weights, options, block.number), value.dtype)
    return (
        new,
        total * decay + ops.sum(weights, axis=-1, keepdims=True),
        context * decay + at_least_float32(weighted_sum(kept, value)),
    )


def backward(
    tensors: Sequence[Tensor],
    options: WeightOptions,
    plan: BlockPlan,
    context: Tensor,
    saved: tuple,
    d_context: Tensor,
) -> tuple:
    """Return the gradients of all tensors."""
    query, key, value, *rest = tensors
    context, logs = saved
    inner = ops.sum(at_least_float32(d_context) * context, axis=-1, keepdims=True)
    sink, mods = split_sink(rest, options)
    d_sinks = [] if sink is None else [-ops.sum(ops.exp(sink - logs) * inner, axis=(0, 2))]
    d_memory = [
        tuple(at_least_float32(ops.zeros_like(keys.cut(each, 2))) for each in (key, value))
        for keys in _ranges(query, key)[1]
    ]
    d_rest = [at_least_float32(ops.zeros_like(tensor)) for tensor in mods]
    d_queries: list[Tensor] = []
    for rows, blocks in _rows_of_blocks(query, key, options.spec):
        queries = after(rows.cut(query, 2), d_queries[-1] if d_queries else None)
        of_rows = (queries, *(rows.cut(tensor, 2) for tensor in (d_context, inner, logs)))
        d_query = at_least_float32(ops.zeros_like(queries))
        for block in blocks:
            given = (*of_rows, block.keys.cut(key, 2), block.keys.cut(value, 2), rest)
            add = functools.partial(_add_gradients, options, block, given)
            state = (d_query, *d_memory[block.column], *d_rest)
            d_query, d_key, d_value, *d_rest = block.update(add, state)
            d_memory[block.column] = d_key, d_value
        d_queries.append(d_query)
    d_key, d_value = (joined(parts, 2) for parts in zip(*d_memory, strict=True))
    return cast_as((joined(d_queries, 2), d_key, d_value, *d_sinks, *d_rest), tensors)


def _add_gradients(
    options: WeightOptions, block: SquareBlock, given: tuple, *totals: Tensor
) -> tuple:
    """Add a block's gradients of its queries, its keys, its values and the rest."""
    *of_rows, key, value, rest = given
    query, d_context, inner, logs = (after(each, totals[0]) for each in of_rows)
    scores, scores_vjp = _scores_and_vjp(query, key, rest, options, block)
    weights = ops.exp(scores - logs)
    factor = dropout_factor(weights, options, block.number)
    d_weights = scaled(at_least_float32(dot_products(d_context, value)), factor)
    d_products, *d_rest = scores_vjp(weights * (d_weights - inner))
    d_products = ops.cast(d_products, query.dtype)
    parts = (
        weighted_sum(d_products, key),
        sum_over_queries(d_products, query, key.shape[1]),
        sum_over_queries(scaled(weights, factor, value.dtype), d_context, key.shape[1]),
        *d_rest,
    )
    return tuple(total + at_least_float32(part) for total, part in zip(totals, parts, strict=True))


def differentiable(tensors: Sequence[Tensor], options: WeightOptions, plan: BlockPlan) -> Tensor:
    """Return the context by operations that the backend can differentiate, without branches."""
    return forward(tensors, options, plan, skip=False)[0]


def _scores_and_vjp(
    query: Tensor, key: Tensor, rest: Sequence[Tensor], options: WeightOptions, block: SquareBlock
) -> tuple:
    """Return the scores of a block, and the VJP from them to the products and the rest."""
    products = at_least_float32(dot_products(query, key))
    _, rest = split_sink(rest, options)

    def scored(products: Tensor, *rest: Tensor) -> Tensor:
        return block_scores(products, rest, options, block.rows, [block.keys])

    scores, vjp = products, lambda d_scores: (d_scores,)
    if options.score_mod is not None:
        scores, vjp = pullback(scored, (products, *rest))
    return scores if block.mask is None else ops.where(block.mask, scores, HIDDEN), vjp


def _ranges(query: Tensor, key: Tensor) -> tuple[list[Range], list[Range]]:
    """Return the ranges of the queries and of the keys."""
    lengths = query.shape[2], key.shape[2]
    size = min(max(MIN_POSITIONS, -(-max(lengths) // 8)), MAX_POSITIONS)
    rows, columns = (
        [Range(start, min(size, length - start)) for start in range(0, length, size)]
        for length in lengths
    )
    return rows, columns


def _rows_of_blocks(
    query: Tensor, key: Tensor, spec: MaskSpec
) -> Iterator[tuple[Range, list[SquareBlock]]]:
    """Yield each range of queries with its blocks, without those that causality hides."""
    row_ranges, key_ranges = _ranges(query, key)
    for row, rows in enumerate(row_ranges):
        blocks = []
        for column, keys in enumerate(key_ranges):
            if spec.causal and keys.start >= rows.stop:
                break
            # Keys that precede all of these queries need no causal mask.
            precede = spec.window is None and keys.stop <= rows.start + 1
            mask = (spec.without_causality() if precede else spec).mask(rows, [keys])
            blocks.append(SquareBlock(rows, keys, column, row * len(key_ranges) + column, mask))
        yield rows, blocks
