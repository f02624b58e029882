"""Scores of queries against keys: `e_ts`, before masking and normalising.

A query is `(B, T, ...)`. Keys are `(B, S, ...)`, shared by all queries, which gives scores
`(B, T, S)`, or `(B, T, W, ...)`, a window of `W` keys for every query, which gives `(B, T, W)`.
"""

from keras import backend, ops

from .additive import blocked_additive_score
from .types import Tensor


def dot_score(query: Tensor, key: Tensor) -> Tensor:
    """`e_ts = q_t . k_s`; of float16 in float32, where large ones are finite."""
    if backend.standardize_dtype(query.dtype) == "float16":
        query, key = ops.cast(query, "float32"), ops.cast(key, "float32")
    if len(key.shape) == 4:
        return ops.squeeze(ops.matmul(key, ops.expand_dims(query, -1)), -1)
    return ops.matmul(query, ops.transpose(key, (0, 2, 1)))


def additive_score(query: Tensor, key: Tensor, score_vector: Tensor) -> Tensor:
    """`e_ts = v . tanh(q_t + k_s)`, for queries `W q` and keys `U k` of `U` units and `v (U,)`.

    The tensor of shape `(B, T, S, U)` that the formula names is never kept: it is computed in
    blocks of queries, and again in the backward pass, so that memory does not grow with
    `T * S * U`.
    """
    if len(key.shape) == 4:
        hidden = ops.tanh(ops.expand_dims(query, 2) + key)
        return ops.squeeze(ops.matmul(hidden, ops.expand_dims(score_vector, -1)), -1)
    return blocked_additive_score(query, key, score_vector)


def location_score(query: Tensor, kernel: Tensor, positions: Tensor) -> Tensor:
    """`e_ts = (W q_t)_s`: a score by place alone, of a query and a kernel `(D, max_length)`.

    Positions are integer places of the memory, `(S,)`, or windows `(B, T, W)`. A place outside the
    kernel takes the score of the nearest place inside: mask it.
    """
    by_place = ops.matmul(query, kernel)
    last = kernel.shape[1] - 1
    positions = ops.clip(positions, 0, last)
    if len(positions.shape) == 1:
        return ops.take(by_place, positions, axis=2)
    return ops.take_along_axis(by_place, positions, axis=2)
