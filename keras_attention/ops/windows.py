"""Windows of a memory around a place for each query."""

from keras import ops

from .types import Tensor


def window_positions(center: Tensor, half_width: int) -> Tensor:
    """Return the integers from `p_t - D` on, int32 `(B, T, 2D + 1)`; mask them with `in_window`."""
    first = ops.cast(ops.ceil(ops.cast(center, "float32") - half_width), "int32")
    return ops.expand_dims(first, -1) + ops.arange(2 * half_width + 1, dtype="int32")


def in_window(positions: Tensor, center: Tensor, half_width: int) -> Tensor:
    """Tell which places, `(S,)` or `(B, T, W)`, lie within `half_width` of the centre `(B, T)`."""
    center = ops.expand_dims(ops.cast(center, "float32"), -1)
    return ops.abs(ops.cast(positions, "float32") - center) <= half_width


def gather_windows(memory: Tensor, positions: Tensor) -> Tensor:
    """Gather rows of `(B, S, ...)` at `(B, T, W)`: `(B, T, W, ...)`; outside, the nearest row."""
    batch_size, length = ops.shape(memory)[:2]
    # One gather of whole rows from all sentences laid end to end: gathering along an axis would
    # go number by number.
    first = ops.reshape(ops.arange(batch_size, dtype="int32") * length, (batch_size, 1, 1))
    index = first + ops.clip(positions, 0, length - 1)
    rows = ops.reshape(memory, (batch_size * length, *memory.shape[2:]))
    return ops.take(rows, index, axis=0)


def spread_windows(weights: Tensor, positions: Tensor, length: Tensor) -> Tensor:
    """Put weights at consecutive places `(B, T, W)` back: `(B, T, length)`, zero elsewhere."""
    width = weights.shape[2]
    offset = ops.arange(length, dtype="int32") - positions[:, :, :1]
    inside = ops.logical_and(offset >= 0, offset < width)
    spread = ops.take_along_axis(weights, ops.clip(offset, 0, width - 1), axis=2)
    return ops.where(inside, spread, ops.zeros_like(spread))
