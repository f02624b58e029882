"""Products of queries, keys and values, head by head, and biases by distance.

`H` query heads read `G` key heads: query head `h` reads key head `h G // H`.

Biases by distance `(H, T + S - 1)` hold one number for each head and distance (position of the key
minus position of the query), from `1 - T` to `S - 1`.
"""

from keras import ops

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
    """`sum_t a_ts q_t`, also over the heads that share keys: `(B, G, S, d)`."""
    return ops.einsum("bgts,bgtd->bgsd", _fold(weights, groups), _fold(query, groups))


def by_pairs(bias: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Spread `(H, rows + columns - 1)` over pairs `(H, rows, columns)`, by their distance."""
    heads, length = bias.shape[0], rows + columns - 1
    longer = ops.concatenate([bias, ops.zeros_like(bias[:, :1])], axis=1)
    # Reshaping rows that are one entry too long starts each row one entry later, without a gather.
    shifted = ops.tile(longer, (1, rows))[:, : rows * length]
    return ops.reshape(shifted, (heads, rows, length))[:, :, rows - 1 :]


def _fold(tensor: Tensor, groups: int) -> Tensor:
    """Concatenate the query heads that share keys: `(B, G, H / G * T, ...)`."""
    if tensor.shape[1] == groups:
        return tensor
    batch_size, heads, steps, size = ops.shape(tensor)
    return ops.reshape(tensor, (batch_size, groups, heads // groups * steps, size))


def _unfold(tensor: Tensor, heads: int) -> Tensor:
    if tensor.shape[1] == heads:
        return tensor
    batch_size, groups, rows, size = ops.shape(tensor)
    return ops.reshape(tensor, (batch_size, heads, rows * groups // heads, size))
