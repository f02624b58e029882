"""Attention in blocks, with a gradient of its own: no tensor of `H T S` numbers is kept.

Automatic differentiation keeps the weights of all pairs: over 1 GB for 8 heads of 4,096 steps. Here
some heads and some hundred queries are worked on at a time, and again in the backward pass; only
short sequences keep their weights. Parts leave out the places that none of their queries sees.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import keras
from keras import ops, random

from .. import normalizers
from ..dropout import dropout_factors
from ..types import Tensor, accumulator_dtype, at_least_float32
from ..vjp import pullback, with_gradient
from .products import dot_products, sum_over_queries, weighted_sum
from .reach import Part, Piece, Reach, Span, cut_to_parts, nothing_after

# Pairs of places up to which weights are kept: as much as a Transformer block's other tensors take.
KEPT_PAIRS = 1024 * 1024
# Queries in a part: a causal mask saves more the smaller parts are, each costs its operations.
KEPT_QUERIES, PART_QUERIES, MOST_PART_QUERIES = 128, 256, 1024
# Numbers in one block of scores, where they are not kept: 8 MB in float32.
BLOCK_NUMBERS = 2_000_000
SPARSE = {
    "sparsemax": normalizers.sparsemax_gradient,
    "entmax15": normalizers.entmax15_gradient,
}
# Added to the score of a place that is hidden. Finite: a row without places has no NaN then.
HIDDEN = -1e30


@dataclass(frozen=True)
class Rule:
    """How scores become weights: who sees what, the normaliser, the dropout and its seed."""

    reach: Reach
    normalizer: str = "softmax"
    dropout: float = 0.0
    seed: Tensor = None
    has_table: bool = False


@dataclass(frozen=True)
class Plan:
    """How many parts the queries are cut to, how many groups the heads, and what is kept."""

    parts: int
    groups: int
    keep: bool


def blocked_attention(tensors: tuple, rule: Rule, plan: Plan) -> Tensor:
    """Attend as a plan says; `tensors` are query, key, value, biases if any, those of mods."""

    def attend(*tensors: Tensor) -> tuple:
        kept: list | None = [] if plan.keep else None
        inputs = Inputs.of(tensors, rule)
        context = inputs.forward(plan, kept)
        return context, lambda upstream: inputs.backward(context, upstream, plan, kept)

    def plain(*tensors: Tensor) -> Tensor:
        return Inputs.of(tensors, rule).plain(plan)

    return with_gradient(attend, plain)(*tensors)


def plan_for(query_shape: tuple, key_shape: tuple, reach: Reach) -> Plan | None:
    """Choose a plan; `None` where the lengths are known only when the graph runs."""
    batch_size, heads, steps, _ = query_shape
    length = key_shape[2]
    if steps is None or length is None:
        return None
    keep = steps * length <= KEPT_PAIRS
    size = KEPT_QUERIES if keep else min(max(PART_QUERIES, steps // 8), MOST_PART_QUERIES)
    if keep and not reach.causal and reach.window is None:
        size = steps
    parts = max(math.ceil(steps / max(size, 1)), 1)
    if keep:
        return Plan(parts, 1, True)
    numbers = (batch_size or 1) * heads * min(size, steps) * length
    groups = [g for g in range(1, key_shape[1] + 1) if key_shape[1] % g == 0]
    small = [g for g in groups if numbers / g <= BLOCK_NUMBERS]
    return Plan(parts, small[0] if small else groups[-1], False)


@dataclass(frozen=True)
class Weights:
    """The weights of a part `before` dropout, and the `factor` of dropout, or `None`.

    `seen`: which queries see anything, `(B, H, rows, 1)`, or `None` where all do.
    """

    before: Tensor
    factor: Tensor
    seen: Tensor

    def kept(self, dtype: str) -> Tensor:
        """Return the weights after dropout."""
        return times(self.before, self.factor, dtype)


@dataclass(frozen=True)
class Inputs:
    """The tensors and the rule of one attention. `table` holds biases by distance, or is `None`."""

    query: Tensor
    key: Tensor
    value: Tensor
    table: Tensor
    learned: Sequence[Tensor]
    rule: Rule

    @classmethod
    def of(cls, tensors: Sequence[Tensor], rule: Rule) -> "Inputs":
        """Return the tensors by their names."""
        query, key, value, *rest = tensors
        table, learned = (rest[0], rest[1:]) if rule.has_table else (None, rest)
        return cls(query, key, value, table, learned, rule)

    @property
    def of_memory(self) -> list[Tensor]:
        """All tensors but the queries, in the order of their gradients."""
        table = [] if self.table is None else [self.table]
        return [self.key, self.value, *table, *self.learned]

    def forward(self, plan: Plan, kept: list | None = None) -> Tensor:
        """Return the context; put what the backward pass needs to `kept`."""
        if plan.groups > 1:
            return self._forward_by_groups(plan)
        contexts: list[Tensor] = []
        for index, part in enumerate(self._parts(plan)):
            if contexts and kept is None:
                part = part.once_there(contexts[-1])
            context, weights = self.attend(part, index)
            if kept is not None:
                kept.append(weights)
            contexts.append(context)
        return joined(contexts, 2)

    def backward(
        self, context: Tensor, upstream: Tensor, plan: Plan, kept: list | None = None
    ) -> tuple:
        """Return the gradients of all tensors."""
        if plan.groups > 1:
            return self._backward_by_groups(context, upstream, plan)
        slope = slope_of(context, upstream)
        totals = [at_least_float32(ops.zeros_like(tensor)) for tensor in self.of_memory]
        queries: list[Tensor] = []
        for index, part in enumerate(self._parts(plan)):
            part = part.once_there(queries[-1]) if queries and kept is None else part
            weights = kept[index] if kept else self.weights(part, index)
            of_query, totals = self.add_part(part, weights, slope, upstream, totals)
            queries.append(of_query)
        pairs = zip(totals, self.of_memory, strict=True)
        return joined(queries, 2), *(ops.cast(total, tensor.dtype) for total, tensor in pairs)

    def _parts(self, plan: Plan) -> list[Part]:
        steps, length = ops.shape(self.query)[2], ops.shape(self.key)[2]
        return cut_to_parts(steps, length, plan.parts, self.rule.reach)

    def attend(self, part: Part, index: Tensor) -> tuple[Tensor, Weights]:
        """Return the context of a part's queries, and their `Weights`."""
        weights = self.weights(part, index)
        return self.context(part, weights), weights

    def context(self, part: Part, weights: Weights) -> Tensor:
        """Return the context of a part's queries under their weights."""
        kept = weights.kept(self.value.dtype)
        context, *more = (
            weighted_sum(columns.cut(kept, 3), places.cut(self.value, 2))
            for columns, places in part.runs()
        )
        context = sum(more, context)
        if weights.seen is not None:
            context = context * ops.cast(weights.seen, context.dtype)
        return context

    def weights(self, part: Part, index: Tensor) -> Weights:
        """Return the weights of a part's queries."""
        query, rule = part.queries(self.query), self.rule
        scores, masks = [], []
        for piece, bias in zip(part.pieces, part.biases(self.table), strict=True):
            mask = piece.reach.mask(part.rows, piece.span, piece.without_sinks)
            masks.append(mask)
            if rule.reach.mods.score is not None:
                places = rule.reach.places(part.rows, piece.span)
                products = self._products(query, piece, bias)
                of_pairs = rule.reach.mods.scored(products, places, self.learned)
                scores.append(of_pairs if mask is None else ops.where(mask, of_pairs, HIDDEN))
                continue
            if mask is not None:
                hidden = ops.cast(ops.logical_not(mask), accumulator_dtype(query.dtype)) * HIDDEN
                bias = hidden if bias is None else bias + hidden
            scores.append(self._products(query, piece, bias))
        all_scores = joined(scores, 3)
        weights = normalizers.NORMALIZERS[rule.normalizer](all_scores)
        return Weights(weights, dropout_factor(weights, rule, index), _seen(masks, rule.reach))

    def _products(self, query: Tensor, piece: Piece, bias: Tensor) -> Tensor:
        """Return a piece's products of queries and keys, at least float32, with the biases."""
        products = at_least_float32(dot_products(query, piece.span.cut(self.key, 2)))
        return products if bias is None else products + bias

    def add_part(
        self, part: Part, weights: Weights, slope: Tensor, upstream: Tensor, totals: list
    ) -> tuple[Tensor, list]:
        """Return the gradient of a part's queries, and `totals`, of all else, with its share."""
        query, given = part.queries(self.query), part.queries(upstream)
        if weights.seen is not None:
            given = given * ops.cast(weights.seen, given.dtype)
        runs, groups = part.runs(), self.key.shape[1]
        parts = [
            at_least_float32(dot_products(given, places.cut(self.value, 2))) for _, places in runs
        ]
        of_weights = times(joined(parts, 3), weights.factor)
        slope = None if slope is None else part.queries(slope)
        of_scores = _of_scores(weights, of_weights, slope, self.rule.normalizer)
        of_key, of_value, *of_rest = totals
        if self.rule.reach.mods.score is not None:
            of_scores, of_rest = self._before_mod(part, query, of_scores, of_rest)
        of_products, kept = ops.cast(of_scores, query.dtype), weights.kept(self.value.dtype)

        of_queries = []
        for columns, places in runs:
            block = columns.cut(of_products, 3)
            of_queries.append(weighted_sum(block, places.cut(self.key, 2)))
            of_block = sum_over_queries(block, query, groups)
            of_key = places.add(of_key, at_least_float32(of_block), 2)
            of_block = sum_over_queries(columns.cut(kept, 3), given, groups)
            of_value = places.add(of_value, at_least_float32(of_block), 2)
        if self.table is not None:
            of_rest = [part.add_to_table(of_rest[0], ops.sum(of_scores, axis=0)), *of_rest[1:]]
        return sum(of_queries[1:], of_queries[0]), [of_key, of_value, *of_rest]

    def _before_mod(
        self, part: Part, query: Tensor, of_scores: Tensor, totals: list
    ) -> tuple[Tensor, list]:
        """Return the gradient of the scores before the user's function, and of what it learns."""
        reach, before, totals = self.rule.reach, [], list(totals)
        first = len(totals) - len(self.learned)
        biases = part.biases(self.table)
        for piece, columns, bias in zip(part.pieces, part.columns(), biases, strict=True):
            places = reach.places(part.rows, piece.span)

            def scored(products: Tensor, *learned: Tensor, places: tuple = places) -> Tensor:
                return reach.mods.scored(products, places, learned)

            _, gradient = pullback(scored, (self._products(query, piece, bias), *self.learned))
            of_products, *of_learned = map(at_least_float32, gradient(columns.cut(of_scores, 3)))
            before.append(of_products)
            for place, one in enumerate(of_learned):
                totals[first + place] = totals[first + place] + one
        return joined(before, 3), totals

    def plain(self, plan: Plan) -> Tensor:
        """Return the context by operations that the backend can differentiate."""
        groups = [self._group(group, plan)[2] for group in range(plan.groups)]
        return joined([inputs.forward(replace(plan, groups=1), []) for inputs in groups], 1)

    # Groups of heads, one after the other in a loop.

    def _forward_by_groups(self, plan: Plan) -> Tensor:
        def attend_group(group: Tensor, context: Tensor) -> tuple:
            queries, _, inputs = self._group(group + nothing_after(context), plan)
            part = inputs.forward(replace(plan, groups=1))
            return group + 1, ops.slice_update(context, (0, queries.start, 0, 0), part)

        shape = (*ops.shape(self.query)[:3], self.value.shape[3])
        first = (0, ops.zeros(shape, self.query.dtype))
        return ops.while_loop(lambda group, _: group < plan.groups, attend_group, first)[1]

    def _backward_by_groups(self, context: Tensor, upstream: Tensor, plan: Plan) -> tuple:
        def add_group(group: Tensor, *totals: Tensor) -> tuple:
            queries, keys, inputs = self._group(group + nothing_after(totals[0]), plan)
            given = queries.cut(context, 1), queries.cut(upstream, 1)
            gradients = inputs.backward(*given, replace(plan, groups=1))
            starts: list[tuple] = [(0, heads.start, 0, 0) for heads in (queries, keys, keys)]
            starts += [] if self.table is None else [(queries.start, 0)]
            pairs = list(zip(totals, gradients, strict=True))
            own = zip(pairs, starts, strict=False)
            written = [ops.slice_update(total, start, part) for (total, part), start in own]
            return group + 1, *written, *(total + part for total, part in pairs[len(starts) :])

        first = (0, *map(ops.zeros_like, (self.query, *self.of_memory)))
        return tuple(ops.while_loop(lambda group, *_: group < plan.groups, add_group, first)[1:])

    def _group(self, group: Tensor, plan: Plan) -> tuple[Span, Span, "Inputs"]:
        """Return the query heads and the key heads of a group, and what they read."""
        size, shared = self.key.shape[1] // plan.groups, self.query.shape[1] // self.key.shape[1]
        queries, keys = Span(group * size * shared, size * shared), Span(group * size, size)
        table = None if self.table is None else queries.cut(self.table, 0)
        seed = None if self.rule.seed is None else seed_of(self.rule.seed, group * plan.parts)
        rule = replace(self.rule, reach=self.rule.reach.of_heads(queries), seed=seed)
        memory = keys.cut(self.key, 1), keys.cut(self.value, 1)
        return queries, keys, Inputs(queries.cut(self.query, 1), *memory, table, self.learned, rule)


def slope_of(context: Tensor, upstream: Tensor) -> Tensor:
    """Return the sum of weights times their gradients, `(B, H, T, 1)`; `None` in half precision."""
    if "float16" in keras.backend.standardize_dtype(context.dtype):
        return None  # not exact enough: the sum then goes over the weights
    return ops.sum(at_least_float32(upstream) * at_least_float32(context), axis=-1, keepdims=True)


def _of_scores(weights: Weights, of_weights: Tensor, slope: Tensor, normalizer: str) -> Tensor:
    """Return the gradient of scores; `slope` is the sum of the weights times their gradients."""
    if normalizer in SPARSE:
        return SPARSE[normalizer](weights.before, of_weights)
    if slope is None:
        slope = ops.sum(weights.before * of_weights, axis=-1, keepdims=True)
    return weights.before * (of_weights - slope)


def _seen(masks: list, reach: Reach) -> Tensor:
    """Return which queries see anything, `(B, H, rows, 1)`, or `None` where all do."""
    if any(mask is None for mask in masks) or not (reach.has_masks or reach.window):
        return None
    seen = [ops.any(mask, axis=-1, keepdims=True) for mask in masks]
    return functools.reduce(ops.logical_or, seen)


def dropout_factor(weights: Tensor, rule: Rule, index: Tensor) -> Tensor:
    """Return what dropout multiplies the weights with, the same whenever it is asked for."""
    if not rule.dropout:
        return None
    seed = _FixedSeed(seed_of(rule.seed, index))
    dtype = keras.backend.standardize_dtype(weights.dtype)
    return dropout_factors(ops.shape(weights), rule.dropout, seed, dtype)


def seed_of(seed: Tensor, index: Tensor) -> Tensor:
    """Return the seed of a part from that of the whole."""
    index = ops.cast(index, "int32") * 1_000_003
    return seed + ops.cast(ops.stack([index, ops.zeros_like(index)]), seed.dtype)


class _FixedSeed(random.SeedGenerator):
    """A seed that is there already, in the form in which Keras takes one that is a tensor."""

    def __init__(self, seed: Tensor) -> None:
        self.seed = seed

    def next(self, ordered: bool = True) -> Tensor:
        return self.seed


def times(weights: Tensor, factor: Tensor, dtype: str | None = None) -> Tensor:
    """Return weights times the factor of dropout, if there is one; in a dtype, if it is given."""
    weights = weights if factor is None else weights * factor
    return weights if dtype is None else ops.cast(weights, dtype)


def joined(tensors: list, axis: int) -> Tensor:
    """Return tensors end to end on an axis."""
    return tensors[0] if len(tensors) == 1 else ops.concatenate(tensors, axis=axis)
