"""Which places of a memory each query may see, for a whole sequence or a part of it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import keras
from keras import ops

from ..axes import size_of, sizes_from
from ..masks import combine_masks
from ..types import Tensor, at_least_float32
from .mods import Mods
from .products import by_pairs, summed_by_distance


class Span(NamedTuple):
    """Places `start` to `start + size`; either may be a number or a scalar tensor.

    One that `is_all` holds every place, also where a graph does not know how many there are: it
    cuts nothing off, and so adds nothing to the graph.
    """

    start: Tensor
    size: Tensor
    is_all: bool = False

    @property
    def stop(self) -> Tensor:
        """The first place after the span."""
        return self.start + self.size

    def places(self) -> Tensor:
        """Return the places, int32 `(size,)`."""
        if isinstance(self.size, int) and self.size == 1:
            return ops.reshape(ops.cast(self.start, "int32"), (1,))
        places = ops.arange(self.size, dtype="int32")
        return places if isinstance(self.start, int) and self.start == 0 else places + self.start

    def cut(self, tensor: Tensor, axis: int) -> Tensor:
        """Return the span of a tensor along an axis; an axis of one entry serves all places."""
        if tensor.shape[axis] == 1 or self._is_all_of(tensor.shape[axis]):
            return tensor
        starts, sizes = [0] * len(tensor.shape), sizes_from(tensor, 0)
        starts[axis], sizes[axis] = self.start, self.size
        part = ops.slice(tensor, starts, sizes)
        # TensorFlow forgets the sizes that are known where one is not.
        return ops.reshape(part, sizes) if None in part.shape else part

    def _is_all_of(self, length: int | None) -> bool:
        known = all(isinstance(number, int) for number in (self.start, self.size, length))
        return self.is_all or (known and self.start == 0 and self.size == length)

    def add(self, total: Tensor, part: Tensor, axis: int) -> Tensor:
        """Return a tensor with `part` added to this span of an axis."""
        if self._is_all_of(total.shape[axis]):
            return total + part
        if not isinstance(self.start, int):
            starts = [0] * len(total.shape)
            starts[axis] = self.start
            return ops.slice_update(total, starts, self.cut(total, axis) + part)
        length = ops.shape(total)[axis]
        before, after = Span(0, self.start), Span(self.stop, length - self.stop)
        pieces = [before.cut(total, axis), self.cut(total, axis) + part, after.cut(total, axis)]
        return ops.concatenate(pieces, axis=axis)


@dataclass(frozen=True)
class Reach:
    """The places that queries may see: all, less what each of these takes away."""

    causal: bool = False  # no place after the query's own
    window: int | None = None  # from place `t`, the places within `window - 1` of `t` alone
    num_sinks: int = 0  # the first places, which are seen past the window too
    query_mask: Tensor = None  # boolean `(B, T)`: a masked query sees nothing
    value_mask: Tensor = None  # boolean `(B, S)`: a masked place is not seen
    attention_mask: Tensor = None  # boolean, broadcasts to `(B, H, T, S)`
    mods: Mods = Mods()  # functions that change scores and hide pairs, by the two fields below
    batch_size: Tensor = None  # which `mods` alone read
    heads: Any = None

    @property
    def has_masks(self) -> bool:
        """Whether more than causality and window decides what is seen."""
        masks = (self.query_mask, self.value_mask, self.attention_mask, self.mods.mask)
        return any(mask is not None for mask in masks)

    def of_inputs(self, query: Tensor) -> "Reach":
        """Return the reach for queries `(B, H, T, d)`."""
        batch_size = size_of(query, 0) if self.mods.any else None
        return replace(self, batch_size=batch_size, heads=Span(0, query.shape[1]))

    def everywhere(self) -> "Reach":
        """Return the reach by masks alone, for places that lie in reach of all queries."""
        return replace(self, causal=False, window=None, num_sinks=0)

    def of_heads(self, heads: Span) -> "Reach":
        """Return the reach of some of the heads."""
        mask = self.attention_mask
        mask = None if mask is None else heads.cut(mask, 1)
        return replace(self, attention_mask=mask, heads=heads)

    def places(self, rows: Span, columns: Span) -> tuple:
        """Return batch, head, query and key of a block of pairs, as `mods` takes them."""
        spans = (Span(0, self.batch_size), self.heads, rows, columns)
        return tuple(
            ops.expand_dims(span.places(), [axis for axis in range(4) if axis != place])
            for place, span in enumerate(spans)
        )

    def mask(self, rows: Span, columns: Span, without_sinks: bool = False) -> Tensor:
        """Return which columns the rows see, `(B, H, rows, columns)`, or `None` for all."""
        attention_mask = self.attention_mask
        if attention_mask is not None:
            attention_mask = columns.cut(rows.cut(attention_mask, 2), 3)
        mods = self.mods
        return combine_masks(
            None if mods.mask is None else mods.shown(self.places(rows, columns)),
            self._mask_by_place(rows, columns, without_sinks),
            _cut_to_rank_4(self.query_mask, rows, 2),
            _cut_to_rank_4(self.value_mask, columns, 3),
            attention_mask,
        )

    def _mask_by_place(self, rows: Span, columns: Span, without_sinks: bool) -> Tensor:
        if not self.causal and self.window is None:
            return None
        places = ops.expand_dims(columns.places(), 0)
        distance = ops.expand_dims(rows.places(), 1) - places
        seen = distance >= 0 if self.causal else None
        if self.window is not None:
            near = distance < self.window
            if not self.causal:
                near = near & (distance > -self.window)
            if self.num_sinks:
                is_sink = places < self.num_sinks
                near = near & ~is_sink if without_sinks else near | is_sink
            seen = combine_masks(seen, near)
        return ops.expand_dims(seen, (0, 1))


def _cut_to_rank_4(mask: Tensor, span: Span, axis: int) -> Tensor:
    """Return a span of a mask `(B, L)`, its places on one axis of four."""
    if mask is None:
        return None
    others = tuple(place for place in (1, 2, 3) if place != axis)
    return ops.expand_dims(span.cut(mask, 1), others)


@dataclass(frozen=True)
class Piece:
    """Neighbouring places of the memory, and what hides some of them."""

    span: Span
    reach: Reach
    without_sinks: bool = False


@dataclass(frozen=True)
class Part:
    """Neighbouring queries, and the pieces of the memory that they see, side by side."""

    rows: Span
    pieces: tuple[Piece, ...]
    first_distance: Tensor  # where the table of biases starts, `1 - T`
    apart: bool = False  # whether products go piece by piece
    delay: Tensor = 0  # a zero added to the queries; XLA would ask whether sizes of `rows` need it

    def once_there(self, tensor: Tensor) -> "Part":
        """Return the part, to be read when `tensor` is computed."""
        return replace(self, delay=nothing_after(tensor))

    def queries(self, tensor: Tensor) -> Tensor:
        """Return the part's rows of `(B, H, T, d)`."""
        rows = self.rows.cut(tensor, 2)
        if isinstance(self.delay, int):  # nothing to wait for
            return rows
        return rows + ops.cast(self.delay, rows.dtype)

    def columns(self) -> list[Span]:
        """Return where the pieces stand in the part's scores."""
        spans, start = [], 0
        for piece in self.pieces:
            is_all = piece.span.is_all and len(self.pieces) == 1
            spans.append(Span(start, piece.span.size, is_all))
            start = spans[-1].stop
        return spans

    def runs(self) -> list[tuple[Span, Span]]:
        """Return spans of the scores, and of the memory, that one product goes over."""
        columns = self.columns()
        if self.apart:
            return [(c, piece.span) for c, piece in zip(columns, self.pieces, strict=True)]
        width, is_all = columns[-1].stop, columns[-1].is_all
        return [(Span(0, width, is_all), Span(self.pieces[0].span.start, width, is_all))]

    def biases(self, table: Tensor) -> list:
        """Return the biases of each piece, `(1, H, rows, columns)`, of `(H, T + S - 1)`."""
        if table is None:
            return [None] * len(self.pieces)
        table = at_least_float32(table)
        return [
            ops.expand_dims(by_pairs(span.cut(table, 1), self.rows.size, piece.span.size), 0)
            for piece, span in zip(self.pieces, self._distances(), strict=True)
        ]

    def add_to_table(self, total: Tensor, gradient: Tensor) -> Tensor:
        """Add the gradient of the biases, `(H, rows, columns)`, to that of the table."""
        for columns, span in zip(self.columns(), self._distances(), strict=True):
            part = summed_by_distance(columns.cut(gradient, 2), self.rows.size, columns.size)
            total = span.add(total, part, 1)
        return total

    def _distances(self) -> list[Span]:
        """Return the span of the table that each piece needs."""
        last, others = self.rows.stop - 1 + self.first_distance, self.rows.size - 1
        return [Span(p.span.start - last, p.span.size + others) for p in self.pieces]


def cut_to_parts(steps: Tensor, length: Tensor, count: int, reach: Reach) -> list[Part]:
    """Cut the queries to parts, without the places that none of a part sees."""
    size = max((steps + count - 1) // count, 1)
    apart = bool(reach.num_sinks or reach.mods.score)
    parts = []
    for index in range(count):
        start = least(index * size, steps) if index else 0
        rows = Span(start, least(start + size, steps) - start)
        pieces = list(_pieces(rows, length, reach))
        parts.append(Part(rows, tuple(pieces), 1 - steps, apart))
    return parts


def _pieces(rows: Span, length: Tensor, reach: Reach) -> Iterator[Piece]:
    if reach.window is not None:
        yield from _window(rows, length, reach)
        return
    if not reach.causal:
        yield Piece(Span(0, length, is_all=True), reach)
        return
    # All of the part sees the places before it: no mask by place is needed there.
    before, stop = least(rows.start, length), least(rows.stop, length)
    if not _is_zero(before):
        yield Piece(Span(0, before), reach.everywhere())
    if not _is_zero(stop - before):
        yield Piece(Span(before, stop - before), reach)


def _window(rows: Span, length: Tensor, reach: Reach) -> Iterator[Piece]:
    first = most(rows.start - reach.window + 1, 0)
    stop = least(rows.stop if reach.causal else rows.stop + reach.window - 1, length)
    if reach.num_sinks:
        yield Piece(Span(0, least(reach.num_sinks, length)), reach)
    # At least one place, hidden where the window has left the memory behind.
    first = least(first, length - 1)
    yield Piece(Span(first, most(stop - first, 1)), reach, bool(reach.num_sinks))


def nothing_after(tensor: Tensor) -> Tensor:
    """Return a zero that depends on a tensor of four axes, to force the order of evaluation."""
    if keras.backend.backend() == "torch":
        return 0
    # TensorFlow and XLA would start the scores of all parts at once, and take all the memory.
    entry = ops.sum(ops.cast(tensor[:1, :1, :1, :1], "float32"))
    return ops.cast(entry > float("inf"), "int32")


def least(a: Tensor, b: Tensor) -> Tensor:
    """Return the smaller of two numbers or scalar tensors."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else ops.minimum(a, b)


def most(a: Tensor, b: Tensor) -> Tensor:
    """Return the larger of two numbers or scalar tensors."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else ops.maximum(a, b)


def _is_zero(size: int) -> bool:
    return isinstance(size, int) and size == 0
