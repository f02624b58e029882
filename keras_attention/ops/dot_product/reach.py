"""Which places of a memory each query may see, for a whole sequence or a part of it."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from keras import ops

from keras_attention.ops.dot_product.mods import Mods
from keras_attention.ops.masks import combine_masks


class Span(NamedTuple):
    """Places `start` to `start + size`; either may be a number or a scalar tensor."""

    start: Any
    size: Any

    @property
    def stop(self):
        """The first place after the span."""
        return self.start + self.size

    def places(self):
        """Return the places, int32 `(size,)`."""
        return ops.arange(self.size, dtype="int32") + self.start

    def cut(self, tensor, axis: int):
        """Return the span of a tensor along an axis; an axis of one entry serves all places."""
        if tensor.shape[axis] == 1:
            return tensor
        starts, sizes = [0] * len(tensor.shape), list(ops.shape(tensor))
        if self._is_all_of(sizes[axis]):
            return tensor
        starts[axis], sizes[axis] = self.start, self.size
        part = ops.slice(tensor, starts, sizes)
        # TensorFlow forgets the sizes that are known where one is not.
        return ops.reshape(part, sizes) if None in part.shape else part

    def _is_all_of(self, length) -> bool:
        known = all(isinstance(number, int) for number in (*self, length))
        return known and self.start == 0 and self.size == length

    def add(self, total, part, axis: int):
        """Return a tensor with `part` added to this span of an axis."""
        length = ops.shape(total)[axis]
        if self._is_all_of(length):
            return total + part
        if not isinstance(self.start, int):
            starts = [0] * len(total.shape)
            starts[axis] = self.start
            return ops.slice_update(total, starts, self.cut(total, axis) + part)
        before, after = Span(0, self.start), Span(self.stop, length - self.stop)
        pieces = [before.cut(total, axis), self.cut(total, axis) + part, after.cut(total, axis)]
        return ops.concatenate(pieces, axis=axis)


@dataclass(frozen=True)
class Reach:
    """The places that queries may see: all, less what each of these takes away.

    Attributes:
        causal: Whether a query sees no place after its own.
        window: A query at place `t` sees the places within `window - 1` of `t`.
        num_sinks: The first places, which are seen past the window too.
        query_mask: Boolean `(B, T)`; a query that is masked sees nothing.
        value_mask: Boolean `(B, S)`; a place that is masked is not seen.
        attention_mask: Boolean, broadcasts to `(B, H, T, S)`.
        mods: Functions of places that change scores and hide pairs.
        batch_size: `B`, which `mods` needs.
        heads: The heads, which `mods` needs.
    """

    causal: bool = False
    window: int | None = None
    num_sinks: int = 0
    query_mask: Any = None
    value_mask: Any = None
    attention_mask: Any = None
    mods: Mods = Mods()
    batch_size: Any = None
    heads: Span | None = None

    @property
    def has_masks(self) -> bool:
        """Whether more than causality and window decides what is seen."""
        masks = (self.query_mask, self.value_mask, self.attention_mask, self.mods.mask)
        return any(mask is not None for mask in masks)

    def of_inputs(self, query) -> "Reach":
        """Return the reach for queries `(B, H, T, d)`."""
        return replace(self, batch_size=ops.shape(query)[0], heads=Span(0, query.shape[1]))

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

    def mask(self, rows: Span, columns: Span, without_sinks: bool = False):
        """Return which of the columns the rows see.

        Args:
            rows: Places of the queries.
            columns: Places of the memory.
            without_sinks: Whether the sinks are hidden, because they are attended to apart.

        Returns:
            Boolean, broadcasts to `(B, H, rows, columns)`; `None` where all is seen.
        """
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

    def _mask_by_place(self, rows, columns, without_sinks):
        if not self.causal and self.window is None:
            return None
        places = ops.expand_dims(columns.places(), 0)
        distance = ops.expand_dims(rows.places(), 1) - places
        seen = distance >= 0 if self.causal else None
        if self.window is not None:
            near = distance < self.window
            if not self.causal:
                near = ops.logical_and(near, distance > -self.window)
            if self.num_sinks:
                is_sink = places < self.num_sinks
                near = (
                    ops.logical_and(near, ops.logical_not(is_sink))
                    if without_sinks
                    else ops.logical_or(near, is_sink)
                )
            seen = combine_masks(seen, near)
        return ops.expand_dims(seen, (0, 1))


def _cut_to_rank_4(mask, span, axis):
    """Return a span of a mask `(B, L)`, its places on one axis of four."""
    if mask is None:
        return None
    others = tuple(place for place in (1, 2, 3) if place != axis)
    return ops.expand_dims(span.cut(mask, 1), others)
