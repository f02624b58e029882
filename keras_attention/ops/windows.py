"""Windows of a memory around a place for each query."""

from keras import ops


def window_positions(center, half_width: int):
    """Return the places of every query's window: the integers within `half_width` of its centre.

    Args:
        center: `p_t`, `(B, T)`, integer or floating point.
        half_width: `D`.

    Returns:
        int32 `(B, T, 2D + 1)`, from the first integer not below `p_t - D` on. Places outside the
        memory, and for a fractional centre the last place (past `p_t + D`), are among them: mask
        them with `in_window`.
    """
    first = ops.cast(ops.ceil(ops.cast(center, "float32") - half_width), "int32")
    return ops.expand_dims(first, -1) + ops.arange(2 * half_width + 1, dtype="int32")


def in_window(positions, center, half_width: int):
    """Tell which places lie within `half_width` of the centre.

    Args:
        positions: Integer places, `(S,)` or `(B, T, W)`.
        center: `(B, T)`.
        half_width: `D`.

    Returns:
        Boolean `(B, T, S)`, or `(B, T, W)`.
    """
    center = ops.expand_dims(ops.cast(center, "float32"), -1)
    return ops.abs(ops.cast(positions, "float32") - center) <= half_width


def gather_windows(memory, positions):
    """Gather the rows of a memory at the places of each query's window.

    Args:
        memory: `(B, S, ...)`.
        positions: Integer `(B, T, W)`; places outside the memory take its nearest row.

    Returns:
        `(B, T, W, ...)`.
    """
    batch_size, length = ops.shape(memory)[:2]
    # One gather of whole rows from all sentences laid end to end: gathering along an axis would
    # go number by number.
    first = ops.reshape(ops.arange(batch_size, dtype="int32") * length, (batch_size, 1, 1))
    index = first + ops.clip(positions, 0, length - 1)
    rows = ops.reshape(memory, (batch_size * length, *memory.shape[2:]))
    return ops.take(rows, index, axis=0)


def spread_windows(weights, positions, length):
    """Put the weights of windows back at their places in the whole memory.

    Args:
        weights: `(B, T, W)`.
        positions: Integer `(B, T, W)`, consecutive along the last axis.
        length: `S`.

    Returns:
        `(B, T, S)`, zero outside the windows.
    """
    width = weights.shape[2]
    offset = ops.arange(length, dtype="int32") - positions[:, :, :1]
    inside = ops.logical_and(offset >= 0, offset < width)
    spread = ops.take_along_axis(weights, ops.clip(offset, 0, width - 1), axis=2)
    return ops.where(inside, spread, ops.zeros_like(spread))
