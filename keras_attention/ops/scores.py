"""Scores of queries against keys: `e_ts`, before masking and normalising.

A query is `(B, T, ...)`. Keys are `(B, S, ...)`, shared by all queries, or `(B, T, W, ...)`, a
window of `W` keys for every query.
"""

from keras import backend, ops

from keras_attention.ops.additive import blocked_additive_score


def dot_score(query, key):
    """`e_ts = q_t . k_s`.

    Args:
        query: `(B, T, D)`.
        key: `(B, S, D)`, or windows `(B, T, W, D)`.

    Returns:
        Scores `(B, T, S)`, or `(B, T, W)`; of float16 in float32, where large ones are finite.
    """
    if backend.standardize_dtype(query.dtype) == "float16":
        query, key = ops.cast(query, "float32"), ops.cast(key, "float32")
    if len(key.shape) == 4:
        return ops.squeeze(ops.matmul(key, ops.expand_dims(query, -1)), -1)
    return ops.matmul(query, ops.transpose(key, (0, 2, 1)))


def additive_score(query, key, score_vector):
    """`e_ts = v . tanh(q_t + k_s)`, for queries and keys that are projected already.

    The tensor of shape `(B, T, S, U)` that the formula names is never kept: it is computed in
    blocks of queries, and again in the backward pass, so that memory does not grow with
    `T * S * U`.

    Args:
        query: `W q`, `(B, T, U)`.
        key: `U k`, `(B, S, U)`, or windows `(B, T, W, U)`.
        score_vector: `v`, `(U,)`.

    Returns:
        Scores `(B, T, S)`, or `(B, T, W)`.
    """
    if len(key.shape) == 4:
        hidden = ops.tanh(ops.expand_dims(query, 2) + key)
        return ops.squeeze(ops.matmul(hidden, ops.expand_dims(score_vector, -1)), -1)
    return blocked_additive_score(query, key, score_vector)


def location_score(query, kernel, positions):
    """`e_ts = (W q_t)_s`: a score by place alone.

    Args:
        query: `(B, T, D)`.
        kernel: `W` transposed, `(D, max_length)`.
        positions: Integer places of the memory, `(S,)`, or windows `(B, T, W)`. A place outside
            the kernel takes the score of the nearest place inside: mask it.

    Returns:
        Scores `(B, T, S)`, or `(B, T, W)`.
    """
    by_place = ops.matmul(query, kernel)
    last = kernel.shape[1] - 1
    positions = ops.clip(positions, 0, last)
    if len(positions.shape) == 1:
        return ops.take(by_place, positions, axis=2)
    return ops.take_along_axis(by_place, positions, axis=2)
