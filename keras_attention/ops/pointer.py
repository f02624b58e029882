"""A distribution over words from one over places that hold words."""

from keras import ops

from .types import Tensor


def copy_distribution(scores: Tensor, ids: Tensor, size: int) -> Tensor:
    """Add up the weights `(B, T, S)` of places with the same id: `sum_(s: x_s = w) a_ts`.

    The result is `(B, T, size)`. The weight of a place whose id, of `ids (B, S)`, lies outside
    `[0, size)` is dropped. One sum by segments over the `B T S` weights; nothing of size `T S` by
    vocabulary exists.
    """
    batch_size, steps, length = ops.shape(scores)
    inside = ops.logical_and(ids >= 0, ids < size)
    ids = ops.expand_dims(ops.where(inside, ids, ops.zeros_like(ids)), 1)
    scores = scores * ops.cast(ops.expand_dims(inside, 1), scores.dtype)
    rows = ops.reshape(ops.arange(batch_size * steps, dtype="int32"), (batch_size, steps, 1))
    places = ops.reshape(rows * size + ids, (batch_size * steps * length,))
    total = ops.segment_sum(
        ops.reshape(scores, (batch_size * steps * length,)),
        places,
        num_segments=batch_size * steps * size,
    )
    return ops.reshape(total, (batch_size, steps, size))


def copy_probability(scores: Tensor, ids: Tensor, targets: Tensor) -> Tensor:
    """Return the weight of the places that hold each target: `sum_(s: x_s = y_t) a_ts`, `(B, T)`.

    Weights are `(B, T, S)`, ids `(B, S)` and targets `(B, T)`; a negative target is nowhere.
    """
    same = ops.expand_dims(ids, 1) == ops.expand_dims(targets, 2)
    same = ops.logical_and(same, ops.expand_dims(targets, 2) >= 0)
    return ops.sum(ops.where(same, scores, ops.zeros_like(scores)), axis=2)
