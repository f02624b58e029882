"""Attention over some axes of inputs that have several between batch and features."""

import math
from dataclasses import dataclass

from keras import ops

from .types import Tensor


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
