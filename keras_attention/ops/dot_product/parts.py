"""Parts of a sequence of queries, each with the pieces of the memory that some of them see."""

from dataclasses import dataclass, replace
from typing import Any

import keras
from keras import ops

from keras_attention.ops.dot_product.products import by_pairs, summed_by_distance
from keras_attention.ops.dot_product.reach import Reach, Span


@dataclass(frozen=True)
class Piece:
    """Neighbouring places of the memory, and what hides some of them."""

    span: Span
    reach: Reach
    without_sinks: bool = False


@dataclass(frozen=True)
class Part:
    """Neighbouring queries, and the pieces of the memory that they see.

    Attributes:
        rows: The places of the queries.
        pieces: What they see of the memory; their scores stand side by side.
        first_distance: The distance with which the table of biases starts, `1 - T`.
        apart: Whether products go piece by piece; else over all pieces, which are neighbours.
        can_skip: Whether a piece that a mask hides whole is left out.
        delay: 0, which is added to queries that are read: not to their places, or XLA would work
            out at length whether sizes depend on it.
    """

    rows: Span
    pieces: tuple[Piece, ...]
    first_distance: Any
    apart: bool = False
    can_skip: bool = False
    delay: Any = 0

    def once_there(self, tensor) -> "Part":
        """Return the part, to be read when `tensor` is computed."""
        return replace(self, delay=nothing_after(tensor))

    def queries(self, tensor):
        """Return the part's rows of `(B, H, T, d)`."""
        rows = self.rows.cut(tensor, 2)
        if isinstance(self.delay, int):  # nothing to wait for
            return rows
        return rows + ops.cast(self.delay, rows.dtype)

    def columns(self) -> list[Span]:
        """Return where the pieces stand in the part's scores."""
        spans, start = [], 0
        for piece in self.pieces:
            spans.append(Span(start, piece.span.size))
            start = spans[-1].stop
        return spans

    def runs(self) -> list[tuple[Span, Span]]:
        """Return spans of the scores, and of the memory, that one product goes over."""
        columns = self.columns()
        if self.apart:
            return [(c, piece.span) for c, piece in zip(columns, self.pieces, strict=True)]
        width = columns[-1].stop
        return [(Span(0, width), Span(self.pieces[0].span.start, width))]

    def biases(self, table) -> list:
        """Return the biases of each piece, `(1, H, rows, columns)`, from `(H, T + S - 1)`."""
        if table is None:
            return [None] * len(self.pieces)
        return [
            ops.expand_dims(by_pairs(span.cut(table, 1), self.rows.size, piece.span.size), 0)
            for piece, span in zip(self.pieces, self._distances(), strict=True)
        ]

    def add_to_table(self, total, gradient):
        """Add the gradient of the biases, `(H, rows, columns)`, to that of the table."""
        for piece, columns, span in zip(
            self.pieces, self.columns(), self._distances(), strict=True
        ):
            part = columns.cut(gradient, 2)
            part = summed_by_distance(part, self.rows.size, piece.span.size)
            total = span.add(total, part, 1)
        return total

    def _distances(self):
        """Return the span of the table that each piece needs."""
        return [
            Span(
                piece.span.start - (self.rows.stop - 1) - self.first_distance,
                self.rows.size + piece.span.size - 1,
            )
            for piece in self.pieces
        ]


def cut_to_parts(steps, length, count: int, reach: Reach, can_skip=False) -> list[Part]:
    """Cut the queries to parts of one size, the last smaller; leave out what none of one sees.

    With `can_skip` the memory is cut to blocks of that size too.
    """
    size = max((steps + count - 1) // count, 1)
    apart = bool(reach.num_sinks or reach.mods.score or can_skip)
    parts = []
    for index in range(count):
        start = least(index * size, steps) if index else 0
        rows = Span(start, least(start + size, steps) - start)
        pieces = list(_pieces(rows, length, reach))
        if can_skip:
            pieces = [block for piece in pieces for block in _blocks(piece, size)]
        parts.append(Part(rows, tuple(pieces), 1 - steps, apart, can_skip))
    return parts


def _pieces(rows, length, reach):
    if reach.window is not None:
        yield from _window(rows, length, reach)
        return
    if not reach.causal:
        yield Piece(Span(0, length), reach)
        return
    # All of the part sees the places before it: no mask by place is needed there.
    before, stop = least(rows.start, length), least(rows.stop, length)
    if not _is_zero(before):
        yield Piece(Span(0, before), reach.everywhere())
    if not _is_zero(stop - before):
        yield Piece(Span(before, stop - before), reach)


def _window(rows, length, reach):
    first = most(rows.start - reach.window + 1, 0)
    stop = least(rows.stop if reach.causal else rows.stop + reach.window - 1, length)
    if reach.num_sinks:
        yield Piece(Span(0, least(reach.num_sinks, length)), reach)
    # At least one place, hidden where the window has left the memory behind.
    first = least(first, length - 1)
    yield Piece(Span(first, most(stop - first, 1)), reach, bool(reach.num_sinks))


def _blocks(piece, size):
    for start in range(piece.span.start, piece.span.stop, size):
        span = Span(start, min(size, piece.span.stop - start))
        yield replace(piece, span=span)


def nothing_after(tensor):
    """Return a zero that depends on a tensor of four axes, to force the order of evaluation.

    TensorFlow and XLA start whatever is ready, in a graph the scores of all parts at once, which
    would take the memory that parts are there to save. No optimiser sees that this is 0.
    """
    if keras.backend.backend() == "torch":
        return 0
    entry = ops.sum(ops.cast(tensor[:1, :1, :1, :1], "float32"))
    return ops.cast(entry > float("inf"), "int32")


def least(a, b):
    """Return the smaller of two numbers or scalar tensors."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else ops.minimum(a, b)


def most(a, b):
    """Return the larger of two numbers or scalar tensors."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else ops.maximum(a, b)


def _is_zero(size) -> bool:
    return isinstance(size, int) and size == 0
