"""Positions in numbers: sinusoids, rotations, biases by distance, windows. At least in float32.

A half-precision number cannot tell position 2049 from position 2048, so angles are never computed
in one.
"""

import functools

import numpy as np
from keras import ops

from .types import Tensor, accumulator_dtype, at_least_float32


def places(length: Tensor, start_index: Tensor = 0) -> Tensor:
    """Return the places of `T` steps, int32 `(T,)`; of a `start_index` `(B,)`, `(B, T)`."""
    start = ops.cast(start_index, "int32")
    steps = ops.arange(length, dtype="int32")
    return steps + (ops.expand_dims(start, -1) if len(start.shape) else start)


def real_positions(mask: Tensor, sequence: Tensor) -> Tensor:
    """Return the positions of a sequence's steps, int32 `(B, S)`; padding does not count.

    With a mask `(B, S)` a real step has the number of real steps before it. A padded step has the
    position of the real step before it, or 0.
    """
    if mask is not None:
        return ops.maximum(ops.cumsum(ops.cast(mask, "int32"), axis=1) - 1, 0)
    batch_size, length = ops.shape(sequence)[:2]
    return ops.broadcast_to(ops.arange(length, dtype="int32"), (batch_size, length))


def real_order(mask: Tensor, positions: Tensor) -> Tensor:
    """Return where the real steps of masks `(B, S)` are, one after the other, int32 `(B, S)`.

    It is the inverse of their `real_positions`. Rows end on zeros, one for each padded step.
    """
    batch_size, length = ops.shape(mask)
    # Padded steps add 0 wherever they are put.
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
    """Return sines and cosines of every position times each frequency: one more axis, of `size`.

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
    """Turn pairs of the first `size` features of `(..., T, D)` by angles that grow with the place.

    Features `i` of both halves are a pair, turned by `p w^(-2i/D)`: `(a, b)` becomes
    `(a cos - b sin, b cos + a sin)`. Places, divided by `scaling`, broadcast to the shape of `x`
    without its last axis. (Su et al. 2021, section 3.2.2, pairs neighbours; checkpoints, halves.)
    """
    size = x.shape[-1] if size is None else size
    if size % 2:
        raise ValueError(
            "Rotary positions turn pairs of features, so their number must be even. "
            f"Received: size={size}, x of shape {tuple(x.shape)}"
        )
    turned = at_least_float32(x)
    dtype = accumulator_dtype(x.dtype)
    if scaling != 1:
        positions = ops.cast(positions, dtype) / scaling
    angles = _angles(positions, size, max_wavelength, dtype)
    cosine, sine = ops.cos(angles), ops.sin(angles)
    first, second = turned[..., : size // 2], turned[..., size // 2 : size]
    parts = [first * cosine - second * sine, second * cosine + first * sine]
    rest = [] if size == x.shape[-1] else [turned[..., size:]]
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
    """Sort distances (key less query) into buckets: near ones one by one, far ones by logarithm.

    With `n` buckets for a direction, distances below `n/2` have one each; those up to
    `max_distance` share the others, which widen geometrically. Keys after the query have the upper
    half with `bidirectional`, else the bucket of distance 0 (Raffel et al. 2020, section 2.1).
    """
    table = ops.convert_to_tensor(_bucket_table(num_buckets, max_distance, bidirectional))
    relative = ops.cast(relative_positions, "int32")
    distance = ops.abs(relative) if bidirectional else ops.maximum(-relative, 0)
    buckets = ops.take(table, ops.minimum(distance, max_distance), axis=0)
    if not bidirectional:
        return buckets
    return buckets + ops.cast(relative > 0, "int32") * (num_buckets // 2)


def window_positions(center: Tensor, half_width: int) -> Tensor:
    """Return the integers from `p_t - D` on, int32 `(B, T, 2D + 1)`; mask them with `in_window`."""
    first = ops.cast(ops.ceil(at_least_float32(center) - half_width), "int32")
    return ops.expand_dims(first, -1) + ops.arange(2 * half_width + 1, dtype="int32")


def in_window(positions: Tensor, center: Tensor, half_width: int) -> Tensor:
    """Tell which places, `(S,)` or `(B, T, W)`, lie within `half_width` of the centre `(B, T)`."""
    center = ops.expand_dims(at_least_float32(center), -1)
    return ops.abs(ops.cast(positions, center.dtype) - center) <= half_width


def gather_windows(memory: Tensor, positions: Tensor) -> Tensor:
    """Gather rows of `(B, S, ...)` at `(B, T, W)`: `(B, T, W, ...)`; outside, the nearest row."""
    batch_size, length = ops.shape(memory)[:2]
    # One gather of whole rows, all sentences end to end: along an axis it goes number by number.
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
    """Put weights at consecutive positions `(B, T, W)` back to a memory, `(B, T, S)`.

    `of_memory` has the positions `(B, 1, S)` of the memory; those outside of a window get 0.
    """
    width = weights.shape[2]
    offset = of_memory - positions[:, :, :1]
    inside = ops.logical_and(offset >= 0, offset < width)
    spread = ops.take_along_axis(weights, ops.clip(offset, 0, width - 1), axis=2)
    return ops.where(inside, spread, ops.zeros_like(spread))


def _angles(
    positions: Tensor, size: int, max_wavelength: float, dtype: str, endpoint: bool = False
) -> Tensor:
    """Every position times every frequency: one more axis, of half the size."""
    steps = np.arange((size + 1) // 2)
    exponents = steps / max(1, len(steps) - 1) if endpoint else 2 * steps / size
    frequencies = float(max_wavelength) ** -exponents
    positions = ops.expand_dims(ops.cast(positions, dtype), -1)
    return ops.multiply(positions, frequencies.astype(dtype))


def _slopes(power: int) -> list[float]:
    return [2.0 ** (-8.0 * (head + 1) / power) for head in range(power)]


@functools.cache
def _bucket_table(num_buckets: int, max_distance: int, bidirectional: bool) -> np.ndarray:
    """The bucket of each distance up to `max_distance`."""
    directions = 2 if bidirectional else 1
    buckets = num_buckets // directions
    exact = buckets // 2
    if num_buckets % directions or exact < 1 or max_distance <= exact:
        raise ValueError(
            f"`num_buckets` must be {'even and at least 4' if bidirectional else 'at least 2'}, "
            "and `max_distance` more than the distances with a bucket each. "
            f"Received: num_buckets={num_buckets}, max_distance={max_distance}, "
            f"bidirectional={bidirectional}"
        )
    distance = np.arange(max_distance + 1)
    # A hair more: rounding must not move a distance on the border to the nearer bucket.
    ratio = np.log(np.maximum(distance, exact) / exact) / np.log(max_distance / exact) + 1e-9
    far = exact + np.floor(ratio * (buckets - exact))
    return np.where(distance < exact, distance, np.minimum(far, buckets - 1)).astype("int32")
