"""Attention over some axes of inputs that have several between batch and features."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .double import ops
from .types import Tensor


def reshaped(tensor: Tensor, sizes: Sequence[Any]) -> Tensor:
    """Reshape a tensor; a graph that does not know one of the sizes leaves it to be inferred.

    Else it would read the unknown size off another tensor and put the sizes together, which are
    three operations and more in each step of a search.
    """
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) == len(sizes) - 1 and all(known):
        sizes = [size if isinstance(size, int) else -1 for size in sizes]
    return ops.reshape(tensor, sizes)


def sizes_of(tensor: Tensor) -> tuple:
    """Return a tensor's sizes for `ops.reshape`, which infers the only one that a graph misses.

    `ops.shape` has five operations for each size that is not known, and in eager mode one.
    """
    sizes = tuple(tensor.shape)
    if sizes.count(None) > 1 or (None in sizes and 0 in sizes):
        return tuple(ops.shape(tensor))
    return tuple(-1 if size is None else size for size in sizes)


def size_of(tensor: Tensor, axis: int) -> Any:
    """Return a tensor's size along an axis: an integer where it is known, without an operation."""
    known = tensor.shape[axis]
    return ops.shape(tensor)[axis] if known is None else known


def sizes_from(tensor: Tensor, axis: int) -> list:
    """Return a tensor's sizes from an axis on: integers where all of them are known."""
    known = list(tensor.shape)[axis:]
    return list(ops.shape(tensor))[axis:] if None in known else known


def product(x: Tensor, kernel: Tensor) -> Tensor:
    """Return `x W` of `(..., D)` and `(D, U)`, one product over all rows.

    On TensorFlow Keras makes a `tensordot` of `matmul`, whose gradient XLA cannot compile in a
    loop.
    """
    rows = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), kernel)
    return ops.reshape(rows, (*sizes_of(x)[:-1], kernel.shape[-1]))


@dataclass(frozen=True)
class Axes:
    """Folds inputs of any rank to `(batch, steps, features)`: the `attended` axes become steps."""

    rank: int
    attended: tuple[int, ...]

    @property
    def is_plain(self) -> bool:
        """Whether the inputs have the shape `(batch, steps, features)` already."""
        return self.rank == 3

    def order(self) -> tuple[int, ...]:
        """Return all axes but the features: batch, free axes, attended axes."""
        free = [axis for axis in range(1, self.rank - 1) if axis not in self.attended]
        return (0, *free, *self.attended)

    def sizes(self, shape: tuple) -> tuple[tuple, tuple]:
        """Return the sizes of batch and free axes, and those of the attended axes."""
        sizes = [shape[axis] for axis in self.order()]
        count = len(self.attended)
        return tuple(sizes[:-count]), tuple(sizes[-count:])

    def fold(self, tensor: Tensor) -> Tensor:
        """Fold inputs, or a mask of them without features; `None` stays `None`."""
        if tensor is None or self.is_plain:
            return tensor
        batch, steps = self.sizes(ops.shape(tensor))
        rest = tuple(ops.shape(tensor)[self.rank - 1 :])
        kept = tuple(range(self.rank - 1, len(tensor.shape)))
        moved = ops.transpose(tensor, (*self.order(), *kept))
        return ops.reshape(moved, (math.prod(batch), math.prod(steps), *rest))

    def fold_pairs(self, mask: Tensor, query: Tensor, value: Tensor) -> Tensor:
        """Fold a mask of pairs `(..., T, S)`, in which attended axes stand for `T` and for `S`."""
        if mask is None or self.is_plain:
            return mask
        (batch, steps), (_, length) = self.sizes(ops.shape(query)), self.sizes(ops.shape(value))
        before = len(mask.shape) - 2 * len(self.attended)
        shape = tuple(ops.shape(mask))
        leading, heads = shape[:before], 1
        if before == len(batch) + 1:
            leading, heads = leading[:-1], leading[-1]
        leading = leading + (1,) * (len(batch) - len(leading))
        flat = (math.prod(steps), math.prod(length))
        mask = ops.broadcast_to(ops.reshape(mask, (*leading, heads, *flat)), (*batch, heads, *flat))
        return ops.reshape(mask, (math.prod(batch), heads, *flat))

    def unfold(self, output: Tensor, inputs: Tensor) -> Tensor:
        """Give an output `(batch, steps, ...)` the axes of the inputs that it comes from."""
        if self.is_plain:
            return output
        rest = tuple(ops.shape(output)[2:])
        batch, steps = self.sizes(ops.shape(inputs))
        output = ops.reshape(output, (*batch, *steps, *rest))
        order = self.order()
        back = [order.index(axis) for axis in range(self.rank - 1)]
        return ops.transpose(output, (*back, *range(len(order), len(order) + len(rest))))

    def unfold_pairs(self, scores: Tensor, query: Tensor, value: Tensor) -> Tensor:
        """Give scores `(batch, H, T, S)` the shape `(B, free axes, H, T axes, S axes)`."""
        if self.is_plain:
            return scores
        return ops.reshape(
            scores, self.pairs_shape(ops.shape(query), ops.shape(value), ops.shape(scores)[1])
        )

    def pairs_shape(self, query_shape: tuple, value_shape: tuple, heads: int) -> tuple:
        """Return the shape of the scores."""
        (batch, steps), (_, length) = self.sizes(query_shape), self.sizes(value_shape)
        return (*batch, heads, *steps, *length)
