"""What it costs to read the same place of a memory again."""

from keras import ops

from keras_attention.ops.coverage import mean_overlap
from keras_attention.ops.masks import check_mask


def coverage_loss(scores, target_mask=None):
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
