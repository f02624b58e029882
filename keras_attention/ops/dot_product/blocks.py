"""Attention in blocks of queries, with a gradient of its own.

Automatic differentiation keeps the weights of all pairs: over 1 GB for 8 heads of 4,096 steps. Here
only short sequences keep their weights. Long ones process some heads and some hundred queries at a
time, and compute the weights again in the backward pass. A block of queries skips the keys that a
causal mask or a window hides from all of them.

`block_weights`, `block_context` and `block_gradients` compute one block.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import keras
from keras import ops

from ..bound_functions import BoundFunction
from ..dropout import dropout_factors
from ..normalizers import GRADIENTS, NORMALIZERS, sink_gradient, softmax1
from ..shapes import joined
from ..types import Tensor, at_least_float32
from ..vjp import pullback
from .mask_spec import MaskSpec, Range, Ranges, add_ranges, after, cut_ranges
from .products import by_pairs, dot_products, sum_over_queries, weighted_sum

# Pairs up to which weights are kept: as much memory as a Transformer block's other tensors take.
KEPT_PAIRS = 1024 * 1024
# Queries in a block: small blocks skip more of a causal mask, but each costs its operations.
KEPT_QUERIES = 128
MIN_QUERIES = 256
MAX_QUERIES = 1024
# Numbers in the scores of one block, where weights are not kept: 8 MB in float32.
BLOCK_NUMBERS = 2_000_000
# Added to the score of a hidden key. Finite, so that a row without keys has no NaN.
HIDDEN = -1e30


@dataclass(frozen=True)
class WeightOptions:
    """How scores become weights."""

    spec: MaskSpec
    normalizer: str = "softmax"
    dropout: float = 0.0
    seed: Tensor = None
    score_mod: BoundFunction | None = None
    zero_distance: Tensor = None  # the index of distance 0 in the biases, `None` without biases
    has_sink: bool = False  # whether the weights are `softmax1` with logits of sinks


class BlockPlan(NamedTuple):
    """The number of blocks of queries and of groups of heads, and whether weights are kept."""

    blocks: int
    groups: int
    keep: bool


class BlockWeights(NamedTuple):
    """The weights of a block before dropout, and the factors of dropout, or `None`.

    `seen` is False for queries that may attend to no key, `(B, H, rows, 1)`, or `None`.
    """

    before: Tensor
    factor: Tensor
    seen: Tensor


def plan_for(query_shape: tuple, key_shape: tuple, spec: MaskSpec) -> BlockPlan | None:
    """Choose a plan; `None` where only the graph knows the lengths."""
    batch_size, heads, steps, _ = query_shape
    length = key_shape[2]
    if steps is None or length is None:
        return None
    keep = steps * length <= KEPT_PAIRS
    size = KEPT_QUERIES if keep else min(max(MIN_QUERIES, steps // 8), MAX_QUERIES)
    if keep and not spec.causal and spec.window is None:
        size = steps
    blocks = max(math.ceil(steps / max(size, 1)), 1)
    if keep:
        return BlockPlan(blocks, 1, True)
    numbers = (batch_size or 1) * heads * min(size, steps) * length
    groups = [g for g in range(1, key_shape[1] + 1) if key_shape[1] % g == 0]
    small = [g for g in groups if numbers / g <= BLOCK_NUMBERS]
    return BlockPlan(blocks, small[0] if small else groups[-1], False)


# One attention: `tensors` are query, key, value, the logits `(H, 1)` of sinks if any, biases by
# distance if any, and those of a `score_mod`.


def forward(tensors: Sequence[Tensor], options: WeightOptions, plan: BlockPlan) -> tuple:
    """Return the context, and the weights of each block if the plan keeps them."""
    if plan.groups > 1:
        return _forward_by_groups(tensors, options, plan), None
    query, key, value, *rest = tensors
    contexts: list[Tensor] = []
    saved = []
    for index, (rows, keys) in enumerate(_query_blocks(query, key, options.spec, plan)):
        done = contexts[-1] if contexts and not plan.keep else None
        block = after(rows.cut(query, 2), done)
        weights = block_weights(block, cut_ranges(key, keys, 2), rest, options, rows, keys, index)
        contexts.append(block_context(weights, cut_ranges(value, keys, 2)))
        saved.append(weights)
    return joined(contexts, 2), saved if plan.keep else None


def backward(
    tensors: Sequence[Tensor],
    options: WeightOptions,
    plan: BlockPlan,
    context: Tensor,
    saved: Sequence[BlockWeights] | None,
    d_context: Tensor,
) -> tuple:
    """Return the gradients of all tensors."""
    if plan.groups > 1:
        return _backward_by_groups(tensors, options, plan, context, d_context)
    query, key, value, *rest = tensors
    inner = inner_products(context, d_context)
    totals = [at_least_float32(ops.zeros_like(tensor)) for tensor in (key, value, *rest)]
    d_queries: list[Tensor] = []
    for index, (rows, keys) in enumerate(_query_blocks(query, key, options.spec, plan)):
        done = d_queries[-1] if d_queries and not plan.keep else None
        block, d_block, inner_block = (
            None if tensor is None else after(rows.cut(tensor, 2), done)
            for tensor in (query, d_context, inner)
        )
        given = (block, cut_ranges(key, keys, 2), rest, options, rows, keys)
        weights = saved[index] if saved else block_weights(*given, index)
        values = cut_ranges(value, keys, 2)
        d_query, *parts = block_gradients(weights, d_block, inner_block, values, *given)
        d_queries.append(d_query)
        totals = added(totals, parts, keys)
    return joined(d_queries, 2), *cast_as(totals, tensors[1:])


def differentiable(tensors: Sequence[Tensor], options: WeightOptions, plan: BlockPlan) -> Tensor:
    """Return the context by operations that the backend can differentiate."""
    contexts = []
    for group in range(plan.groups):
        _, _, own, own_options = _group(tensors, options, plan, group)
        contexts.append(forward(own, own_options, plan._replace(groups=1, keep=True))[0])
    return joined(contexts, 1)


def _query_blocks(
    query: Tensor, key: Tensor, spec: MaskSpec, plan: BlockPlan
) -> list[tuple[Range, Ranges]]:
    """Return the queries of each block, and the keys that they read."""
    steps, length = query.shape[2], key.shape[2]
    size = max(math.ceil(steps / plan.blocks), 1)
    starts = [min(index * size, steps) for index in range(plan.blocks)]
    blocks = [Range(start, min(size, steps - start)) for start in starts]
    return [(rows, spec.key_ranges(rows, length)) for rows in blocks]


# One block: the query is a block of queries, key and value are the keys that it reads.


def block_weights(
    query: Tensor,
    key: Tensor,
    rest: Sequence[Tensor],
    options: WeightOptions,
    rows: Range,
    keys: Ranges,
    index: Tensor,
) -> BlockWeights:
    """Return the weights `A(q . k + b)`, where `A` is the normalizer."""
    sink, rest = split_sink(rest, options)
    mask = options.spec.mask(rows, keys)
    products = at_least_float32(dot_products(query, key))
    scores = block_scores(products, rest, options, rows, keys, mask)
    weights = (
        NORMALIZERS[options.normalizer](scores) if sink is None else softmax1(scores, sink=sink)
    )
    hides = mask is not None and (options.spec.has_masks or options.spec.window is not None)
    seen = ops.any(mask, axis=-1, keepdims=True) if hides else None
    return BlockWeights(weights, dropout_factor(weights, options, index), seen)


def block_context(weights: BlockWeights, value: Tensor) -> Tensor:
    """Return `sum_s a_ts v_s`, which is zero for a query that may attend to no key."""
    context = weighted_sum(scaled(weights.before, weights.factor, value.dtype), value)
    return context if weights.seen is None else context * ops.cast(weights.seen, context.dtype)


def block_gradients(
    weights: BlockWeights,
    d_context: Tensor,
    inner: Tensor,
    value: Tensor,
    query: Tensor,
    key: Tensor,
    rest: Sequence[Tensor],
    options: WeightOptions,
    rows: Range,
    keys: Ranges,
) -> tuple:
    """Return the gradients of the block's queries, keys, values and `rest`."""
    if weights.seen is not None:
        d_context = d_context * ops.cast(weights.seen, d_context.dtype)
    d_weights = scaled(at_least_float32(dot_products(d_context, value)), weights.factor)
    d_scores = GRADIENTS[options.normalizer](weights.before, d_weights, inner)
    d_sinks = []
    if options.has_sink:
        _, rest = split_sink(rest, options)
        d_sink = sink_gradient(weights.before, d_weights, inner)
        d_sinks.append(ops.sum(d_sink, axis=(0, 2)))
    d_rest: Sequence[Tensor] = ()
    if rest or options.score_mod is not None:
        # A bias is added, so that its gradient does not depend on the products.
        is_needed = options.score_mod is not None
        products = at_least_float32(dot_products(query, key)) if is_needed else d_scores
        _, vjp = pullback(
            lambda products, *rest: block_scores(products, rest, options, rows, keys),
            (products, *rest),
        )
        d_scores, *d_rest = vjp(d_scores)
    d_products = ops.cast(d_scores, query.dtype)
    kept = scaled(weights.before, weights.factor, value.dtype)
    groups = key.shape[1]
    return (
        weighted_sum(d_products, key),
        sum_over_queries(d_products, query, groups),
        sum_over_queries(kept, d_context, groups),
        *d_sinks,
        *d_rest,
    )


def split_sink(rest: Sequence[Tensor], options: WeightOptions) -> tuple[Tensor, Sequence[Tensor]]:
    """Return the logits of the sinks in at least float32 `(H, 1, 1)`, or `None`, and the others."""
    if not options.has_sink:
        return None, rest
    return ops.expand_dims(at_least_float32(rest[0]), 2), rest[1:]


def block_scores(
    products: Tensor,
    rest: Sequence[Tensor],
    options: WeightOptions,
    rows: Range,
    keys: Ranges,
    mask: Tensor = None,
) -> Tensor:
    """Return the scores of products: with biases by distance and the mask, by the `score_mod`."""
    added_scores = []
    if options.zero_distance is not None:
        bias, *rest = rest
        added_scores.append(_bias_of_pairs(at_least_float32(bias), options, rows, keys))
    if mask is not None and options.score_mod is None:
        added_scores.append(ops.cast(ops.logical_not(mask), products.dtype) * HIDDEN)
    if added_scores:
        products = products + sum(added_scores[1:], added_scores[0])
    if options.score_mod is None:
        return products
    positions = options.spec.positions(rows, keys)
    scores = ops.cast(options.score_mod(products, *positions, tensors=rest), products.dtype)
    return scores if mask is None else ops.where(mask, scores, HIDDEN)


def _bias_of_pairs(bias: Tensor, options: WeightOptions, rows: Range, keys: Ranges) -> Tensor:
    """Return the biases of a block, `(1, H, rows, keys)`."""
    pairs = []
    for each in keys:
        first = each.start - (rows.stop - 1) + options.zero_distance
        distances = Range(first, each.size + rows.size - 1)
        pairs.append(by_pairs(distances.cut(bias, 1), rows.size, each.size))
    return ops.expand_dims(joined(pairs, 2), 0)


# Groups of heads, one after the other in a loop.


def _forward_by_groups(
    tensors: Sequence[Tensor], options: WeightOptions, plan: BlockPlan
) -> Tensor:
    def attend_group(group: Tensor, context: Tensor) -> tuple:
        heads, _, own, own_options = _group(tensors, options, plan, after(group, context))
        part, _ = forward(own, own_options, plan._replace(groups=1))
        return group + 1, ops.slice_update(context, (0, heads.start, 0, 0), part)

    query, _, value, *_ = tensors
    zeros = ops.zeros((*ops.shape(query)[:3], value.shape[3]), query.dtype)
    return ops.while_loop(lambda group, _: group < plan.groups, attend_group, (0, zeros))[1]


def _backward_by_groups(
    tensors: Sequence[Tensor],
    options: WeightOptions,
    plan: BlockPlan,
    context: Tensor,
    d_context: Tensor,
) -> tuple:
    def add_group(group: Tensor, *totals: Tensor) -> tuple:
        now = after(group, totals[0])
        heads, key_heads, own, own_options = _group(tensors, options, plan, now)
        given = heads.cut(context, 1), None, heads.cut(d_context, 1)
        gradients = backward(own, own_options, plan._replace(groups=1), *given)
        starts: list[tuple] = [(0, each.start, 0, 0) for each in (heads, key_heads, key_heads)]
        starts += [(heads.start, 0)] * _of_heads(options)
        pairs = list(zip(totals, gradients, strict=True))
        written = [
            ops.slice_update(total, start, part)
            for (total, part), start in zip(pairs, starts, strict=False)
        ]
        return group + 1, *written, *(total + part for total, part in pairs[len(starts) :])

    first = (0, *map(ops.zeros_like, tensors))
    return tuple(ops.while_loop(lambda group, *_: group < plan.groups, add_group, first)[1:])


def _group(
    tensors: Sequence[Tensor], options: WeightOptions, plan: BlockPlan, group: Tensor
) -> tuple[Range, Range, list, WeightOptions]:
    """Return the query heads and key heads of a group, its tensors and its options."""
    query, key, value, *rest = tensors
    size, shared = key.shape[1] // plan.groups, query.shape[1] // key.shape[1]
    heads, key_heads = Range(group * size * shared, size * shared), Range(group * size, size)
    own = [heads.cut(query, 1), key_heads.cut(key, 1), key_heads.cut(value, 1), *rest]
    for index in range(3, 3 + _of_heads(options)):
        own[index] = heads.cut(own[index], 0)
    seed = None if options.seed is None else _seed_of(options.seed, group * plan.blocks)
    return heads, key_heads, own, replace(options, spec=options.spec.for_heads(heads), seed=seed)


def _of_heads(options: WeightOptions) -> int:
    """Return how many tensors after the values have a row for each head."""
    return options.has_sink + (options.zero_distance is not None)


# What the other ways to compute attention share with this one.


def inner_products(context: Tensor, d_context: Tensor) -> Tensor:
    """Return the sum of weights times their gradients, `(B, H, T, 1)`; `None` in half precision."""
    if "float16" in keras.backend.standardize_dtype(context.dtype):
        return None  # not exact enough: the gradient of softmax then sums over the weights
    return ops.sum(at_least_float32(d_context) * at_least_float32(context), axis=-1, keepdims=True)


def added(totals: Sequence[Tensor], parts: Sequence[Tensor], keys: Ranges) -> list:
    """Add a block's gradients of keys, values and the rest to those of all blocks."""
    d_key, d_value, *d_rest = (at_least_float32(part) for part in parts)
    return [
        add_ranges(totals[0], d_key, keys, 2),
        add_ranges(totals[1], d_value, keys, 2),
        *(total + part for total, part in zip(totals[2:], d_rest, strict=True)),
    ]


def cast_as(gradients: Sequence[Tensor], tensors: Sequence[Tensor]) -> tuple:
    """Cast gradients to the dtypes of their tensors."""
    return tuple(ops.cast(g, tensor.dtype) for g, tensor in zip(gradients, tensors, strict=True))


def dropout_factor(weights: Tensor, options: WeightOptions, index: Tensor) -> Tensor:
    """Return the factors of dropout for the block `index`, which are the same in each pass."""
    if not options.dropout:
        return None
    seed = _seed_of(options.seed, index)
    dtype = keras.backend.standardize_dtype(weights.dtype)
    return dropout_factors(ops.shape(weights), options.dropout, seed, dtype)


def _seed_of(seed: Tensor, index: Tensor) -> Tensor:
    """Return the seed of a block from that of the whole attention."""
    index = ops.cast(index, "int32") * 1_000_003
    return seed + ops.cast(ops.stack([index, ops.zeros_like(index)]), seed.dtype)


def scaled(weights: Tensor, factor: Tensor, dtype: str | None = None) -> Tensor:
    """Return weights times the factors of dropout, if there are any, in a dtype if it is given."""
    weights = weights if factor is None else weights * factor
    return weights if dtype is None else ops.cast(weights, dtype)
