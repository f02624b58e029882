"""Which keys each query may attend to, for whole sequences or for a block of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import keras
from keras import ops

from ..bound_functions import BoundFunction
from ..masks import combine_masks
from ..shapes import joined, minimum, size_of, sizes_from
from ..types import Tensor


class Range(NamedTuple):
    """Positions `start` to `start + size`; either may be an integer or a scalar tensor.

    A range that `is_whole` covers its axis, also where only the graph knows the length: cutting it
    out adds nothing to the graph.
    """

    start: Tensor
    size: Tensor
    is_whole: bool = False

    @classmethod
    def of_axis(cls, tensor: Tensor, axis: int) -> "Range":
        """Return the range of all positions of an axis."""
        return cls(0, size_of(tensor, axis), is_whole=True)

    @property
    def stop(self) -> Tensor:
        """The first position after the range."""
        return self.start + self.size

    def positions(self) -> Tensor:
        """Return the positions, int32 `(size,)`."""
        if isinstance(self.size, int) and self.size == 1:
            return ops.reshape(ops.cast(self.start, "int32"), (1,))
        positions = ops.arange(self.size, dtype="int32")
        if isinstance(self.start, int) and self.start == 0:
            return positions
        return positions + self.start

    def cut(self, tensor: Tensor, axis: int) -> Tensor:
        """Return the range of an axis; an axis of size 1 is broadcast over all positions."""
        if tensor.shape[axis] == 1 or self._covers(tensor.shape[axis]):
            return tensor
        starts = [0] * len(tensor.shape)
        sizes = sizes_from(tensor, 0)
        starts[axis] = self.start
        sizes[axis] = self.size
        part = ops.slice(tensor, starts, sizes)
        # TensorFlow loses the known sizes of a slice where one size is unknown.
        return ops.reshape(part, sizes) if None in part.shape else part

    def add(self, total: Tensor, part: Tensor, axis: int) -> Tensor:
        """Return `total` with `part` added to this range of an axis."""
        if self._covers(total.shape[axis]):
            return total + part
        if not isinstance(self.start, int):
            starts = [0] * len(total.shape)
            starts[axis] = self.start
            return ops.slice_update(total, starts, self.cut(total, axis) + part)
        before = Range(0, self.start)
        after = Range(self.stop, size_of(total, axis) - self.stop)
        parts = [before.cut(total, axis), self.cut(total, axis) + part, after.cut(total, axis)]
        return ops.concatenate(parts, axis=axis)

    def _covers(self, length: int | None) -> bool:
        known = all(isinstance(number, int) for number in (self.start, self.size, length))
        return self.is_whole or (known and self.start == 0 and self.size == length)


class Positions(Range):
    """Positions that are not in order, such as those of a rolling cache, given as the start."""

    __slots__ = ()

    def positions(self) -> Tensor:
        """Return the positions, int32 `(size,)`."""
        return self.start

    def cut(self, tensor: Tensor, axis: int) -> Tensor:
        """Return the tensor, whose axis has these positions."""
        return tensor


# The keys that a block of queries reads: one range, or two where attention sinks come first.
Ranges = Sequence[Range]


def cut_ranges(tensor: Tensor, ranges: Ranges, axis: int) -> Tensor:
    """Return the ranges of an axis, one after the other; an axis of size 1 is broadcast."""
    if tensor.shape[axis] == 1:
        return tensor
    return joined([each.cut(tensor, axis) for each in ranges], axis)


def add_ranges(total: Tensor, part: Tensor, ranges: Ranges, axis: int) -> Tensor:
    """Return `total` with `part`, which holds the ranges one after the other, added to them."""
    start = 0
    for each in ranges:
        own = part if len(ranges) == 1 else Range(start, each.size).cut(part, axis)
        total = each.add(total, own, axis)
        start = start + each.size
    return total


@dataclass(frozen=True)
class MaskSpec:
    """The keys that queries may attend to: all, except those that one of these fields hides.

    `batch_size` and `heads` are read by `mask_mod` and `score_mod`; `for_queries` sets them.
    """

    causal: bool = False  # hides the keys after the query
    window: int | None = None  # hides the keys at a distance of `window` or more
    num_sinks: int = 0  # the first keys, which a window does not hide
    query_mask: Tensor = None  # boolean `(B, T)`, True = attend
    value_mask: Tensor = None  # boolean `(B, S)`, True = attend
    attention_mask: Tensor = None  # boolean, broadcasts to `(B, H, T, S)`
    mask_mod: BoundFunction | None = None
    batch_size: Tensor = None
    heads: Range = Range(0, 1)

    @property
    def has_masks(self) -> bool:
        """Whether more than causality and a window hides keys."""
        masks = (self.query_mask, self.value_mask, self.attention_mask, self.mask_mod)
        return any(mask is not None for mask in masks)

    def for_queries(self, query: Tensor) -> "MaskSpec":
        """Return the specification for queries `(B, H, T, d)`."""
        return replace(self, batch_size=size_of(query, 0), heads=Range(0, query.shape[1]))

    def for_heads(self, heads: Range) -> "MaskSpec":
        """Return the specification for some of the heads."""
        mask = self.attention_mask
        return replace(
            self, attention_mask=mask if mask is None else heads.cut(mask, 1), heads=heads
        )

    def without_causality(self) -> "MaskSpec":
        """Return the specification for keys that precede all queries."""
        return replace(self, causal=False)

    def key_ranges(self, rows: Range, length: int) -> Ranges:
        """Return the ranges of the `length` keys that causality and window leave for some queries.

        All numbers are integers. At least one key is left, which the mask may hide.
        """
        stop = minimum(rows.stop, length) if self.causal else length
        if self.window is None:
            return [Range(0, stop)]
        if not self.causal:
            stop = minimum(rows.stop + self.window - 1, length)
        sinks = minimum(self.num_sinks, length)
        first = minimum(max(rows.start - self.window + 1, sinks), length - 1)
        near = Range(first, max(stop - first, 1))
        if not sinks:
            return [near]
        return [Range(0, sinks), near] if first >= sinks else [Range(0, length)]

    def positions(self, rows: Range, keys: Ranges) -> tuple:
        """Return the batch, head, query and key indices of a block, as a `mask_mod` takes them."""
        indices = (
            Range(0, self.batch_size).positions(),
            self.heads.positions(),
            rows.positions(),
            _positions(keys),
        )
        return tuple(
            ops.expand_dims(each, [other for other in range(4) if other != axis])
            for axis, each in enumerate(indices)
        )

    def mask(self, rows: Range, keys: Ranges) -> Tensor:
        """Return which keys the queries may attend to, `(B, H, rows, keys)`; `None` for all."""
        mask = self.attention_mask
        shown = None
        if self.mask_mod is not None:
            constants = [ops.stop_gradient(tensor) for tensor in self.mask_mod.tensors()]
            shown = self.mask_mod(*self.positions(rows, keys), tensors=constants)
        query_mask = None if self.query_mask is None else rows.cut(self.query_mask, 1)
        value_mask = None if self.value_mask is None else cut_ranges(self.value_mask, keys, 1)
        return combine_masks(
            shown,
            self._mask_by_distance(rows, keys),
            None if query_mask is None else ops.expand_dims(query_mask, (1, 3)),
            None if value_mask is None else ops.expand_dims(value_mask, (1, 2)),
            None if mask is None else cut_ranges(rows.cut(mask, 2), keys, 3),
        )

    def _mask_by_distance(self, rows: Range, keys: Ranges) -> Tensor:
        if not self.causal and self.window is None:
            return None
        key = ops.expand_dims(_positions(keys), 0)
        distance = ops.expand_dims(rows.positions(), 1) - key
        seen = distance >= 0 if self.causal else None
        if self.window is not None:
            near = distance < self.window
            if not self.causal:
                near = near & (distance > -self.window)
            if self.num_sinks:
                near = near | (key < self.num_sinks)
            seen = combine_masks(seen, near)
        return ops.expand_dims(seen, (0, 1))


def _positions(ranges: Ranges) -> Tensor:
    return joined([each.positions() for each in ranges], 0)


def after(tensor: Tensor, done: Tensor = None) -> Tensor:
    """Add a data dependency of zero on `done`, a tensor of four axes.

    Otherwise TensorFlow and XLA start all blocks at once, and hold the scores of all of them.
    """
    if done is None or keras.backend.backend() == "torch":
        return tensor
    entry = ops.sum(ops.cast(done[:1, :1, :1, :1], "float32"))
    dtype = "int32" if isinstance(tensor, int) else tensor.dtype
    return tensor + ops.cast(entry > float("inf"), dtype)
