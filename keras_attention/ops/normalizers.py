"""From scores to weights.

Each normaliser takes floating point scores and a boolean mask that broadcasts to them (True =
attend, or `None`). It returns weights of the scores' shape and dtype, computed in float32 or wider,
which sum to 1 over the last axis. Masked positions get exactly 0, also in a row that is masked
whole, and gradients stay finite. Sparsemax and entmax-1.5 are exact: no iterations.
"""

from collections.abc import Callable

from keras import backend, ops

from .types import Tensor, accumulator_dtype
from .vjp import with_gradient


def masked_softmax(scores: Tensor, mask: Tensor = None) -> Tensor:
    """Softmax over the positions that a mask leaves: `a_s = m_s exp(e_s) / sum_j m_j exp(e_j)`."""
    dtype = backend.standardize_dtype(scores.dtype)
    if 0 in scores.shape:
        return scores  # nothing to weigh, and Keras refuses the maximum of an empty tensor
    scores = ops.cast(scores, accumulator_dtype(dtype))
    if mask is None and scores.shape[-1] == 1:
        mask = ops.ones_like(scores, dtype="bool")  # Keras' softmax warns of a single position
    if mask is None:
        return ops.cast(ops.softmax(scores, axis=-1), dtype)
    mask = ops.cast(mask, "bool")
    # A finite stand-in, not -inf: an empty row then has the maximum of itself and no 0/0.
    scores = ops.where(mask, scores, -1e30)
    scores = scores - ops.stop_gradient(ops.max(scores, axis=-1, keepdims=True))
    exponentials = ops.where(mask, ops.exp(scores), 0.0)
    total = ops.sum(exponentials, axis=-1, keepdims=True)
    # An empty row divides by 1. Not `maximum(total, 1)`: the sum of a row with one weight of 1 is
    # a tie, of which JAX and PyTorch pass on half the gradient.
    total = ops.where(total > 0, total, 1.0)
    return ops.cast(exponentials / total, dtype)


def softmax_gradient(weights: Tensor, upstream: Tensor) -> Tensor:
    """The gradient of the scores from that of the weights, over the last axis."""
    return weights * (upstream - ops.sum(weights * upstream, axis=-1, keepdims=True))


def sparsemax(scores: Tensor, mask: Tensor = None) -> Tensor:
    """The weights that lie nearest to the scores: `argmin_p ||p - e||^2`, p a distribution.

    `a_s = max(e_s - tau, 0)`, with `tau` such that the weights sum to 1: 0 for scores more than 1
    below the highest. Martins and Astudillo 2016, algorithm 1 and equation 13.
    """
    return _normalize(scores, mask, sparsemax_weights, sparsemax_gradient, sparsemax_on_support)


def entmax15(scores: Tensor, mask: Tensor = None) -> Tensor:
    """Entmax with alpha = 1.5, half way from softmax to sparsemax.

    `a_s = max(e_s / 2 - tau, 0)^2`, with `tau` such that the weights sum to 1: 0 for scores more
    than 2 below the highest. Peters, Niculae and Martins 2019, algorithm 2 and proposition 2.
    """
    return _normalize(scores, mask, entmax15_weights, entmax15_gradient, entmax15_on_support)


def sparsemax_weights(scores: Tensor, mask: Tensor = None) -> Tensor:
    """Sparsemax over the last axis, in the scores' own dtype, without a gradient of its own."""
    scores = _below_highest(scores, mask)
    ordered = ops.flip(ops.sort(scores, axis=-1), axis=-1)
    rank = _ranks(ordered)
    total = ops.cumsum(ordered, axis=-1) - 1
    # The support is a prefix of the sorted scores: those that lie above its threshold.
    count = ops.sum(ops.cast(rank * ordered > total, ordered.dtype), axis=-1, keepdims=True)
    threshold = _at(total, count) / count
    return _clear(ops.maximum(scores - threshold, 0), mask)


def sparsemax_gradient(weights: Tensor, upstream: Tensor) -> Tensor:
    """The gradient of the scores from that of the weights, over the last axis."""
    support = ops.cast(weights > 0, weights.dtype)
    return support * (upstream - _mean(upstream, support))


def sparsemax_on_support(scores: Tensor, weights: Tensor) -> Tensor:
    """Sparsemax again, by operations with derivatives: where it is not 0, the `weights` say."""
    support, count, scores = _supported(scores, weights)
    threshold = (ops.sum(scores, axis=-1, keepdims=True) - 1) / count
    return ops.where(support, scores - threshold, ops.zeros_like(scores))


def entmax15_weights(scores: Tensor, mask: Tensor = None) -> Tensor:
    """Entmax-1.5 over the last axis, in the scores' own dtype, without a gradient of its own."""
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


def entmax15_gradient(weights: Tensor, upstream: Tensor) -> Tensor:
    """The gradient of the scores from that of the weights, over the last axis."""
    roots = ops.sqrt(weights)
    return roots * (upstream - _mean(upstream, roots))


def _normalize(
    scores: Tensor,
    mask: Tensor,
    weights_of: Callable,
    gradient_of: Callable,
    on_support: Callable,
) -> Tensor:
    dtype = backend.standardize_dtype(scores.dtype)
    if 0 in scores.shape:
        return scores  # nothing to weigh, and Keras refuses the maximum of an empty tensor
    scores = ops.cast(scores, accumulator_dtype(dtype))
    mask = None if mask is None else ops.cast(mask, "bool")

    def normalized(scores: Tensor) -> tuple:
        weights = weights_of(scores, mask)
        return weights, lambda upstream: gradient_of(weights, upstream)

    def plain(scores: Tensor) -> Tensor:
        return on_support(scores, weights_of(ops.stop_gradient(scores), mask))

    return ops.cast(with_gradient(normalized, plain)(scores), dtype)


def entmax15_on_support(scores: Tensor, weights: Tensor) -> Tensor:
    """Entmax-1.5 again, by operations with derivatives: where it is not 0, the `weights` say."""
    support, count, scores = _supported(scores / 2, weights)
    mean = ops.sum(scores, axis=-1, keepdims=True) / count
    apart = ops.where(support, scores - mean, ops.zeros_like(scores))
    variance = ops.sum(apart * apart, axis=-1, keepdims=True) / count
    roots = apart + ops.sqrt(1 / count - variance)
    return ops.where(support, roots * roots, ops.zeros_like(scores))


def _supported(scores: Tensor, weights: Tensor) -> tuple:
    """Return where weights are above 0, how many are, and the scores there, less the highest."""
    support = ops.stop_gradient(weights) > 0
    count = ops.sum(ops.cast(support, scores.dtype), axis=-1, keepdims=True)
    highest = ops.max(ops.where(support, scores, -1e30), axis=-1, keepdims=True)
    scores = ops.where(support, scores - ops.stop_gradient(highest), ops.zeros_like(scores))
    return support, ops.maximum(count, 1), scores


def _below_highest(scores: Tensor, mask: Tensor) -> Tensor:
    """Return scores less the highest of their row, at least -2: sums stay small."""
    if mask is not None:
        scores = ops.where(mask, scores, ops.full_like(scores, -1e30))
    return ops.maximum(scores - ops.max(scores, axis=-1, keepdims=True), -2)


def _clear(weights: Tensor, mask: Tensor) -> Tensor:
    return weights if mask is None else ops.where(mask, weights, ops.zeros_like(weights))


def _ranks(ordered: Tensor) -> Tensor:
    """Return 1, 2, 3, ... along the last axis."""
    return ops.arange(1, ops.shape(ordered)[-1] + 1, dtype=ordered.dtype)


def _at(values: Tensor, count: Tensor) -> Tensor:
    """Return the entry of each row at a rank, which counts from 1."""
    return ops.take_along_axis(values, ops.cast(count, "int32") - 1, axis=-1)


def _mean(upstream: Tensor, weights: Tensor) -> Tensor:
    """Return the mean of `upstream` by weights; 0 where all weights are."""
    total = ops.sum(weights, axis=-1, keepdims=True)
    total = ops.where(total > 0, total, ops.ones_like(total))
    return ops.sum(weights * upstream, axis=-1, keepdims=True) / total


NORMALIZERS = {"softmax": masked_softmax, "sparsemax": sparsemax, "entmax15": entmax15}
