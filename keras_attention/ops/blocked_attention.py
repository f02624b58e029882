"""Attention in parts, with a gradient of its own: no tensor of `H T S` numbers is kept.

Automatic differentiation keeps the weights of all pairs, and their neighbours, for the backward
pass: over 1 GB for 8 heads of 4,096 steps. Here some heads and some hundred queries are worked on
at a time, in the forward pass and, computed again, in the backward pass; what a causal mask or a
window hides from all of a part is not computed at all.

Where the sequences are short the weights are kept: the gradient of the whole still costs less
than that of its operations one by one.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from keras import ops

from keras_attention.ops.attention_open import attend_in_turns
from keras_attention.ops.attention_parts import nothing_after
from keras_attention.ops.attention_passes import Rule, backward, forward, seed_of
from keras_attention.ops.reach import Reach, Span

# Pairs of places above which weights are computed again in the backward pass, and not kept. Up to
# here they take about what the other tensors of a Transformer's block take.
KEPT_PAIRS = 1024 * 1024
# Queries in a part: a causal mask saves more the smaller parts are, each costs its operations.
KEPT_QUERIES, PART_QUERIES, MOST_PART_QUERIES = 128, 256, 1024
# Numbers in one block of scores, where they are not kept: 8 MB in float32.
BLOCK_NUMBERS = 2_000_000


@dataclass(frozen=True)
class Plan:
    """How many parts the queries are cut to, how many groups the heads, and what is kept."""

    parts: int
    groups: int
    keep: bool


def blocked_attention(query, key, value, rule: Rule, table=None):
    """Attend, in as many parts as the lengths ask for.

    Args:
        query: `(B, H, T, d)`, scaled already.
        key: `(B, G, S, d)`.
        value: `(B, G, S, dv)`.
        rule: How scores become weights.
        table: Biases by distance, `(H, T + S - 1)`, or `None`.

    Returns:
        The context `(B, H, T, dv)`.
    """
    plan = plan_for(query.shape, key.shape, rule.reach)
    if plan is not None:
        return attend_by_plan(query, key, value, rule, table, plan)
    return attend_in_turns(
        (query, key, value) if table is None else (query, key, value, table), rule
    )


def plan_for(query_shape, key_shape, reach: Reach) -> Plan | None:
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


def attend_by_plan(query, key, value, rule: Rule, table, plan: Plan):
    """Attend as the plan says."""

    @ops.custom_gradient
    def attend(*tensors):
        kept = [] if plan.keep else None
        context = _forward_by_groups(tensors, rule, plan, kept)

        def gradient(*args, upstream=None):
            if upstream is None:
                (upstream,) = args
            return _backward_by_groups(tensors, context, upstream, rule, plan, kept)

        return context, gradient

    return attend(query, key, value) if table is None else attend(query, key, value, table)


def _forward_by_groups(tensors, rule, plan, kept):
    if plan.groups == 1:
        return forward(tensors, rule, plan.parts, kept)
    query, value = tensors[0], tensors[2]

    def attend_group(group, context):
        heads = _Heads.of_group(group + nothing_after(context), plan.groups, tensors)
        part = forward(heads.cut(tensors), heads.rule(rule, plan.parts), plan.parts)
        return group + 1, ops.slice_update(context, (0, heads.query.start, 0, 0), part)

    context = ops.zeros((*ops.shape(query)[:3], value.shape[3]), query.dtype)
    return ops.while_loop(lambda group, _: group < plan.groups, attend_group, (0, context))[1]


def _backward_by_groups(tensors, context, upstream, rule, plan, kept):
    if plan.groups == 1:
        return backward(tensors, context, upstream, rule, plan.parts, kept)

    def attend_group(group, *totals):
        heads = _Heads.of_group(group + nothing_after(totals[0]), plan.groups, tensors)
        given = [heads.query.cut(tensor, 1) for tensor in (context, upstream)]
        of_group = heads.rule(rule, plan.parts)
        gradients = backward(heads.cut(tensors), *given, of_group, plan.parts)
        return group + 1, *heads.write(totals, gradients)

    totals = [ops.zeros_like(tensor) for tensor in tensors]
    return tuple(
        ops.while_loop(lambda group, *_: group < plan.groups, attend_group, (0, *totals))[1:]
    )


@dataclass(frozen=True)
class _Heads:
    """A group of key heads, and the query heads that read them."""

    group: Any
    query: Span
    key: Span

    @classmethod
    def of_group(cls, group, groups, tensors):
        """Return the heads of one of some groups."""
        size, shared = tensors[1].shape[1] // groups, tensors[0].shape[1] // tensors[1].shape[1]
        return cls(group, Span(group * size * shared, size * shared), Span(group * size, size))

    def cut(self, tensors):
        """Return the group's part of queries, keys, values and, if there, table."""
        query, key, value, *table = tensors
        parts = (self.query.cut(query, 1), self.key.cut(key, 1), self.key.cut(value, 1))
        return (*parts, *(self.query.cut(part, 0) for part in table))

    def write(self, totals, gradients):
        """Return the gradients of all heads with those of the group."""
        query, key = self.query.start, self.key.start
        starts = [(0, query, 0, 0), (0, key, 0, 0), (0, key, 0, 0), (query, 0)]
        return [
            ops.slice_update(total, start, gradient)
            for total, start, gradient in zip(totals, starts, gradients, strict=False)
        ]

    def rule(self, rule: Rule, parts: int) -> Rule:
        """Return the rule of the group: its masks, and a seed of its own."""
        seed = None if rule.seed is None else seed_of(rule.seed, self.group * parts)
        return replace(rule, reach=rule.reach.of_heads(self.query), seed=seed)
