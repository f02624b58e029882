"""Encodings of positions: sinusoids, rotations, biases by distance, windows.

Angles are computed in at least float32: half precision cannot represent every position above 2048.
"""

import functools

import numpy as np
from keras import ops

from .types import Tensor, accumulator_dtype, at_least_float32


def step_positions(length: Tensor, start_index: Tensor = 0) -> Tensor:
    """Return the positions of `T` steps, int32 `(T,)`, or `(B, T)` for a `start_index` `(B,)`."""
    start = ops.cast(start_index, "int32")
    steps = ops.arange(length, dtype="int32")
    return steps + (ops.expand_dims(start, -1) if len(start.shape) else start)


def real_positions(mask: Tensor, sequence: Tensor) -> Tensor:
    """Return the positions of the steps of a sequence, int32 `(B, S)`, without counting padding.

    With a mask `(B, S)` the position of a real step is the number of real steps before it. A padded
    step has the position of the real step before it, or 0.
    """
    if mask is not None:
        return ops.maximum(ops.cumsum(ops.cast(mask, "int32"), axis=1) - 1, 0)
    batch_size, length = ops.shape(sequence)[:2]
    return ops.broadcast_to(ops.arange(length, dtype="int32"), (batch_size, length))


def real_order(mask: Tensor, positions: Tensor) -> Tensor:
    """Return the indices of the real steps of masks `(B, S)` in order, int32 `(B, S)`.

    This is the inverse of their `real_positions`. A row ends with a zero for each padded step.
    """
    batch_size, length = ops.shape(mask)
    # Padded steps add 0, whatever their position.
    steps = ops.cast(mask, "int32") * ops.arange(length, dtype="int32")
    rows = ops.arange(batch_size, dtype="int32") * length
    total = ops.segment_sum(
        ops.reshape(steps, (-1,)),
        ops.reshape(ops.expand_dims(rows, 1) + positions, (-1,)),
        num_segments=batch_size * length,
    )
    return ops.reshape(total, (batch_size, length))


def sinusoids(
    positions: Tensor,
    size: int,
    max_wavelength: float = 10_000.0,
    layout: str = "interleaved",
    endpoint: bool = False,
    dtype: str = "float32",
) -> Tensor:
    """Return sines and cosines of each position times each frequency, `(..., size)`.

    Frequencies are `w^(-2i/D)`, or with `endpoint` `w^(-i/(D/2 - 1))`, the last of which is `1/w`.
    In the layout `"interleaved"` each sine is followed by its cosine; in `"halves"` all sines come
    first. An odd `size` has one sine more than cosines.
    """
    angles = _angles(positions, size, max_wavelength, dtype, endpoint)
    sines, cosines = ops.sin(angles), ops.cos(angles)
    if layout == "halves":
        return ops.concatenate([sines, cosines[..., : size // 2]], axis=-1)
    pairs = ops.stack([sines, cosines], axis=-1)
    return ops.reshape(pairs, (*ops.shape(angles)[:-1], size + size % 2))[..., :size]


def rotate(
    x: Tensor,
    positions: Tensor,
    max_wavelength: float = 10_000.0,
    size: int | None = None,
    scaling: float = 1.0,
) -> Tensor:
    """Rotate pairs of the first `size` features of `(..., T, D)` by angles of their position `p`.

    Features `i` of both halves are a pair, rotated by the angle `p w^(-2i/D)`: `(a, b)` becomes
    `(a cos - b sin, b cos + a sin)`. Positions, divided by `scaling`, broadcast to the shape of `x`
    without its last axis. Su et al. 2021, section 3.2.2, which pairs neighbours; trained models
    pair halves, as here.
    """
    size = x.shape[-1] if size is None else size
    if size % 2:
        raise ValueError(
            "Rotary positions rotate pairs of features, so their number must be even. "
            f"Received: size={size}, x of shape {tuple(x.shape)}"
        )
    rotated = at_least_float32(x)
    dtype = accumulator_dtype(x.dtype)
    if scaling != 1:
        positions = ops.cast(positions, dtype) / scaling
    angles = _angles(positions, size, max_wavelength, dtype)
    cosine, sine = ops.cos(angles), ops.sin(angles)
    first, second = rotated[..., : size // 2], rotated[..., size // 2 : size]
    parts = [first * cosine - second * sine, second * cosine + first * sine]
    rest = [] if size == x.shape[-1] else [rotated[..., size:]]
    return ops.cast(ops.concatenate(parts + rest, axis=-1), x.dtype)


def alibi_slopes(num_heads: int, dtype: str = "float32") -> Tensor:
    """Return the slope `(num_heads,)` of each head's linear bias (Press et al. 2022).

    For `H` heads, a power of two, slope `h` is `2^(-8h/H)`, `h` from 1. Other numbers of heads take
    the slopes of the power below, then every other one of the power above.
    """
    if num_heads < 1:
        raise ValueError(f"`num_heads` must be positive. Received: num_heads={num_heads}")
    below = 2 ** (num_heads.bit_length() - 1)
    slopes = _slopes(below) + _slopes(2 * below)[::2][: num_heads - below]
    return ops.convert_to_tensor(np.array(slopes, dtype))


def relative_buckets(
    relative_positions: Tensor,
    num_buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> Tensor:
    """Return the buckets of distances, key minus query (Raffel et al. 2020, section 2.1).

    With `n` buckets for a direction, each distance below `n/2` has a bucket. Distances up to
    `max_distance` share the others, whose width grows geometrically. Keys after the query have the
    upper half of the buckets with `bidirectional`, otherwise the bucket of distance 0.
    """
    table = ops.convert_to_tensor(_bucket_table(num_buckets, max_distance, bidirectional))
    relative = ops.cast(relative_positions, "int32")
    distance = ops.abs(relative) if bidirectional else ops.maximum(-relative, 0)
    buckets = ops.take(table, ops.minimum(distance, max_distance), axis=0)
    if not bidirectional:
        return buckets
    return buckets + ops.cast(relative > 0, "int32") * (num_buckets // 2)


def window_positions(center: Tensor, half_width: int) -> Tensor:
    """Return the integers from `p_t - D`, int32 `(B, T, 2D + 1)`; `in_window` is their mask."""
    first = ops.cast(ops.ceil(at_least_float32(center) - half_width), "int32")
    return ops.expand_dims(first, -1) + ops.arange(2 * half_width + 1, dtype="int32")


def in_window(positions: Tensor, center: Tensor, half_width: int) -> Tensor:
    """Return whether positions `(S,)` or `(B, T, W)` lie within `half_width` of a centre."""
    center = ops.expand_dims(at_least_float32(center), -1)
    return ops.abs(ops.cast(positions, center.dtype) - center) <= half_width


def gather_windows(memory: Tensor, positions: Tensor) -> Tensor:
    """Gather rows of `(B, S, ...)` at `(B, T, W)`: `(B, T, W, ...)`.

    A position outside of the memory takes the nearest row.
    """
    batch_size, length = ops.shape(memory)[:2]
    # A gather of whole rows from all sentences: a gather along an axis copies number by number.
    first = ops.reshape(ops.arange(batch_size, dtype="int32") * length, (batch_size, 1, 1))
    index = first + ops.clip(positions, 0, length - 1)
    rows = ops.reshape(memory, (batch_size * length, *memory.shape[2:]))
    if memory.shape[0] == 0:  # JAX drops the axes of an empty index
        return ops.zeros((*ops.shape(index), *memory.shape[2:]), memory.dtype)
    return ops.take(rows, index, axis=0)


def gather_rows(table: Tensor, positions: Tensor) -> Tensor:
    """Gather rows of a table `(T, D)`, or of each example's `(B, T, D)`, at positions `(B, T)`."""
    if len(table.shape) == 2:
        return ops.take(table, positions, axis=0)
    return ops.squeeze(gather_windows(table, ops.expand_dims(positions, 1)), 1)


def spread_windows(weights: Tensor, positions: Tensor, of_memory: Tensor) -> Tensor:
    """Scatter weights at consecutive positions `(B, T, W)` over a memory, `(B, T, S)`.

    `of_memory` are the positions `(B, 1, S)` of the memory. Those outside of a window get 0.
    """
    width = weights.shape[2]
    offset = of_memory - positions[:, :, :1]
    inside = ops.logical_and(offset >= 0, offset < width)
    spread = ops.take_along_axis(weights, ops.clip(offset, 0, width - 1), axis=2)
    return ops.where(inside, spread, ops.zeros_like(spread))


def _angles(
    positions: Tensor, size: int, max_wavelength: float, dtype: str, endpoint: bool = False
) -> Tensor:
    """Return each position times each frequency, `(..., ceil(size / 2))`."""
    steps = np.arange((size + 1) // 2)
    exponents = steps / max(1, len(steps) - 1) if endpoint else 2 * steps / size
    frequencies = float(max_wavelength) ** -exponents
    positions = ops.expand_dims(ops.cast(positions, dtype), -1)
    return ops.multiply(positions, frequencies.astype(dtype))


def _slopes(power: int) -> list[float]:
    return [2.0 ** (-8.0 * (head + 1) / power) for head in range(power)]


@functools.cache
def _bucket_table(num_buckets: int, max_distance: int, bidirectional: bool) -> np.ndarray:
    """Return the bucket of each distance up to `max_distance`."""
    directions = 2 if bidirectional else 1
    buckets = num_buckets // directions
    exact = buckets // 2
    if num_buckets % directions or exact < 1 or max_distance <= exact:
        raise ValueError(
            f"`num_buckets` must be {'even and at least 4' if bidirectional else 'at least 2'}, "
            "and `max_distance` greater than the number of distances with a bucket of their own. "
            f"Received: num_buckets={num_buckets}, max_distance={max_distance}, "
            f"bidirectional={bidirectional}"
        )
    distance = np.arange(max_distance + 1)
    # Rounding must not move a distance on the border to the lower bucket.
    ratio = np.log(np.maximum(distance, exact) / exact) / np.log(max_distance / exact) + 1e-9
    far = exact + np.floor(ratio * (buckets - exact))
    return np.where(distance < exact, distance, np.minimum(far, buckets - 1)).astype("int32")
