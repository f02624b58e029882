"""Products of queries, keys and values, head by head; heads may share their keys.

`H` query heads read `G` key heads: query head `h` reads key head `h G // H`.
"""

from keras import ops


def dot_products(query, key):
    """`q_t . k_s`: `(B, H, T, d)` and `(B, G, S, d)` give `(B, H, T, S)`."""
    products = ops.einsum("bgtd,bgsd->bgts", _fold(query, key.shape[1]), key)
    return _unfold(products, query.shape[1])


def weighted_sum(weights, value):
    """`sum_s a_ts v_s`: `(B, H, T, S)` and `(B, G, S, d)` give `(B, H, T, d)`."""
    sums = ops.einsum("bgts,bgsd->bgtd", _fold(weights, value.shape[1]), value)
    return _unfold(sums, weights.shape[1])


def sum_over_queries(weights, query, groups: int):
    """`sum_t a_ts q_t`, over the heads that share keys too: `(B, G, S, d)`."""
    return ops.einsum("bgts,bgtd->bgsd", _fold(weights, groups), _fold(query, groups))


def _fold(tensor, groups):
    """Lay the query heads that share keys one after another: `(B, G, H / G * T, ...)`."""
    batch_size, heads, steps, size = ops.shape(tensor)
    if heads == groups:
        return tensor
    return ops.reshape(tensor, (batch_size, groups, heads // groups * steps, size))


def _unfold(tensor, heads):
    batch_size, groups, rows, size = ops.shape(tensor)
    if heads == groups:
        return tensor
    return ops.reshape(tensor, (batch_size, heads, rows * groups // heads, size))
