"""Cross-entropy of single targets, with its gradient written out."""

from dataclasses import dataclass
from typing import Any

from keras import ops

LOGITS_AT_ONCE = 2**21
"""8 MB in float32: far larger tensors are memory that the system gives anew at each step."""


def smoothed_crossentropy(index, logits, smoothing=0.0):
    """The value of each position, with its gradient written out: softmax minus smoothed labels.

    Left to the backend, the gradients of the gather, the mean and the exponential are so many
    tensors of the logits' size, to be kept and added; here one is made and patched at the targets.

    Args:
        index: int32 `(..., 1)`, the targets.
        logits: float32 `(..., V)`.
        smoothing: The part of the probability that is spread evenly over the vocabulary.

    Returns:
        float32 `(...)`.
    """

    @ops.custom_gradient
    def crossentropy(logits):
        softmax = _Softmax.of(logits, index)

        def gradient(*args, upstream=None):
            return softmax.slope(args[0] if upstream is None else upstream, smoothing)

        return softmax.values(smoothing), gradient

    return crossentropy(logits)


def linear_crossentropy(features, kernel, bias, index, weights, smoothing=0.0):
    """The weighted sum of the cross-entropies of `softmax(features kernel + bias)`, in parts.

    Neither the logits of all rows nor their gradient ever exist: of one part of the rows after the
    other, logits and gradients are computed at once, and the gradients kept (`(N, D)`, `(D, V)` and
    `(V,)`), for the backward pass to scale. So it is for training: where no gradient is asked for,
    two products of three are for nothing.

    Args:
        features: `(N, D)`, in the dtype in which products are computed.
        kernel: `(D, V)`.
        bias: `(V,)`.
        index: int32 `(N,)`, the targets.
        weights: float32 `(N,)`, which get no gradient.
        smoothing: The part of the probability that is spread evenly over the vocabulary.

    Returns:
        A float32 scalar.
    """

    @ops.custom_gradient
    def crossentropy(features, kernel, bias):
        total, *gradients = _in_parts(features, kernel, bias, index, weights, smoothing)

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            inputs = zip(gradients, (features, kernel, bias), strict=True)
            return tuple(ops.cast(g * upstream, tensor.dtype) for g, tensor in inputs)

        return total, gradient

    # Of variables TensorFlow asks for another gradient.
    return crossentropy(features, ops.copy(kernel), ops.copy(bias))


def _in_parts(features, kernel, bias, index, weights, smoothing):
    """Return the sum of the losses and its gradients by features, kernel and bias, in float32."""
    rows, size = ops.shape(features)
    count = rows * kernel.shape[1] // LOGITS_AT_ONCE + 1
    length = -(-rows // count)

    def cut(tensor):
        """Return the parts `(count, length, ...)` of rows, the last one filled with zeros."""
        filling = ops.zeros((count * length - rows, *tensor.shape[1:]), tensor.dtype)
        filled = ops.concatenate([tensor, filling], axis=0)
        return ops.reshape(filled, (count, length, *tensor.shape[1:]))

    parts, targets, shares = cut(features), cut(index), cut(weights)
    product = ops.cast(kernel, features.dtype)
    transposed = ops.transpose(product)

    def add_part(part, total, by_features, by_kernel, by_bias):
        x = parts[part]
        logits = ops.cast(ops.matmul(x, product), "float32") + ops.cast(bias, "float32")
        softmax = _Softmax.of(logits, ops.expand_dims(targets[part], -1))
        total = total + ops.sum(softmax.values(smoothing) * shares[part])
        slope = softmax.slope(shares[part], smoothing)
        rounded = ops.cast(slope, x.dtype)
        found = ops.cast(ops.matmul(rounded, transposed), "float32")
        place = ops.reshape(ops.convert_to_tensor(part, "int32"), (1, 1))
        by_features = ops.scatter_update(by_features, place, ops.expand_dims(found, 0))
        by_kernel = by_kernel + ops.cast(ops.matmul(ops.transpose(x), rounded), "float32")
        # A sum over the rows, which TensorFlow takes less time for as a product.
        by_bias = by_bias + ops.matmul(ops.ones((length,)), slope)
        return part + 1, total, by_features, by_kernel, by_bias

    totals = (
        ops.zeros((), "float32"),
        ops.zeros((count, length, size), "float32"),
        ops.zeros(kernel.shape, "float32"),
        ops.zeros(bias.shape, "float32"),
    )
    _, total, by_features, *others = ops.while_loop(
        lambda part, *_: part < count, add_part, (0, *totals)
    )
    return total, ops.reshape(by_features, (count * length, size))[:rows], *others


@dataclass(frozen=True)
class _Softmax:
    """A softmax before its division: `exponentials / total`, and what the targets have in it."""

    index: Any  # int32 (..., 1)
    shifted: Any  # (..., V), against the largest: differences of large logits keep their digits
    exponentials: Any
    total: Any  # (..., 1)
    at_target: Any

    @classmethod
    def of(cls, logits, index):
        shifted = logits - ops.max(logits, axis=-1, keepdims=True)
        exponentials = ops.exp(shifted)  # kept for the gradient, in the place of the logits
        total = ops.sum(exponentials, axis=-1, keepdims=True)
        at_target = ops.take_along_axis(shifted, index, axis=-1)
        return cls(index, shifted, exponentials, total, at_target)

    def values(self, smoothing):
        """Return the cross-entropies `(...)`."""
        values = ops.log(self.total) - (1.0 - smoothing) * self.at_target
        if smoothing:
            values = values - smoothing * ops.mean(self.shifted, axis=-1, keepdims=True)
        return ops.squeeze(values, axis=-1)

    def slope(self, upstream, smoothing):
        """Return the gradient by the logits `(..., V)` from that by the values `(...)`."""
        vocabulary = self.exponentials.shape[-1]
        upstream = ops.expand_dims(upstream, axis=-1)
        slope = self.exponentials * (upstream / self.total)
        if smoothing:
            slope = slope - upstream * (smoothing / vocabulary)
        label = 1.0 - smoothing + smoothing / vocabulary
        patch = upstream * (ops.exp(self.at_target) / self.total - label)
        rows = ops.reshape(slope, (-1, vocabulary))
        columns = ops.reshape(self.index, (-1,))
        places = ops.stack([ops.arange(ops.shape(rows)[0], dtype="int32"), columns], axis=-1)
        rows = ops.scatter_update(rows, places, ops.reshape(patch, (-1,)))
        return ops.reshape(rows, ops.shape(slope))
