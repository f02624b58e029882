"""Static and dynamic shapes, and inputs with several axes of steps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from keras import ops

from .types import Tensor


def reshaped(tensor: Tensor, sizes: Sequence[Any]) -> Tensor:
    """Reshape a tensor; a single unknown size is left to be inferred.

    Otherwise a graph would read the unknown size off another tensor and pack the sizes, which
    costs three or more operations in each step of a search.
    """
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) == len(sizes) - 1 and all(known):
        sizes = [size if isinstance(size, int) else -1 for size in sizes]
    return ops.reshape(tensor, sizes)


def sizes_of(tensor: Tensor) -> tuple:
    """Return a tensor's sizes for `ops.reshape`, with -1 for a single unknown size.

    `ops.shape` adds five operations to a graph for each unknown size, and one in eager mode.
    """
    sizes = tuple(tensor.shape)
    if sizes.count(None) > 1 or (None in sizes and 0 in sizes):
        return tuple(ops.shape(tensor))
    return tuple(-1 if size is None else size for size in sizes)


def size_of(tensor: Tensor, axis: int) -> Any:
    """Return the size of an axis: an integer where it is known, without an operation."""
    known = tensor.shape[axis]
    return ops.shape(tensor)[axis] if known is None else known


def is_symbol(size: Any) -> bool:
    """Return whether JAX infers a shape, or exports, with a symbol for a size.

    Symbols can be added and multiplied, but neither compared nor given to an operation.
    """
    return size is not None and not isinstance(size, int) and not ops.is_tensor(size)


def sizes_from(tensor: Tensor, axis: int) -> list:
    """Return the sizes from an axis on: integers where all of them are known."""
    known = list(tensor.shape)[axis:]
    return list(ops.shape(tensor))[axis:] if None in known else known


def can_be_one(first: tuple, second: tuple) -> bool:
    """Return whether two shapes may be the same; an unknown size matches any size."""
    return len(first) == len(second) and all(
        None in pair or pair[0] == pair[1] for pair in zip(first, second, strict=True)
    )


def sized_as(tensor: Tensor, like: Tensor) -> Tensor:
    """Return a tensor of the shape of `like`, with the static sizes of `like`.

    TensorFlow requires the variables of a loop to keep their static sizes. Slices and gathers of
    an unknown size lose them, and reshaping restores them.
    """
    if tuple(tensor.shape) == tuple(like.shape):
        return tensor
    return ops.reshape(tensor, ops.shape(like))


def minimum(a: Tensor, b: Tensor) -> Tensor:
    """Return the smaller of two integers or scalar tensors, an integer where both are."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else ops.minimum(a, b)


def maximum(a: Tensor, b: Tensor) -> Tensor:
    """Return the larger of two integers or scalar tensors, an integer where both are."""
    if is_symbol(a) and is_symbol(b) and a == b:
        return a
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else ops.maximum(a, b)


def joined(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Concatenate tensors along an axis; a single tensor is returned as it is."""
    return tensors[0] if len(tensors) == 1 else ops.concatenate(tensors, axis=axis)


def product(x: Tensor, kernel: Tensor) -> Tensor:
    """Return `x W` of `(..., D)` and `(D, U)`, as one product over all rows.

    On TensorFlow Keras makes a `tensordot` of `matmul`, and XLA cannot compile its gradient in a
    loop.
    """
    rows = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), kernel)
    return ops.reshape(rows, (*sizes_of(x)[:-1], kernel.shape[-1]))


@dataclass(frozen=True)
class AttentionAxes:
    """Folds inputs of any rank to `(batch, steps, features)`: the `attended` axes become steps."""

    rank: int
    attended: tuple[int, ...]

    @property
    def is_plain(self) -> bool:
        """Whether the inputs have the shape `(batch, steps, features)`."""
        return self.rank == 3

    def order(self) -> tuple[int, ...]:
        """Return all axes except the features: batch, free axes, attended axes."""
        free = [axis for axis in range(1, self.rank - 1) if axis not in self.attended]
        return (0, *free, *self.attended)

    def sizes(self, shape: tuple) -> tuple[tuple, tuple]:
        """Return the sizes of batch and free axes, and those of the attended axes."""
        sizes = [shape[axis] for axis in self.order()]
        count = len(self.attended)
        return tuple(sizes[:-count]), tuple(sizes[-count:])

    def fold(self, tensor: Tensor) -> Tensor:
        """Fold inputs, or their mask, which has no features; `None` stays `None`."""
        if tensor is None or self.is_plain:
            return tensor
        batch, steps = self.sizes(ops.shape(tensor))
        rest = tuple(ops.shape(tensor)[self.rank - 1 :])
        kept = tuple(range(self.rank - 1, len(tensor.shape)))
        moved = ops.transpose(tensor, (*self.order(), *kept))
        return ops.reshape(moved, (math.prod(batch), math.prod(steps), *rest))

    def fold_pairs(self, mask: Tensor, query: Tensor, value: Tensor) -> Tensor:
        """Fold a mask of pairs `(..., T, S)`, where `T` and `S` are the attended axes."""
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
        """Give an output `(batch, steps, ...)` the axes of its inputs."""
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
