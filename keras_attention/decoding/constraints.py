"""What a hypothesis may not continue with: a repeated n-gram, an end that comes too soon."""

from dataclasses import dataclass

from keras import ops

FORBIDDEN = float("-inf")


@dataclass(frozen=True)
class Constraints:
    """Sets the logits of forbidden tokens to `-inf`, for all rows at once.

    Args:
        end_id: Integer, the end token.
        min_length: Integer, the fewest tokens of a hypothesis, the end token counted. A row that
            has no other continuation ends sooner all the same.
        no_repeat_ngram: Integer n: no sequence of n tokens occurs twice in a hypothesis. The start
            token belongs to none, and the end token is never blocked. 0 for no such rule.

    Call arguments:
        logits: Float tensor `(R, V)`.
        prefix: Integer tensor `(R, L)`, the tokens so far; what follows them is not looked at.
        index: Integer scalar tensor, how many tokens there are so far.
    """

    end_id: int
    min_length: int = 0
    no_repeat_ngram: int = 0

    def __call__(self, logits, prefix, index):
        if self.no_repeat_ngram:
            logits = block_repeated_ngrams(logits, prefix, index, self.no_repeat_ngram, self.end_id)
        if self.min_length > 1:  # every hypothesis has one token
            logits = ops.cond(
                index + 1 < self.min_length,
                lambda: withhold_end(logits, self.end_id),
                lambda: logits,
            )
        return logits


def withhold_end(logits, end_id: int):
    """Forbid the end token in each row of `(R, V)` that can continue with another one."""
    without = ops.where(ops.arange(logits.shape[-1]) == end_id, FORBIDDEN, logits)
    stuck = ops.max(without, axis=-1, keepdims=True) == FORBIDDEN
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
    written = ops.where(repeats, FORBIDDEN, logits[:, end_id][:, None])
    row_numbers = ops.broadcast_to(ops.arange(rows, dtype="int32")[:, None], (rows, length))
    cells = ops.reshape(ops.stack([row_numbers, tokens], axis=-1), (-1, 2))
    return ops.scatter_update(logits, cells, ops.reshape(written, (-1,)))
