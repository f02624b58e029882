"""The heads of attention: their projections, and the cache that self-attention reads step by step.

Shapes: `B` batch, `T` steps, `D` features, `H` heads of size `d`. A cache holds keys and values
`(B, G, L, d)` of `G` heads and `L` steps. Where `K` hypotheses of a search share a row of the
batch, it has `K` positions for each step: `(B, G, L K, d)`.
"""

import itertools
import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import keras
from keras import ops

from .shapes import joined, reshaped, sizes_from, sizes_of
from .types import Tensor, at_least_float32


def project_to_heads(
    inputs: Tensor, kernels: Sequence[Tensor], biases: Sequence[Tensor] = ()
) -> list[Tensor]:
    """Multiply `(B, T, D)` by kernels `(D, H, d)`; each product is `(B, T, H, d)`.

    All kernels are one product: they share the inputs, and the gradient of the inputs.
    """
    shapes = [tuple(kernel.shape[1:]) for kernel in kernels]
    ends = list(itertools.accumulate(math.prod(shape) for shape in shapes))[:-1]
    matrices = [ops.reshape(kernel, (kernel.shape[0], -1)) for kernel in kernels]
    bias = joined([ops.reshape(bias, (-1,)) for bias in biases], 0) if biases else None
    products = _dense(inputs, joined(matrices, 1), bias)
    parts = ops.split(products, ends, axis=-1) if ends else [products]
    steps = sizes_of(inputs)[:2]
    return [ops.reshape(part, (*steps, *shape)) for part, shape in zip(parts, shapes, strict=True)]


def project_from_heads(heads: Tensor, kernel: Tensor, bias: Tensor = None) -> Tensor:
    """Multiply `(B, T, H, d)` by a kernel `(H, d, ...)`: `(B, T, ...)`."""
    matrix = ops.reshape(kernel, (math.prod(heads.shape[2:]), -1))
    bias = None if bias is None else ops.reshape(bias, (-1,))
    return ops.reshape(_dense(heads, matrix, bias), (*sizes_of(heads)[:2], *kernel.shape[2:]))


def swap_heads(heads: Tensor) -> Tensor:
    """Exchange the axes of heads and steps: `(B, T, H, d)` is `(B, H, T, d)`, and back."""
    if 1 in heads.shape[1:3]:  # a reshape moves nothing
        batch_size, steps, count, size = sizes_of(heads)
        return ops.reshape(heads, (batch_size, count, steps, size))
    return ops.transpose(heads, (0, 2, 1, 3))


def rms_normalize(heads: Tensor, gain: Tensor, epsilon: float = 1e-6) -> Tensor:
    """Divide each head by the root mean square of its features, and multiply it by a gain."""
    squares = ops.mean(ops.square(at_least_float32(heads)), axis=-1, keepdims=True)
    return heads * ops.cast(ops.rsqrt(squares + epsilon), heads.dtype) * gain


def cache_index(index: Any, length: Any, value: Tensor) -> tuple[Any, Tensor]:
    """Return an index inside a cache of `length` steps, and the value to write there.

    A known index outside of the cache raises a ValueError. For any other, the value becomes NaN, so
    that the output of this step and of later ones is NaN. No other row is affected.
    """
    if isinstance(index, Integral) and isinstance(length, int):
        if not 0 <= int(index) < length:
            raise ValueError(
                f"`index` must lie in the {length} positions of the state; make a state of a "
                f"larger `max_length`. Received: index={index}"
            )
        return index, value
    index = ops.cast(index, "int32")
    nearest = ops.clip(index, 0, length - 1)
    return nearest, ops.where(ops.equal(nearest, index), value, float("nan"))


def write_cache(cache: dict, index: Tensor, entries: dict, copies: int = 1) -> dict:
    """Return caches `(B, G, L K, d)` with entries `(B, G, K, d)` at a step."""
    if keras.backend.backend() != "tensorflow":
        start = (0, 0, index * copies, 0)
        return {name: ops.slice_update(cache[name], start, entries[name]) for name in entries}
    # On TensorFlow `slice_update` compiles once for each shape; a scatter does not.
    batch_size, groups, length = sizes_from(cache["key"], 0)[:3]
    steps = length if copies == 1 else length // copies
    indices = ops.arange(batch_size * groups, dtype="int32") * steps + index
    written = {}
    for name, entry in entries.items():
        size = entry.shape[3]
        rows, entry = (ops.reshape(x, (-1, copies * size)) for x in (cache[name], entry))
        rows = ops.scatter_update(rows, ops.expand_dims(indices, 1), entry)
        written[name] = reshaped(rows, (batch_size, groups, length, size))
    return written


def _dense(inputs: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    """Return `x W + b` as one product of matrices, `(B T, O)`."""
    rows = ops.matmul(ops.reshape(inputs, (-1, kernel.shape[0])), kernel)
    return rows if bias is None else rows + bias
