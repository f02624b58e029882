"""Parts of a sequence of queries, each with the places of the memory that some of them see."""

from dataclasses import dataclass, replace
from typing import Any

import keras
from keras import ops

from keras_attention.ops.distance_bias import by_pairs, summed_by_distance
from keras_attention.ops.reach import Reach, Span


@dataclass(frozen=True)
class Piece:
    """Neighbouring places of the memory, and what hides some of them."""

    span: Span
    reach: Reach
    without_sinks: bool = False


@dataclass(frozen=True)
class Part:
    """Neighbouring queries, and the pieces of the memory that they see.

    `delay` is 0, which is added to queries that are read: not to their places, or XLA would work
    out at length whether sizes depend on it. `first_distance` is the distance with which the table
    of biases starts, `1 - T`.
    """

    rows: Span
    pieces: tuple[Piece, ...]
    first_distance: object
    without_gaps: bool = True
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

    def pieces_of(self, tensor):
        """Return the places of `(B, G, S, d)` that the part sees, piece by piece."""
        return [piece.span.cut(tensor, 2) for piece in self.pieces]

    def memory(self, tensor):
        """Return the places of `(B, G, S, d)` that the part sees, one piece after another."""
        first, last = self.pieces[0], self.pieces[-1]
        if self.without_gaps:
            return Span(first.span.start, last.span.stop - first.span.start).cut(tensor, 2)
        return ops.concatenate(self.pieces_of(tensor), axis=2)

    def masks(self):
        """Return the mask of each piece, or `None` where all is seen."""
        return [
            piece.reach.mask(self.rows, piece.span, piece.without_sinks) for piece in self.pieces
        ]

    def biases(self, table):
        """Return the biases of each piece, `(1, H, rows, columns)`, from `(H, T + S - 1)`."""
        return [
            ops.expand_dims(by_pairs(span.cut(table, 1), self.rows.size, piece.span.size), 0)
            for piece, span in zip(self.pieces, self._distances(), strict=True)
        ]

    def add_to_memory(self, total, gradient):
        """Add the gradient of what `memory` gave to that of the whole memory."""
        if self.without_gaps:
            start = self.pieces[0].span.start
            return Span(start, self.pieces[-1].span.stop - start).add(total, gradient, 2)
        for piece, columns in zip(self.pieces, self.columns(), strict=True):
            total = piece.span.add(total, columns.cut(gradient, 2), 2)
        return total

    def add_to_table(self, total, gradient):
        """Add the gradient of the biases, `(H, rows, columns)`, to that of the table."""
        spans = zip(self.pieces, self.columns(), self._distances(), strict=True)
        for piece, columns, span in spans:
            part = columns.cut(gradient, 2)
            part = summed_by_distance(part, self.rows.size, piece.span.size)
            total = span.add(total, part, 1)
        return total

    def columns(self) -> list[Span]:
        """Return where the pieces stand in what `memory` gives."""
        spans, start = [], 0
        for piece in self.pieces:
            spans.append(Span(start, piece.span.size))
            start = spans[-1].stop
        return spans

    def _distances(self):
        """Return the span of the table that each piece needs."""
        return [
            Span(
                piece.span.start - (self.rows.stop - 1) - self.first_distance,
                self.rows.size + piece.span.size - 1,
            )
            for piece in self.pieces
        ]


def cut_to_parts(steps, length, count: int, reach: Reach) -> list[Part]:
    """Cut the queries to parts of one size, the last smaller; leave out what none of one sees."""
    size = (steps + count - 1) // count
    parts = []
    for index in range(count):
        start = least(index * size, steps) if index else 0
        rows = Span(start, least(start + size, steps) - start)
        pieces = tuple(_pieces(rows, length, reach))
        parts.append(Part(rows, pieces, 1 - steps, not reach.num_sinks))
    return parts


def _pieces(rows, length, reach):
    if reach.window is not None:
        yield from _window(rows, length, reach)
        return
    if not reach.causal:
        yield Piece(Span(0, length), reach)
        return
    # What stands before the part is seen by all of it: no mask by place is needed there.
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


def nothing_after(tensor):
    """Return 0, once a tensor of four axes is computed: what adds it waits for the tensor.

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
