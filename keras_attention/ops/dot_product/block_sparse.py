"""Attention by functions of places, in square blocks of pairs, without those that a mask rules out.

Of each query are kept the greatest score `m` so far, the sum `l` of `exp(score - m)` and the
context `c`, the values weighted so. A block that some query sees changes them,

    m' = max(m, scores)
    l' = l exp(m - m') + sum exp(scores - m')
    c' = c exp(m - m') + exp(scores - m') v

and `c / l` is the context in the end. From `m + log l` the backward pass has the weights of a block
without those of the others. A block that is ruled out costs its mask alone.

Source: Dao et al. 2022, "FlashAttention", algorithms 1 and 4; blocks that a mask rules out as in
Dong et al. 2024, "Flex attention".
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from keras import ops

from ..normalizers import masked_softmax
from ..types import Tensor, accumulator_dtype, at_least_float32
from ..vjp import pullback, with_gradient
from .blocks import HIDDEN, Rule, dropout_factor, joined, times
from .products import dot_products, sum_over_queries, weighted_sum
from .reach import Span, nothing_after

# Places on the side of a block: an eighth of the longer sequence, within these limits.
LEAST_PLACES, MOST_PLACES = 256, 1024


def block_sparse_attention(tensors: tuple, rule: Rule) -> Tensor:
    """Attend by softmax; `tensors` are query, key, value, and what the score's function learns."""

    def blocks_of(query: Tensor, key: Tensor, value: Tensor, *learned: Tensor) -> _Blocks:
        return _Blocks(query, key, value, list(learned), rule)

    def attend(*tensors: Tensor) -> tuple:
        query, blocks = tensors[0], blocks_of(*tensors)
        context, logs = blocks.forward()
        return ops.cast(context, query.dtype), lambda upstream: blocks.backward(
            context, logs, upstream
        )

    return with_gradient(attend, lambda *tensors: blocks_of(*tensors).plain())(*tensors)


@dataclass(frozen=True)
class _Block:
    """The pairs of some neighbouring queries and some neighbouring places of the memory."""

    rows: Span
    columns: Span
    column: int
    number: int
    mask: Tensor  # which pairs are seen, or `None` for all

    def change(self, change: Callable, state: tuple) -> tuple:
        """Return `change(*state)`, or the state as it is where no pair is seen."""
        if self.mask is None:
            return change(*state)
        return ops.cond(ops.any(self.mask), lambda: change(*state), lambda: state)


@dataclass(frozen=True)
class _Blocks:
    """All blocks of one attention, forward and backward."""

    query: Tensor
    key: Tensor
    value: Tensor
    learned: list
    rule: Rule

    def spans(self) -> tuple[list[Span], list[Span]]:
        """Return the queries of each row of blocks, and the places of each column."""
        lengths = self.query.shape[2], self.key.shape[2]
        size = min(max(LEAST_PLACES, -(-max(lengths) // 8)), MOST_PLACES)
        rows, columns = (
            [Span(start, min(size, length - start)) for start in range(0, length, size)]
            for length in lengths
        )
        return rows, columns

    def by_row(self) -> Iterator[tuple[Span, list[_Block]]]:
        """Yield the queries of each row, and its blocks without those past causality."""
        reach, (all_rows, columns) = self.rule.reach, self.spans()
        for row, rows in enumerate(all_rows):
            blocks = []
            for column, span in enumerate(columns):
                if reach.causal and span.start >= rows.stop:
                    break
                # Places that all of these queries see by their order need no mask for it.
                inside = reach.window is None and span.stop <= rows.start + 1
                mask = (reach.everywhere() if inside else reach).mask(rows, span)
                blocks.append(_Block(rows, span, column, row * len(columns) + column, mask))
            yield rows, blocks

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return the context and the logarithm of each query's sum of exponentials."""
        contexts: list[Tensor] = []
        logs: list[Tensor] = []
        for rows, blocks in self.by_row():
            query = rows.cut(self.query, 2)
            query = _after(contexts[-1], query) if contexts else query
            shape = (*ops.shape(query)[:3], 1 + self.value.shape[3])
            zeros = ops.zeros(shape, accumulator_dtype(query.dtype))
            # Above what is hidden, whose weight then is 0 from the start.
            state = zeros[..., :1] + HIDDEN / 2, zeros[..., :1], zeros[..., 1:]
            for block in blocks:
                state = block.change(functools.partial(self._read, block, query), state)
            greatest, total, context = state
            seen = greatest > HIDDEN / 2
            total = ops.where(seen, total, 1.0)
            contexts.append(ops.where(seen, context / total, 0.0))
            logs.append(ops.where(seen, greatest + ops.log(total), 0.0))
        return joined(contexts, 2), joined(logs, 2)

    def plain(self) -> Tensor:
        """Return the context by operations that the backend can differentiate."""
        contexts = []
        for rows, blocks in self.by_row():
            query = rows.cut(self.query, 2)
            scores, seen, factors, values = [], [], [], []
            for block in blocks:
                values.append(block.columns.cut(self.value, 2))
                scores.append(self._scored(block, query, block.columns.cut(self.key, 2)))
                mask = ops.ones((1, 1, 1, 1), "bool") if block.mask is None else block.mask
                seen.append(ops.broadcast_to(mask, ops.shape(scores[-1])))
                factors.append(dropout_factor(scores[-1], self.rule, block.number))
            weights = masked_softmax(joined(scores, 3), joined(seen, 3))
            factor = None if factors[0] is None else joined(factors, 3)
            kept = times(weights, factor, self.value.dtype)
            contexts.append(weighted_sum(kept, joined(values, 2)))
        return ops.cast(joined(contexts, 2), self.query.dtype)

    def _scored(self, block: _Block, query: Tensor, key: Tensor) -> Tensor:
        """Return the scores of all pairs of a block."""
        products, reach = at_least_float32(dot_products(query, key)), self.rule.reach
        if reach.mods.score is None:
            return products
        return reach.mods.scored(products, reach.places(block.rows, block.columns), self.learned)

    def _read(
        self, block: _Block, query: Tensor, greatest: Tensor, total: Tensor, context: Tensor
    ) -> tuple:
        """Return the state of some queries after a block."""
        key, value = block.columns.cut(self.key, 2), block.columns.cut(self.value, 2)
        scores, _ = self._scores(block, _after(context, query), key)
        above = ops.maximum(greatest, ops.max(scores, axis=-1, keepdims=True))
        weights, before = ops.exp(scores - above), ops.exp(greatest - above)
        kept = times(weights, dropout_factor(weights, self.rule, block.number), value.dtype)
        return (
            above,
            total * before + ops.sum(weights, axis=-1, keepdims=True),
            context * before + at_least_float32(weighted_sum(kept, value)),
        )

    def _scores(self, block: _Block, query: Tensor, key: Tensor) -> tuple:
        """Return the scores and what turns their gradient to those of products and learned."""
        products, reach = at_least_float32(dot_products(query, key)), self.rule.reach
        if reach.mods.score is None:
            scores, gradient = products, lambda upstream: (upstream,)
        else:
            places = reach.places(block.rows, block.columns)
            scores, gradient = pullback(
                lambda products, *learned: reach.mods.scored(products, places, learned),
                (products, *self.learned),
            )
        return scores if block.mask is None else ops.where(block.mask, scores, HIDDEN), gradient

    def backward(self, context: Tensor, logs: Tensor, upstream: Tensor) -> tuple:
        """Return the gradients of all tensors."""
        slope = ops.sum(at_least_float32(upstream) * context, axis=-1, keepdims=True)
        of_memory = [
            tuple(
                at_least_float32(ops.zeros_like(span.cut(each, 2)))
                for each in (self.key, self.value)
            )
            for span in self.spans()[1]
        ]
        of_learned = [at_least_float32(ops.zeros_like(tensor)) for tensor in self.learned]
        of_queries: list[Tensor] = []
        for rows, blocks in self.by_row():
            query = rows.cut(self.query, 2)
            query = _after(of_queries[-1], query) if of_queries else query
            given = [rows.cut(tensor, 2) for tensor in (upstream, slope, logs)]
            of_query = at_least_float32(ops.zeros_like(query))
            for block in blocks:
                change = functools.partial(self._add, block, (query, *given))
                state = (of_query, *of_memory[block.column], *of_learned)
                of_query, of_key, of_value, *of_learned = block.change(change, state)
                of_memory[block.column] = of_key, of_value
            of_queries.append(of_query)
        of_key, of_value = (joined(list(parts), 2) for parts in zip(*of_memory, strict=True))
        gradients = (joined(of_queries, 2), of_key, of_value, *of_learned)
        tensors = (self.query, self.key, self.value, *self.learned)
        return tuple(ops.cast(g, t.dtype) for g, t in zip(gradients, tensors, strict=True))

    def _add(self, block: _Block, given: tuple, *totals: Tensor) -> tuple:
        """Return gradients with what a block adds: of its queries, keys and values, and learned."""
        query, upstream, slope, logs = (_after(totals[0], each) for each in given)
        key, value = block.columns.cut(self.key, 2), block.columns.cut(self.value, 2)
        scores, of_scores = self._scores(block, query, key)
        weights = ops.exp(scores - logs)
        factor = dropout_factor(weights, self.rule, block.number)
        of_weights = times(at_least_float32(dot_products(upstream, value)), factor)
        of_products, *of_learned = of_scores(weights * (of_weights - slope))
        of_products, kept = ops.cast(of_products, query.dtype), times(weights, factor, value.dtype)
        parts = (
            weighted_sum(of_products, key),
            sum_over_queries(of_products, query, key.shape[1]),
            sum_over_queries(kept, upstream, key.shape[1]),
            *of_learned,
        )
        return tuple(
            total + at_least_float32(part) for total, part in zip(totals, parts, strict=True)
        )


def _after(done: Tensor, tensor: Tensor) -> Tensor:
    """Return a tensor that is there only after another: blocks at once would take more memory."""
    return tensor + ops.cast(nothing_after(done), tensor.dtype)
