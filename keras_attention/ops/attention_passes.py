"""The forward and the backward pass of attention over parts of the queries."""

from dataclasses import dataclass
from typing import Any

from keras import ops, random

from keras_attention.ops.attention_parts import cut_to_parts
from keras_attention.ops.normalizers import (
    entmax15_gradient,
    entmax15_weights,
    sparsemax_gradient,
    sparsemax_weights,
)
from keras_attention.ops.products import dot_products, sum_over_queries, weighted_sum
from keras_attention.ops.reach import Reach

SPARSE = {
    "sparsemax": (sparsemax_weights, sparsemax_gradient),
    "entmax15": (entmax15_weights, entmax15_gradient),
}
# Added to the score of a place that is hidden. Finite: a row without places has no NaN then.
HIDDEN = -1e30


@dataclass(frozen=True)
class Rule:
    """How scores become weights: who sees what, the normaliser, the dropout and its seed."""

    reach: Reach
    normalizer: str = "softmax"
    dropout: float = 0.0
    seed: Any = None


def forward(tensors, rule: Rule, count: int, kept: list | None = None):
    """Return the context, from `count` parts; put what the backward pass needs to `kept`."""
    contexts = []
    for index, part in enumerate(_parts(tensors, rule, count)):
        if contexts and kept is None:
            part = part.once_there(contexts[-1])
        context, weights = attend_part(part, tensors, rule, index)
        if kept is not None:
            kept.append(weights)
        contexts.append(context)
    return contexts[0] if len(contexts) == 1 else ops.concatenate(contexts, axis=2)


def attend_part(part, tensors, rule: Rule, index):
    """Return the context of a part's queries, and their weights with what made them."""
    value = tensors[2]
    weights, seen, factor = weights_of(part, tensors, rule, index)
    context = weighted_sum(_times(weights, factor, value.dtype), part.memory(value))
    context = context if seen is None else context * ops.cast(seen, context.dtype)
    return context, (weights, seen, factor)


def backward(tensors, context, upstream, rule: Rule, count: int, kept: list | None = None):
    """Return the gradients of queries, keys, values and, where there is one, of the table."""
    slope = slope_of(context, upstream)
    totals = [ops.zeros_like(tensor, dtype="float32") for tensor in tensors[1:]]
    queries = []
    for index, part in enumerate(_parts(tensors, rule, count)):
        now = part.once_there(queries[-1]) if queries and kept is None else part
        weights = kept[index] if kept else weights_of(now, tensors, rule, index)
        of_query, totals = add_part(part, now, weights, tensors, slope, upstream, totals, rule)
        queries.append(of_query)
    of_query = queries[0] if len(queries) == 1 else ops.concatenate(queries, axis=2)
    return of_query, *(ops.cast(t, m.dtype) for t, m in zip(totals, tensors[1:], strict=True))


def slope_of(context, upstream):
    """Return the sum over the places of the weights times their gradients, `(B, H, T, 1)`."""
    return ops.sum(_float32(upstream) * _float32(context), axis=-1, keepdims=True)


def add_part(part, now, weights, tensors, slope, upstream, totals, rule: Rule):
    """Return the gradient of a part's queries, and those of all else with the part's share.

    Args:
        part: The part.
        now: The part, to be read when the one before is done.
        weights: What `attend_part` gave beside the context.
        tensors: Queries, keys, values and, where there is one, the table.
        slope: What `slope_of` gave.
        upstream: The gradient of the context.
        totals: The gradients so far of keys, values and the table, in float32.
        rule: How scores become weights.
    """
    query, key, value, *table = tensors
    weights, seen, factor = weights
    given = now.queries(upstream)
    given = given if seen is None else given * ops.cast(seen, given.dtype)
    of_weights = _times(_float32(dot_products(given, now.memory(value))), factor)
    of_scores = _of_scores(weights, of_weights, now.queries(slope), rule.normalizer)
    of_products, groups = ops.cast(of_scores, query.dtype), key.shape[1]
    of_memory = (
        sum_over_queries(of_products, now.queries(query), groups),
        sum_over_queries(_times(weights, factor, value.dtype), given, groups),
    )
    totals = [
        *(part.add_to_memory(t, _float32(g)) for t, g in zip(totals, of_memory, strict=False)),
        *(part.add_to_table(total, ops.sum(of_scores, axis=0)) for total in totals[2:]),
    ]
    return weighted_sum(of_products, now.memory(key)), totals


def _parts(tensors, rule, count):
    query, key = tensors[:2]
    return cut_to_parts(ops.shape(query)[2], ops.shape(key)[2], count, rule.reach)


def weights_of(part, tensors, rule: Rule, index):
    """Return the weights of a part's queries, which of them see anything, and the dropout."""
    query, key, _, *table = tensors
    query, keys, masks = part.queries(query), part.pieces_of(key), part.masks()
    biases = part.biases(_float32(table[0])) if table else [None] * len(keys)
    scores = [
        _shifted(_float32(dot_products(query, keys)), mask, bias)
        for keys, mask, bias in zip(keys, masks, biases, strict=True)
    ]
    scores = scores[0] if len(scores) == 1 else ops.concatenate(scores, axis=3)
    weights = SPARSE[rule.normalizer][0](scores) if rule.normalizer in SPARSE else softmax(scores)
    return weights, _seen(masks, rule.reach), _dropout_factor(weights, rule, index)


def _of_scores(weights, of_weights, slope, normalizer):
    """Return the gradient of scores; `slope` is the sum of the weights times their gradients."""
    if normalizer in SPARSE:
        return SPARSE[normalizer][1](weights, of_weights)
    return weights * (of_weights - slope)


def _shifted(scores, mask, bias):
    if mask is not None:
        hidden = ops.cast(ops.logical_not(mask), "float32") * HIDDEN
        bias = hidden if bias is None else bias + hidden
    return scores if bias is None else scores + bias


def _seen(masks, reach):
    """Return which queries see anything, `(B, H, rows, 1)`, or `None` where all do."""
    if any(mask is None for mask in masks) or not (reach.has_masks or reach.window):
        return None
    seen = None
    for mask in masks:
        some = ops.any(mask, axis=-1, keepdims=True)
        seen = some if seen is None else ops.logical_or(seen, some)
    return seen


def softmax(scores):
    """Softmax over the last axis; of one place without the warning that Keras has for it."""
    return ops.ones_like(scores) if scores.shape[-1] == 1 else ops.softmax(scores, axis=-1)


def _dropout_factor(weights, rule, index):
    """Return what dropout multiplies the weights with, the same whenever it is asked for."""
    if not rule.dropout:
        return None
    numbers = random.uniform(ops.shape(weights), seed=_FixedSeed(seed_of(rule.seed, index)))
    return ops.cast(numbers >= rule.dropout, "float32") / (1 - rule.dropout)


def seed_of(seed, index):
    """Return the seed of a part from that of the whole."""
    index = ops.cast(index, "int32") * 1_000_003
    return seed + ops.cast(ops.stack([index, ops.zeros_like(index)]), seed.dtype)


class _FixedSeed(random.SeedGenerator):
    """A seed that is there already, in the form in which Keras takes one that is a tensor."""

    def __init__(self, seed):
        self.seed = seed

    def next(self, ordered=True):
        return self.seed


def _times(weights, factor, dtype="float32"):
    return ops.cast(weights if factor is None else weights * factor, dtype)


def _float32(tensor):
    return ops.cast(tensor, "float32")
