"""Biases that depend on the distance alone, kept as one number a head and distance.

A table `(H, T + S - 1)` holds the bias of every distance (place of the key less that of the query)
from `1 - T` to `S - 1`; a block of pairs is read off it, and its gradient summed up again, by
laying rows of a length that is one too long one after another: no gathering, number by number.
"""

from keras import ops


def by_pairs(table, rows, columns):
    """Spread `(H, rows + columns - 1)` over pairs: entry `s - t + rows - 1` of it at `(t, s)`.

    Returns:
        `(H, rows, columns)`.
    """
    heads, length = table.shape[0], rows + columns - 1
    longer = ops.concatenate([table, ops.zeros_like(table[:, :1])], axis=1)
    # Each row starts one entry later than the one above it.
    shifted = ops.tile(longer, (1, rows))[:, : rows * length]
    return ops.reshape(shifted, (heads, rows, length))[:, :, rows - 1 :]


def summed_by_distance(pairs, rows, columns):
    """Sum `(H, rows, columns)` over the pairs of each distance: what `by_pairs` spreads.

    Returns:
        `(H, rows + columns - 1)`.
    """
    heads, length = pairs.shape[0], rows + columns - 1
    wide = ops.concatenate([_zeros(pairs, heads, rows, rows - 1), pairs], axis=2)
    flat = ops.reshape(wide, (heads, rows * length))
    flat = ops.concatenate([flat, _zeros(pairs, heads, rows)], axis=1)
    return ops.sum(ops.reshape(flat, (heads, rows, length + 1)), axis=1)[:, :-1]


def _zeros(like, *shape):
    return ops.zeros(shape, like.dtype)
