"""Normalizers, which turn scores into weights, and their gradients.

Each normalizer takes floating point scores and a boolean mask that broadcasts to them (True =
attend, or `None`). It returns weights of the same shape and dtype, computed in at least float32,
which sum to 1 over the last axis, those of `softmax1` to less. Masked positions get exactly 0, also
where a whole row is masked,
and gradients stay finite. Sparsemax and entmax-1.5 are exact, without iterations.
"""

from collections.abc import Callable

from keras import backend, ops

from .types import Tensor, accumulator_dtype
from .vjp import with_gradient


def masked_softmax(scores: Tensor, mask: Tensor = None) -> Tensor:
    """Softmax over the unmasked positions: `a_s = m_s exp(e_s) / sum_j m_j exp(e_j)`."""
    dtype = backend.standardize_dtype(scores.dtype)
    if 0 in scores.shape:
        return scores  # Keras refuses the maximum of an empty tensor
    scores = ops.cast(scores, accumulator_dtype(dtype))
    if mask is None and scores.shape[-1] == 1:
        mask = ops.ones_like(scores, dtype="bool")  # Keras' softmax warns of a single position
    if mask is None:
        return ops.cast(ops.softmax(scores, axis=-1), dtype)
    mask = ops.cast(mask, "bool")
    # Finite: with -inf a row without positions would compute inf - inf.
    scores = ops.where(mask, scores, -1e30)
    scores = scores - ops.stop_gradient(ops.max(scores, axis=-1, keepdims=True))
    exponentials = ops.where(mask, ops.exp(scores), 0.0)
    total = ops.sum(exponentials, axis=-1, keepdims=True)
    # A row without positions divides by 1. `maximum(total, 1)` would tie where the sum is 1, and
    # JAX and PyTorch halve the gradient of a tie.
    total = ops.where(total > 0, total, 1.0)
    return ops.cast(exponentials / total, dtype)


def softmax1(scores: Tensor, mask: Tensor = None, sink: Tensor = 0.0) -> Tensor:
    """Softmax beside a sink, which takes a part of the weight and is not read.

    `a_s = exp(e_s) / (exp(z) + sum_j exp(e_j))`, over the unmasked positions. With `z = 0` this is
    softmax off by one (Miller 2023); a learned `z` is that of gpt-oss (OpenAI 2025).

    Args:
        scores: Scores `(..., S)`.
        mask: Boolean, True = attend.
        sink: The logit `z` of the sink; it broadcasts to `(..., 1)`.
    """
    if 0 in scores.shape:
        return scores
    dtype = backend.standardize_dtype(scores.dtype)
    scores = ops.cast(scores, accumulator_dtype(dtype))
    if mask is not None:
        scores = ops.where(mask, scores, -1e30)
    sink = ops.cast(sink, scores.dtype)
    highest = ops.stop_gradient(ops.maximum(ops.max(scores, axis=-1, keepdims=True), sink))
    exponentials = ops.exp(scores - highest)
    if mask is not None:
        exponentials = ops.where(mask, exponentials, 0.0)
    total = ops.exp(sink - highest) + ops.sum(exponentials, axis=-1, keepdims=True)
    return ops.cast(exponentials / total, dtype)


def sink_gradient(weights: Tensor, d_weights: Tensor, inner: Tensor = None) -> Tensor:
    """The gradient of the logit of the sink, `(..., 1)`, from that of the weights of `softmax1`."""
    if inner is None:
        inner = ops.sum(weights * d_weights, axis=-1, keepdims=True)
    return (ops.sum(weights, axis=-1, keepdims=True) - 1) * inner


def sparsemax(scores: Tensor, mask: Tensor = None) -> Tensor:
    """The distribution nearest to the scores: `argmin_p ||p - e||^2`.

    `a_s = max(e_s - tau, 0)`, with `tau` such that the weights sum to 1: 0 for scores more than 1
    below the highest. Martins and Astudillo 2016, algorithm 1 and equation 13.
    """
    return _normalize(scores, mask, sparsemax_weights, sparsemax_gradient, sparsemax_on_support)


def entmax15(scores: Tensor, mask: Tensor = None) -> Tensor:
    """Entmax with `alpha = 1.5`, between softmax (1) and sparsemax (2).

    `a_s = max(e_s / 2 - tau, 0)^2`, with `tau` such that the weights sum to 1: 0 for scores more
    than 2 below the highest. Peters, Niculae and Martins 2019, algorithm 2 and proposition 2.
    """
    return _normalize(scores, mask, entmax15_weights, entmax15_gradient, entmax15_on_support)


def sparsemax_weights(scores: Tensor, mask: Tensor = None) -> Tensor:
    """Sparsemax over the last axis in the dtype of the scores, without a custom gradient."""
    scores = _below_highest(scores, mask)
    ordered = ops.flip(ops.sort(scores, axis=-1), axis=-1)
    rank = _ranks(ordered)
    total = ops.cumsum(ordered, axis=-1) - 1
    # The support is a prefix of the sorted scores: those that lie above its threshold.
    count = ops.sum(ops.cast(rank * ordered > total, ordered.dtype), axis=-1, keepdims=True)
    threshold = _at(total, count) / count
    return _clear(ops.maximum(scores - threshold, 0), mask)


def softmax_gradient(weights: Tensor, d_weights: Tensor, inner: Tensor = None) -> Tensor:
    """The gradient of the scores from that of the weights, over the last axis.

    `inner` is the sum of the weights times their gradients, where it is known already.
    """
    if inner is None:
        inner = ops.sum(weights * d_weights, axis=-1, keepdims=True)
    return weights * (d_weights - inner)


def sparsemax_gradient(weights: Tensor, d_weights: Tensor, inner: Tensor = None) -> Tensor:
    """The gradient of the scores from that of the weights; `inner` is not needed."""
    support = ops.cast(weights > 0, weights.dtype)
    return support * (d_weights - _mean(d_weights, support))


def sparsemax_on_support(scores: Tensor, weights: Tensor) -> Tensor:
    """Sparsemax by operations with derivatives, on the support of its `weights`."""
    support, count, scores = _supported(scores, weights)
    threshold = (ops.sum(scores, axis=-1, keepdims=True) - 1) / count
    return ops.where(support, scores - threshold, ops.zeros_like(scores))


def entmax15_weights(scores: Tensor, mask: Tensor = None) -> Tensor:
    """Entmax-1.5 over the last axis in the dtype of the scores, without a custom gradient."""
    scores = _below_highest(scores / 2, mask)
    ordered = ops.flip(ops.sort(scores, axis=-1), axis=-1)
    rank = _ranks(ordered)
    mean = ops.cumsum(ordered, axis=-1) / rank
    variance = ops.cumsum(ordered * ordered, axis=-1) / rank - mean * mean
    thresholds = mean - ops.sqrt(ops.maximum(1 / rank - variance, 0))
    inside = ops.cast(thresholds <= ordered, ordered.dtype)
    threshold = _at(thresholds, ops.sum(inside, axis=-1, keepdims=True))
    roots = ops.maximum(scores - threshold, 0)
    return _clear(roots * roots, mask)


def entmax15_gradient(weights: Tensor, d_weights: Tensor, inner: Tensor = None) -> Tensor:
    """The gradient of the scores from that of the weights; `inner` is not needed."""
    roots = ops.sqrt(weights)
    return roots * (d_weights - _mean(d_weights, roots))


def _normalize(
    scores: Tensor,
    mask: Tensor,
    weights_of: Callable,
    gradient_of: Callable,
    on_support: Callable,
) -> Tensor:
    dtype = backend.standardize_dtype(scores.dtype)
    if 0 in scores.shape:
        return scores  # Keras refuses the maximum of an empty tensor
    scores = ops.cast(scores, accumulator_dtype(dtype))
    mask = None if mask is None else ops.cast(mask, "bool")

    def normalized(scores: Tensor) -> tuple:
        weights = weights_of(scores, mask)
        return weights, lambda upstream: gradient_of(weights, upstream)

    def plain(scores: Tensor) -> Tensor:
        return on_support(scores, weights_of(ops.stop_gradient(scores), mask))

    return ops.cast(with_gradient(normalized, plain)(scores), dtype)


def entmax15_on_support(scores: Tensor, weights: Tensor) -> Tensor:
    """Entmax-1.5 by operations with derivatives, on the support of its `weights`."""
    support, count, scores = _supported(scores / 2, weights)
    mean = ops.sum(scores, axis=-1, keepdims=True) / count
    apart = ops.where(support, scores - mean, ops.zeros_like(scores))
    variance = ops.sum(apart * apart, axis=-1, keepdims=True) / count
    roots = apart + ops.sqrt(1 / count - variance)
    return ops.where(support, roots * roots, ops.zeros_like(scores))


def _supported(scores: Tensor, weights: Tensor) -> tuple:
    """Return the support of weights, its size, and the scores there minus their maximum."""
    support = ops.stop_gradient(weights) > 0
    count = ops.sum(ops.cast(support, scores.dtype), axis=-1, keepdims=True)
    highest = ops.max(ops.where(support, scores, -1e30), axis=-1, keepdims=True)
    scores = ops.where(support, scores - ops.stop_gradient(highest), ops.zeros_like(scores))
    return support, ops.maximum(count, 1), scores


def _below_highest(scores: Tensor, mask: Tensor) -> Tensor:
    """Return scores minus the maximum of their row, at least -2: sums stay small."""
    if mask is not None:
        scores = ops.where(mask, scores, ops.full_like(scores, -1e30))
    return ops.maximum(scores - ops.max(scores, axis=-1, keepdims=True), -2)


def _clear(weights: Tensor, mask: Tensor) -> Tensor:
    return weights if mask is None else ops.where(mask, weights, ops.zeros_like(weights))


def _ranks(ordered: Tensor) -> Tensor:
    """Return 1, 2, 3, ... along the last axis."""
    return ops.arange(1, ops.shape(ordered)[-1] + 1, dtype=ordered.dtype)


def _at(values: Tensor, count: Tensor) -> Tensor:
    """Return the entry of each row at a rank, counted from 1."""
    return ops.take_along_axis(values, ops.cast(count, "int32") - 1, axis=-1)


def _mean(upstream: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted mean of `upstream`, or 0 where all weights are 0."""
    total = ops.sum(weights, axis=-1, keepdims=True)
    total = ops.where(total > 0, total, ops.ones_like(total))
    return ops.sum(weights * upstream, axis=-1, keepdims=True) / total


NORMALIZERS = {
    "softmax": masked_softmax,
    "softmax1": softmax1,
    "sparsemax": sparsemax,
    "entmax15": entmax15,
}
GRADIENTS = {
    "softmax": softmax_gradient,
    "softmax1": softmax_gradient,
    "sparsemax": sparsemax_gradient,
    "entmax15": entmax15_gradient,
}
