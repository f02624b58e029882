"""From scores to weights."""

from keras import backend, ops


def masked_softmax(scores, mask=None, axis: int = -1):
    """Softmax over the positions that a mask leaves.

    `a_s = m_s exp(e_s) / sum_j m_j exp(e_j)`

    Weights of masked positions are exactly 0. A row whose positions are all masked gets zero
    weights (not a uniform row, not NaN) and finite gradients. The exponentials are taken in
    float32 or wider whatever the dtype of the scores.

    Args:
        scores: Floating point tensor.
        mask: Boolean tensor that broadcasts to `scores`, True = attend, or `None`.
        axis: The axis over which the weights sum to 1.

    Returns:
        Weights, with the shape and the dtype of `scores`.

    Example:

    >>> masked_softmax(np.array([1.0, 2.0, 5.0]), np.array([True, False, True]))
    array([0.01798621, 0.        , 0.98201382])
    """
    dtype = backend.standardize_dtype(scores.dtype)
    scores = ops.cast(scores, backend.result_type(dtype, "float32"))
    if mask is None and scores.shape[axis] == 1:
        mask = ops.ones_like(scores, dtype="bool")  # Keras' softmax warns of a single position
    if mask is None:
        return ops.cast(ops.softmax(scores, axis=axis), dtype)
    mask = ops.cast(mask, "bool")
    # A finite stand-in, not -inf: an empty row then has the maximum of itself and no 0/0.
    lowest = ops.full_like(scores, -1e30)
    scores = ops.where(mask, scores, lowest)
    scores = scores - ops.stop_gradient(ops.max(scores, axis=axis, keepdims=True))
    exponentials = ops.where(mask, ops.exp(scores), ops.zeros_like(scores))
    total = ops.sum(exponentials, axis=axis, keepdims=True)
    # An empty row divides by 1. Not `maximum(total, 1)`: the sum of a row with one weight of 1 is
    # a tie, of which JAX and PyTorch pass on half the gradient.
    total = ops.where(total > 0, total, ops.ones_like(total))
    return ops.cast(exponentials / total, dtype)
