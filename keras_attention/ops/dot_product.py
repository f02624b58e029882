"""Scaled dot-product attention over heads (Vaswani et al. 2017), whichever way is best here."""

from keras import ops, random

from keras_attention.ops.normalizers import entmax15, masked_softmax, sparsemax
from keras_attention.ops.reach import Reach, Span

NORMALIZERS = {"softmax": masked_softmax, "sparsemax": sparsemax, "entmax15": entmax15}


def attention_with_scores(
    query,
    key,
    value,
    reach=None,
    bias=None,
    normalizer="softmax",
    dropout=0.0,
    seed=None,
    rows=None,
):
    """Attend, and return the weights too; they are kept whole, and have gradients.

    Args:
        query: `(B, H, T, d)`, scaled already.
        key: `(B, G, S, d)`, `G` a divisor of `H`: each key head serves `H / G` query heads.
        value: `(B, G, S, dv)`.
        reach: `Reach`, or `None` where every query sees all.
        bias: Added to the scores; broadcasts to `(B, H, T, S)`.
        normalizer: `"softmax"`, `"sparsemax"` or `"entmax15"`.
        dropout: Rate at which weights are dropped.
        seed: A `keras.random.SeedGenerator`, where there is dropout.
        rows: The `Span` of the queries' places. Default: from 0.

    Returns:
        The context `(B, H, T, dv)`, and the weights `(B, H, T, S)` before dropout.
    """
    rows = rows or Span(0, ops.shape(query)[2])
    mask = (reach or Reach()).mask(rows, Span(0, ops.shape(key)[2]))
    scores = dot_products(query, key)
    if bias is not None:
        scores = ops.cast(scores, "float32") + ops.cast(bias, "float32")
    weights = ops.cast(NORMALIZERS[normalizer](scores, mask), query.dtype)
    kept = random.dropout(weights, dropout, seed=seed) if dropout else weights
    return weighted_sum(kept, value), weights


def dot_products(query, key):
    """`q_t . k_s` of every head: `(B, H, T, d)` and `(B, G, S, d)` give `(B, H, T, S)`."""
    heads = query.shape[1]
    products = ops.einsum("bgtd,bgsd->bgts", fold_heads(query, key.shape[1]), key)
    return unfold_heads(products, heads)


def weighted_sum(weights, value):
    """`sum_s a_ts v_s` of every head: `(B, H, T, S)` and `(B, G, S, d)` give `(B, H, T, d)`."""
    heads = weights.shape[1]
    sums = ops.einsum("bgts,bgsd->bgtd", fold_heads(weights, value.shape[1]), value)
    return unfold_heads(sums, heads)


def fold_heads(tensor, groups: int):
    """Lay the query heads that share keys one after another: `(B, G, H / G * T, ...)`."""
    batch_size, heads, steps, size = ops.shape(tensor)
    if heads == groups:
        return tensor
    return ops.reshape(tensor, (batch_size, groups, heads // groups * steps, size))


def unfold_heads(tensor, heads: int):
    """Undo `fold_heads`."""
    batch_size, groups, rows, size = ops.shape(tensor)
    if heads == groups:
        return tensor
    return ops.reshape(tensor, (batch_size, heads, rows * groups // heads, size))
