"""The score of a complete hypothesis: log-probability over a length, plus a coverage term."""

import math
from collections.abc import Callable

from keras import ops


class LengthPenalty:
    """Divisor of a hypothesis' log-probability, after its length.

    `lp(n) = ((5 + n) / 6) ** alpha`, where `n` is the number of tokens, the end token counted. With
    `alpha = 0` it is 1 and the score is the log-probability; the larger `alpha`, the less a long
    hypothesis pays for its length.

    Args:
        alpha: Float, at least 0. Values from 0.6 to 1 are usual in translation.

    Call arguments:
        length: Float tensor or number, the lengths.

    Returns:
        Float tensor of the same shape: positive and non-decreasing in the length, which is what
        lets `beam_search` stop early.

    Reference:
        - Wu et al. 2016, [Google's neural machine translation system](
            https://arxiv.org/abs/1609.08144), section 7 ("GNMT").

    Example:

    >>> penalty = LengthPenalty(alpha=1.0)
    >>> float(penalty(7))
    2.0
    """

    def __init__(self, alpha: float = 0.0):
        if not (math.isfinite(alpha) and alpha >= 0):
            raise ValueError(
                f"`alpha` of a length penalty should be a number of at least 0. Received: {alpha}"
            )
        self.alpha = float(alpha)

    def __call__(self, length):
        return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, self.alpha)


class CoveragePenalty:
    """Term that lowers the score of a hypothesis which leaves memory steps unattended.

    `cp = beta * sum_s log(min(max(coverage_s, floor), 1))`, where `coverage_s` is the sum over the
    hypothesis' tokens of the attention that memory step `s` got. It is never positive, and 0 where
    each step got at least 1 in all.

    Args:
        beta: Float, at least 0. Values around 0.2 are usual in translation.
        floor: Float in (0, 1): what a step without any attention counts as, so that one such step
            (common with local attention) makes a hypothesis worse, not impossible.

    Call arguments:
        coverage: Float tensor `(..., S)`.
        mask: Boolean tensor that broadcasts to it, True where a step counts. Padding has no
            attention, and would count as uncovered.

    Returns:
        Float tensor `(...)`.

    Reference:
        - Wu et al. 2016, [Google's neural machine translation system](
            https://arxiv.org/abs/1609.08144), section 7.

    Example:

    >>> penalty = CoveragePenalty(beta=1.0)
    >>> round(float(penalty([1.3, 0.5])), 4)
    -0.6931
    """

    def __init__(self, beta: float, floor: float = 1e-6):
        if not (math.isfinite(beta) and beta >= 0):
            raise ValueError(
                f"`beta` of a coverage penalty should be a number of at least 0. Received: {beta}"
            )
        if not 0 < floor < 1:
            raise ValueError(f"`floor` should lie between 0 and 1. Received: {floor}")
        self.beta = float(beta)
        self.floor = float(floor)

    def __call__(self, coverage, mask=None):
        terms = ops.log(ops.clip(ops.cast(coverage, "float32"), self.floor, 1.0))
        if mask is not None:
            terms = ops.where(mask, terms, 0.0)
        return self.beta * ops.sum(terms, axis=-1)


def as_length_penalty(penalty: float | Callable) -> Callable:
    """Return the penalty object of GNMT's alpha, or the object given."""
    if callable(penalty):
        return penalty
    if _is_number(penalty):
        return LengthPenalty(penalty)
    raise ValueError(
        "`length_penalty` should be a number (GNMT's alpha) or a callable from lengths to "
        f"divisors, such as `LengthPenalty`. Received: {penalty!r}"
    )


def as_coverage_penalty(penalty: float | Callable) -> Callable | None:
    """Return the penalty object of GNMT's beta, or the object given; None where it is zero."""
    if callable(penalty):
        return penalty
    if _is_number(penalty):
        return CoveragePenalty(penalty) if penalty else None
    raise ValueError(
        "`coverage_penalty` should be a number (GNMT's beta) or a callable "
        f"`(coverage, mask) -> term`, such as `CoveragePenalty`. Received: {penalty!r}"
    )


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
