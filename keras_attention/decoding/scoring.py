"""What ranks tokens and hypotheses: penalties, forbidden tokens, the k largest of a row."""

from collections.abc import Callable

import keras
from keras import ops

from keras_attention.decoding.problem import Problem, check_number, is_number

NEVER = float("-inf")
# A chunk's maximum stands for it in the first pass of a top-k. Around 32, measured with 8,000 and
# 32,000 words, finding the maxima and looking through the chunks found cost about the same.
CHUNK = 32


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
        check_number("alpha", alpha, "of at least 0", lambda x: x >= 0)
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
        check_number("beta", beta, "of at least 0", lambda x: x >= 0)
        check_number("floor", floor, "between 0 and 1", lambda x: 0 < x < 1)
        self.beta = float(beta)
        self.floor = float(floor)

    def __call__(self, coverage, mask=None):
        terms = ops.log(ops.clip(ops.cast(coverage, "float32"), self.floor, 1.0))
        if mask is not None:
            terms = ops.where(mask, terms, 0.0)
        return self.beta * ops.sum(terms, axis=-1)


def as_penalty(name: str, penalty: float | Callable, kind: type) -> Callable:
    """Return the penalty object of a number, GNMT's alpha or beta, or the object given."""
    if callable(penalty):
        return penalty
    if is_number(penalty):
        return kind(penalty)
    raise ValueError(
        f"`{name}` should be a number or a callable such as `{kind.__name__}`. "
        f"Received: {penalty!r}"
    )


def without_forbidden(problem: Problem, logits, prefix, index):
    """Set the logits `(R, V)` of tokens that the problem forbids after a prefix to `-inf`.

    Args:
        problem: Its `no_repeat_ngram` and `min_length` are the rules.
        logits: Float tensor `(R, V)`.
        prefix: Integer tensor `(R, L)`, the tokens so far; what follows them is not looked at.
        index: Integer scalar tensor, the number of tokens so far.
    """
    if problem.no_repeat_ngram:
        size = problem.no_repeat_ngram
        logits = block_repeated_ngrams(logits, prefix, index, size, problem.end_id)
    if problem.min_length > 1:  # every hypothesis has one token
        logits = ops.cond(
            index + 1 < problem.min_length,
            lambda: withhold_end(logits, problem.end_id),
            lambda: logits,
        )
    return logits


def withhold_end(logits, end_id: int):
    """Forbid the end token in each row of `(R, V)` that can continue with another one."""
    without = ops.where(ops.arange(logits.shape[-1]) == end_id, NEVER, logits)
    stuck = ops.max(without, axis=-1, keepdims=True) == NEVER
    return ops.where(stuck, logits, without)


def block_repeated_ngrams(logits, prefix, index, size: int, end_id: int):
    """Forbid each token that would complete an n-gram which the row's prefix already holds.

    Place `j` of the prefix forbids its token where the `size - 1` tokens before it are the last
    `size - 1` of the prefix. All places are compared at once, and written in one scatter; a place
    that forbids nothing writes the end token's own logit back, and no place forbids the end token,
    so that no two writes disagree.

    Args:
        logits: Float tensor `(R, V)`.
        prefix: Integer tensor `(R, L)`.
        index: Integer scalar tensor, the number of tokens in the prefix.
        size: Integer, n.
        end_id: Integer, the end token.
    """
    rows, length = ops.shape(prefix)
    places = ops.arange(length, dtype="int32")
    repeats = ops.broadcast_to((places >= size - 1) & (places < index), (rows, length))
    for back in range(1, size):
        last = ops.take(prefix, ops.maximum(index - back, 0), axis=1)
        repeats = repeats & (ops.roll(prefix, back, axis=1) == last[:, None])
    repeats = repeats & (prefix != end_id)
    tokens = ops.where(repeats, prefix, end_id)
    written = ops.where(repeats, NEVER, logits[:, end_id][:, None])
    row_numbers = ops.broadcast_to(ops.arange(rows, dtype="int32")[:, None], (rows, length))
    cells = ops.reshape(ops.stack([row_numbers, tokens], axis=-1), (-1, 2))
    return ops.scatter_update(logits, cells, ops.reshape(written, (-1,)))


def ordered_top_k(x, k: int):
    """Return the `k` largest of the last axis and their places; of equal ones the first wins.

    `ops.top_k` does this on TensorFlow and JAX. PyTorch's leaves open which of several equal values
    it takes, so there a stable sort takes its place, and for the largest alone `argmax`.

    Args:
        x: Float tensor `(..., n)`.
        k: Integer, at most `n`.

    Returns:
        `(values, places)`, each `(..., k)`, in descending order.
    """
    if keras.backend.backend() != "torch":
        return ops.top_k(x, k)
    is_one = k == 1
    places = ops.argmax(x, -1, keepdims=True) if is_one else ops.argsort(-x, axis=-1)[..., :k]
    return ops.take_along_axis(x, places, axis=-1), ops.cast(places, "int32")


def chunked_top_k(x, k: int):
    """Return what `ordered_top_k` returns, for few out of many: `k` much smaller than `n`.

    The row is cut into chunks. An element among the `k` largest has at most `k - 1` before it, so
    fewer than `k` chunks can have a maximum before its own chunk's: the `k` chunks with the largest
    maxima hold them all (equal values included, since chunks and elements are compared by the same
    rule). One pass for the maxima and a search through `k` chunks is about three times faster on a
    CPU than a heap or a sort over the whole row.

    Args:
        x: Float tensor `(R, n)`, `n` static.
        k: Integer, at most `n`.

    Returns:
        `(values, places)`, each `(R, k)`, in descending order.
    """
    rows, size = ops.shape(x)
    if size <= 2 * k * CHUNK:
        return ordered_top_k(x, k)
    chunks = cut_in_chunks(x, float("-inf"))
    _, count, width = ops.shape(chunks)
    _, best = ordered_top_k(ops.max(chunks, axis=-1), k)
    best = ops.sort(best, axis=-1)  # places ascend again, so that ties still go to the first
    first_chunk = ops.arange(rows, dtype="int32")[:, None] * count
    candidates = ops.take(ops.reshape(chunks, (-1, width)), first_chunk + best, axis=0)
    values, places = ordered_top_k(ops.reshape(candidates, (rows, k * width)), k)
    return values, ops.take_along_axis(best, places // width, axis=1) * width + places % width


def cut_in_chunks(x, filling: float):
    """Return `(R, n)` as `(R, chunks, width)`, the last chunk filled up."""
    rows, size = ops.shape(x)
    # A width that divides the size saves padding, a copy of it all.
    width = next((width for width in range(CHUNK, 2 * CHUNK) if size % width == 0), CHUNK)
    count = -(-size // width)
    if count * width != size:
        x = ops.pad(x, [[0, 0], [0, count * width - size]], constant_values=filling)
    return ops.reshape(x, (rows, count, width))
