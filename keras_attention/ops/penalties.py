"""Penalties of attention weights: the coverage loss, and Occam's penalty."""

from keras import ops

from .masks import check_dense, check_mask, for_batch, zero_masked
from .shapes import can_be_one
from .types import Tensor, accumulator_dtype, at_least_float32


def mean_overlap(scores: Tensor, target_mask: Tensor = None) -> Tensor:
    """`sum_s min(a_ts, c_ts)` of weights `(B, T, S)`, averaged over steps, then over examples."""
    target_mask = for_batch(target_mask, scores)
    scores = zero_masked(
        at_least_float32(scores), target_mask
    )  # masked steps do not add to the coverage
    real = ops.ones(ops.shape(scores)[:2]) if target_mask is None else target_mask
    real = ops.cast(real, scores.dtype)
    before = ops.concatenate([ops.zeros_like(scores[:, :1]), scores[:, :-1]], axis=1)
    overlap = ops.sum(ops.minimum(scores, ops.cumsum(before, axis=1)), axis=2)
    steps = ops.sum(real, axis=1)
    by_example = ops.sum(overlap, axis=1) / ops.maximum(steps, 1.0)
    examples = ops.sum(ops.cast(steps > 0, scores.dtype))
    return ops.sum(by_example) / ops.maximum(examples, 1.0)


def coverage_loss(scores: Tensor, target_mask: Tensor = None) -> Tensor:
    """Mean overlap of attention weights with what was read before, a scalar of at least float32.

    `loss_t = sum_s min(a_ts, c_ts)`, with the coverage `c_t = sum_(t'<t) a_t'` before step `t`,
    averaged over each row's real steps, and then over the rows that have any. The function serves
    any mechanism; `CoverageAttention` adds it by itself with `loss_weight`.

    Args:
        scores: Attention weights `(B, T, S)`, as `return_attention_scores` gives them.
        target_mask: Boolean `(B, T)`, True = a real step, or `None` where all are.

    Raises:
        ValueError: Where the weights have another number of axes, or the mask does not fit.

    Reference:
        See, Liu and Manning 2017, "Get to the point: summarization with pointer-generator
        networks", section 2.3, equations 12 and 13; they weigh it by 1.

    Example:

    >>> import numpy as np
    >>> weights = np.array([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]])
    >>> round(float(coverage_loss(weights)), 3)    # (0 + .5 + .5) / 3
    0.333
    """
    check_dense(scores, "scores")
    scores = ops.convert_to_tensor(scores)
    if len(scores.shape) != 3:
        raise ValueError(
            "Attention weights must have the shape (batch, steps, memory steps). "
            f"Received: scores of shape {tuple(scores.shape)}"
        )
    if target_mask is not None:
        target_mask = ops.convert_to_tensor(target_mask)
    check_mask(target_mask, tuple(scores.shape[:2]), "target_mask")
    return mean_overlap(scores, target_mask)


def occam_penalty(
    scores: Tensor, query: Tensor, occam_vector: Tensor, minimum: float, mask: Tensor = None
) -> Tensor:
    """Penalty of the attention weights, averaged over the batch: a scalar to add to a loss.

    `penalty = mean_b(n_b sum_t a_bt)`, with `n_b = max(w . r_b, λ)`

    Sigmoid attention may give every word a weight near 1. So each word costs a price `n`, which the
    query sets: a question that one word answers can afford fewer than one that asks for a story.

    Args:
        scores: Attention weights `(B, T)` of `InnerAttentionGRU`, `"word"` or `"context"`.
        query, occam_vector: Queries `r` `(B, Q)`, and `w` `(Q,)`.
        minimum: The minimum price `λ`, above 0.
        mask: Boolean `(B, T)`, True = a real word; padding costs nothing. Default: all are real.

    Raises:
        ValueError: Where `minimum` is not positive, or shapes do not fit.

    Reference:
        Wang, Liu and Zhao 2016, "Inner attention based recurrent neural networks for answer
        selection", section 3.4: their `w_qp`, `r_q` and `λ_q`.

    Example:

    >>> import numpy as np
    >>> scores, mask = [[0.5, 1.0, 0.9]], np.array([[True, True, False]])  # the last one is padding
    >>> float(occam_penalty(scores, [[1.0, 1.0]], [0.25, 0.25], minimum=0.1, mask=mask))
    0.75
    """
    if not minimum > 0:
        raise ValueError(
            f"The minimum price of attention must be above 0. Received: minimum={minimum}"
        )
    check_dense([scores, query], "scores and query")
    given = [ops.convert_to_tensor(tensor) for tensor in (scores, query, occam_vector)]
    scores_shape, query_shape, vector_shape = shapes = [tuple(tensor.shape) for tensor in given]
    fits = [len(shape) for shape in shapes] == [2, 2, 1] and query_shape[1] == vector_shape[0]
    if not fits or not can_be_one(scores_shape[:1], query_shape[:1]):
        raise ValueError(
            "Occam's penalty takes scores (batch, steps), a query (batch, features) and a vector "
            f"(features,). Received: scores {scores_shape}, query {query_shape}, "
            f"vector {vector_shape}"
        )
    check_mask(mask, scores_shape, "mask")
    dtype = accumulator_dtype(*(tensor.dtype for tensor in given))
    scores, query, vector = (ops.cast(tensor, dtype) for tensor in given)
    if mask is not None:
        scores = ops.where(ops.cast(mask, "bool"), scores, ops.zeros_like(scores))
    price = ops.maximum(ops.sum(query * vector, axis=1), minimum)
    return ops.mean(price * ops.sum(scores, axis=1))
