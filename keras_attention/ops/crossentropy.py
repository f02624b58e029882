"""Cross-entropy of single targets, with its gradient written out."""

import math
from dataclasses import dataclass

from keras import ops

from .masks import zero_masked
from .types import Tensor, accumulator_dtype, at_least_float32
from .vjp import with_gradient

LOGITS_AT_ONCE = 2**21  # 8 MB; the system would give far larger tensors anew at each step


def smoothed_crossentropy(index: Tensor, logits: Tensor, smoothing: float = 0.0) -> Tensor:
    """The cross-entropies `(...)` of targets `(..., 1)` and logits `(..., V)`.

    Its gradient is one tensor of the logits' size; left to the backend there are several.
    """

    def crossentropy(logits: Tensor) -> tuple:
        softmax = _Softmax.of(logits, index)
        return softmax.values(smoothing), lambda upstream: softmax.slope(upstream, smoothing)

    def plain(logits: Tensor) -> Tensor:
        return _Softmax.of(logits, index).values(smoothing)

    return with_gradient(crossentropy, plain)(logits)


def linear_crossentropy(
    features: Tensor,
    kernel: Tensor,
    bias: Tensor,
    index: Tensor,
    weights: Tensor,
    smoothing: float = 0.0,
) -> Tensor:
    """The weighted sum of the cross-entropies of `softmax(features kernel + bias)`, part by part.

    Takes features `(N, D)`, a kernel `(D, V)`, a bias `(V,)`, targets `(N,)` and weights `(N,)`.
    """

    def crossentropy(features: Tensor, kernel: Tensor, bias: Tensor) -> tuple:
        total, *gradients = _in_parts(features, kernel, bias, index, weights, smoothing)

        def gradient(upstream: Tensor) -> tuple:
            inputs = zip(gradients, (features, kernel, bias), strict=True)
            return tuple(ops.cast(g * upstream, tensor.dtype) for g, tensor in inputs)

        return total, gradient

    def plain(features: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
        dtype = accumulator_dtype(features.dtype)
        features = zero_masked(features, weights != 0)
        logits = at_least_float32(ops.matmul(features, ops.cast(kernel, features.dtype)))
        softmax = _Softmax.of(logits + ops.cast(bias, dtype), ops.expand_dims(index, -1))
        return ops.sum(softmax.values(smoothing) * ops.cast(weights, dtype))

    # Of variables TensorFlow asks for another gradient.
    return with_gradient(crossentropy, plain)(features, ops.copy(kernel), ops.copy(bias))


def _in_parts(
    features: Tensor,
    kernel: Tensor,
    bias: Tensor,
    index: Tensor,
    weights: Tensor,
    smoothing: float,
) -> tuple:
    """Return the sum of the losses and its gradients by features, kernel and bias.

    Products have the precision of the features; all else is at least float32.
    """
    dtype = accumulator_dtype(features.dtype)
    weights = ops.cast(weights, dtype)
    # Rows without weight may hold NaN, which a product with a gradient of 0 would spread.
    features = zero_masked(features, weights != 0)
    rows, size = ops.shape(features)
    count = rows * kernel.shape[1] // LOGITS_AT_ONCE + 1
    length = -(-rows // count)
    # At least 1, as a replica may have no rows.
    length = max(length, 1) if isinstance(length, int) else ops.maximum(length, 1)

    def cut(tensor: Tensor) -> Tensor:
        """Return the parts `(count, length, ...)` of rows, the last one filled with zeros."""
        filling = ops.zeros((count * length - rows, *tensor.shape[1:]), tensor.dtype)
        filled = ops.concatenate([tensor, filling], axis=0)
        return ops.reshape(filled, (count, length, *tensor.shape[1:]))

    parts, targets, shares = cut(features), cut(index), cut(weights)
    product = ops.cast(kernel, features.dtype)
    transposed = ops.transpose(product)

    def add_part(
        part: Tensor, total: Tensor, by_features: Tensor, by_kernel: Tensor, by_bias: Tensor
    ) -> tuple:
        x = parts[part]
        logits = at_least_float32(ops.matmul(x, product)) + ops.cast(bias, dtype)
        softmax = _Softmax.of(logits, ops.expand_dims(targets[part], -1))
        values = softmax.values(smoothing)
        slope = softmax.slope(shares[part], smoothing)
        total = total + ops.sum(values * shares[part])
        rounded = ops.cast(slope, x.dtype)
        found = at_least_float32(ops.matmul(rounded, transposed))
        place = ops.reshape(ops.convert_to_tensor(part, "int32"), (1, 1))
        by_features = ops.scatter_update(by_features, place, ops.expand_dims(found, 0))
        by_kernel = by_kernel + at_least_float32(ops.matmul(ops.transpose(x), rounded))
        # A sum over the rows, which TensorFlow takes less time for as a product.
        by_bias = by_bias + ops.matmul(ops.ones((length,), dtype), slope)
        return part + 1, total, by_features, by_kernel, by_bias

    shapes = ((), (count, length, size), kernel.shape, bias.shape)
    totals = [ops.zeros(shape, dtype) for shape in shapes]
    _, total, by_features, *others = ops.while_loop(
        lambda part, *_: part < count, add_part, (0, *totals)
    )
    return total, ops.reshape(by_features, (count * length, size))[:rows], *others


@dataclass(frozen=True)
class _Softmax:
    """A softmax before its division: `exponentials / total`, and what the targets have in it."""

    index: Tensor  # int32 (..., 1)
    shifted: Tensor  # (..., V), against the largest: differences of large logits keep their digits
    exponentials: Tensor
    total: Tensor  # (..., 1)
    at_target: Tensor

    @classmethod
    def of(cls, logits: Tensor, index: Tensor) -> "_Softmax":
        highest = ops.max(logits, axis=-1, keepdims=True, initial=-math.inf)
        shifted = logits - ops.stop_gradient(highest)
        exponentials = ops.exp(shifted)  # kept for the gradient, in the place of the logits
        total = ops.sum(exponentials, axis=-1, keepdims=True)
        at_target = ops.take_along_axis(shifted, index, axis=-1)
        return cls(index, shifted, exponentials, total, at_target)

    def values(self, smoothing: float) -> Tensor:
        """Return the cross-entropies `(...)`."""
        values = ops.log(self.total) - (1.0 - smoothing) * self.at_target
        if smoothing:
            values = values - smoothing * ops.mean(self.shifted, axis=-1, keepdims=True)
        return ops.squeeze(values, axis=-1)

    def slope(self, upstream: Tensor, smoothing: float) -> Tensor:
        """Return the gradient by the logits `(..., V)` from that by the values `(...)`."""
        vocabulary = self.exponentials.shape[-1]
        upstream = ops.expand_dims(upstream, axis=-1)
        # A row without a gradient may hold NaN, which 0 would not clear.
        has_gradient = upstream != 0
        slope = ops.where(has_gradient, self.exponentials * (upstream / self.total), 0.0)
        if smoothing:
            slope = slope - upstream * (smoothing / vocabulary)
        label = 1.0 - smoothing + smoothing / vocabulary
        patch = upstream * (ops.exp(self.at_target) / self.total - label)
        patch = ops.where(has_gradient, patch, 0.0)
        rows = ops.reshape(slope, (-1, vocabulary))
        columns = ops.reshape(self.index, (-1,))
        places = ops.stack([ops.arange(ops.shape(rows)[0], dtype="int32"), columns], axis=-1)
        rows = ops.scatter_update(rows, places, ops.reshape(patch, (-1,)))
        return ops.reshape(rows, ops.shape(slope))
