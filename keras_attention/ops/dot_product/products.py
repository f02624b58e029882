"""Products of queries, keys and values, head by head, and biases by distance.

`H` query heads read `G` key heads: query head `h` reads key head `h G // H`.

A table of biases `(H, T + S - 1)` holds one number for each head and distance (place of the key
less that of the query), from `1 - T` to `S - 1`. Blocks of pairs are read off it by reshaping rows
that are one too long: no gathering.
"""

from ..double import ops
from ..types import Tensor


def dot_products(query: Tensor, key: Tensor) -> Tensor:
    """`q_t . k_s`: `(B, H, T, d)` and `(B, G, S, d)` give `(B, H, T, S)`."""
    products = ops.einsum("bgtd,bgsd->bgts", _fold(query, key.shape[1]), key)
    return _unfold(products, query.shape[1])


def weighted_sum(weights: Tensor, value: Tensor) -> Tensor:
    """`sum_s a_ts v_s`: `(B, H, T, S)` and `(B, G, S, d)` give `(B, H, T, d)`."""
    sums = ops.einsum("bgts,bgsd->bgtd", _fold(weights, value.shape[1]), value)
    return _unfold(sums, weights.shape[1])


def sum_over_queries(weights: Tensor, query: Tensor, groups: int) -> Tensor:
    """`sum_t a_ts q_t`, over the heads that share keys too: `(B, G, S, d)`."""
    return ops.einsum("bgts,bgtd->bgsd", _fold(weights, groups), _fold(query, groups))


def by_pairs(table: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Spread `(H, rows + columns - 1)` over pairs `(H, rows, columns)`, by their distance."""
    heads, length = table.shape[0], rows + columns - 1
    longer = ops.concatenate([table, ops.zeros_like(table[:, :1])], axis=1)
    # Each row starts one entry later than the one above it.
    shifted = ops.tile(longer, (1, rows))[:, : rows * length]
    return ops.reshape(shifted, (heads, rows, length))[:, :, rows - 1 :]


def summed_by_distance(pairs: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Sum `(H, rows, columns)` over the pairs of each distance: the transpose of `by_pairs`."""
    heads, length = pairs.shape[0], rows + columns - 1
    wide = ops.concatenate([ops.zeros((heads, rows, rows - 1), pairs.dtype), pairs], axis=2)
    flat = ops.reshape(wide, (heads, rows * length))
    flat = ops.concatenate([flat, ops.zeros((heads, rows), pairs.dtype)], axis=1)
    return ops.sum(ops.reshape(flat, (heads, rows, length + 1)), axis=1)[:, :-1]


def _fold(tensor: Tensor, groups: int) -> Tensor:
    """Lay the query heads that share keys one after another: `(B, G, H / G * T, ...)`."""
    if tensor.shape[1] == groups:
        return tensor
    batch_size, heads, steps, size = ops.shape(tensor)
    return ops.reshape(tensor, (batch_size, groups, heads // groups * steps, size))


def _unfold(tensor: Tensor, heads: int) -> Tensor:
    if tensor.shape[1] == heads:
        return tensor
    batch_size, groups, rows, size = ops.shape(tensor)
    return ops.reshape(tensor, (batch_size, heads, rows * groups // heads, size))
