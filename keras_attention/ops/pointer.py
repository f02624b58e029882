"""A distribution over words from one over places that hold words."""

from keras import ops


def copy_distribution(scores, ids, size: int):
    """Add up the weights of the places that hold the same id: `sum_(s: x_s = w) a_ts`.

    One sum by segments over the `B T S` weights; nothing of size `T S` by vocabulary exists.

    Args:
        scores: Weights `(B, T, S)`.
        ids: Integer ids `(B, S)`; the weight of a place whose id lies outside `[0, size)` is
            dropped.
        size: Number of ids.

    Returns:
        `(B, T, size)`.
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


def copy_probability(scores, ids, targets):
    """Return the weight of the places that hold each target: `sum_(s: x_s = y_t) a_ts`, `(B, T)`.

    Args:
        scores: Weights `(B, T, S)`.
        ids: Integer ids `(B, S)`.
        targets: Integer ids `(B, T)`; a negative one is nowhere.
    """
    same = ops.expand_dims(ids, 1) == ops.expand_dims(targets, 2)
    same = ops.logical_and(same, ops.expand_dims(targets, 2) >= 0)
    return ops.sum(ops.where(same, scores, ops.zeros_like(scores)), axis=2)
