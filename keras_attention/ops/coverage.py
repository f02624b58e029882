"""The additive score that knows what was read already, and what reading it again costs."""

from keras import ops

from .masks import check_mask
from .types import Tensor
from .vjp import with_gradient


@with_gradient
def coverage_score(
    query: Tensor, key: Tensor, coverage: Tensor, score_vector: Tensor, coverage_vector: Tensor
) -> tuple:
    """`e_s = v . tanh(q + k_s + w_c c_s)` of one query a row: `(B, S)`.

    Takes `W q (B, U)`, `U k (B, S, U)`, `c (B, S)`, `v (U,)` and `w_c (U,)`. The hidden layer,
    `B S U` numbers, is computed again in the backward pass: a loop over `T` queries keeps none of
    the `B T S U` numbers that its steps compute.
    """
    hidden = coverage_hidden(query, key, coverage, coverage_vector)
    scores = ops.squeeze(ops.matmul(hidden, ops.expand_dims(score_vector, 1)), 2)

    def gradient(upstream: Tensor) -> tuple:
        by_query, by_key, by_coverage, *by_vectors = coverage_gradients(
            query, key, coverage, score_vector, coverage_vector, upstream
        )
        return by_query, by_key * score_vector, by_coverage, *by_vectors

    return scores, gradient


def coverage_hidden(
    query: Tensor, key: Tensor, coverage: Tensor, coverage_vector: Tensor
) -> Tensor:
    """Return the hidden layer `tanh(q + k_s + w_c c_s)`, `(B, S, U)`."""
    coverage = ops.expand_dims(coverage, 2) * coverage_vector
    return ops.tanh(ops.expand_dims(query, 1) + key + coverage)


def coverage_gradients(
    query: Tensor,
    key: Tensor,
    coverage: Tensor,
    score_vector: Tensor,
    coverage_vector: Tensor,
    upstream: Tensor,
) -> tuple:
    """Return the gradients of `coverage_score`, in the order of its arguments.

    That of the keys still has to be multiplied by the score vector: once for all steps of a loop.
    """
    hidden = coverage_hidden(query, key, coverage, coverage_vector)
    by_hidden = ops.sum(ops.matmul(ops.expand_dims(upstream, 1), hidden), axis=(0, 1))
    weighted = ops.expand_dims(upstream, 2) * (1 - hidden * hidden)
    by_vectors = ops.expand_dims(score_vector * coverage_vector, 1)
    # The sums over places, plain and weighted by the coverage, in one product.
    both = ops.stack([ops.ones_like(coverage), coverage], axis=1)
    sums = ops.matmul(both, weighted) * score_vector
    return (
        sums[:, 0],
        weighted,
        ops.squeeze(ops.matmul(weighted, by_vectors), 2),
        by_hidden,
        ops.sum(sums[:, 1], axis=0),
    )


def mean_overlap(scores: Tensor, target_mask: Tensor = None) -> Tensor:
    """`sum_s min(a_ts, c_ts)` of weights `(B, T, S)`, averaged over real steps, then over examples.

    `c_t` is the sum of the weights before step `t`, without those of `t` itself.
    """
    scores = ops.cast(scores, "float32")
    real = ops.ones_like(scores[:, :, 0]) if target_mask is None else target_mask
    real = ops.cast(real, "float32")
    scores = scores * ops.expand_dims(real, 2)  # what padding reads covers nothing
    before = ops.concatenate([ops.zeros_like(scores[:, :1]), scores[:, :-1]], axis=1)
    overlap = ops.sum(ops.minimum(scores, ops.cumsum(before, axis=1)), axis=2)
    steps = ops.sum(real, axis=1)
    of_examples = ops.sum(overlap, axis=1) / ops.maximum(steps, 1.0)
    examples = ops.sum(ops.cast(steps > 0, "float32"))
    return ops.sum(of_examples) / ops.maximum(examples, 1.0)


def coverage_loss(scores: Tensor, target_mask: Tensor = None) -> Tensor:
    """Mean overlap of attention weights with what was read before.

    With `c_t = sum_(t'<t) a_t'` the coverage before step `t`, which does not contain `a_t`,

    `loss_t = sum_s min(a_ts, c_ts)`

    averaged over each example's real target steps, and then over the examples that have any. The
    weights of steps that are padding count neither as read nor as covered.

    `CoverageAttention` adds it by itself with `loss_weight`; the function serves weights that a
    model returns, and any other mechanism.

    Args:
        scores: Attention weights `(B, T, S)`, as `return_attention_scores` gives them.
        target_mask: Boolean `(B, T)`, True = a real target step, or `None` where all are.

    Returns:
        A float32 scalar.

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
    scores = ops.convert_to_tensor(scores)
    if len(scores.shape) != 3:
        raise ValueError(
            "Attention weights must have the shape (batch, target steps, memory steps). "
            f"Received: scores of shape {tuple(scores.shape)}"
        )
    if target_mask is not None:
        target_mask = ops.convert_to_tensor(target_mask)
    check_mask(target_mask, tuple(scores.shape[:2]), "target_mask")
    return mean_overlap(scores, target_mask)
