"""Projections of inputs to heads, and of heads to an output.

Shapes: `B` batch, `T` steps, `D` features, `H` heads of size `d`.
"""

import itertools
import math
from collections.abc import Sequence

from keras import ops

from .shapes import joined, sizes_of
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


def _dense(inputs: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    """Return `x W + b` as one product of matrices, `(B T, O)`."""
    rows = ops.matmul(ops.reshape(inputs, (-1, kernel.shape[0])), kernel)
    return rows if bias is None else rows + bias
