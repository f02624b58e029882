"""Scaled dot-product attention over heads (Vaswani et al. 2017), whichever way is best here.

| where | what runs |
| --- | --- |
| the weights are asked for | `attention_with_scores`: all at once, by automatic differentiation |
| PyTorch, softmax without biases or dropout | `keras.ops.dot_product_attention`: its fused kernel |
| JAX on a GPU, the same, without masks but the causal one | the same |
| anything else | `blocked_attention`, in parts as the lengths ask for |
"""

import keras
from keras import ops, random

from keras_attention.ops.attention_passes import Rule
from keras_attention.ops.blocked_attention import blocked_attention
from keras_attention.ops.distance_bias import by_pairs
from keras_attention.ops.normalizers import entmax15, masked_softmax, sparsemax
from keras_attention.ops.products import dot_products, weighted_sum
from keras_attention.ops.reach import Reach, Span

# Pairs of places up to which PyTorch's kernel is taken for a window, which saves no work there.
FUSED_WINDOW_PAIRS = 512 * 512
NORMALIZERS = {"softmax": masked_softmax, "sparsemax": sparsemax, "entmax15": entmax15}


def attention(
    query, key, value, reach=None, table=None, normalizer="softmax", dropout=0.0, seed=None
):
    """`softmax(q . k + bias) v` of every head, without the weights.

    Weights of hidden places are exactly 0; a query that sees nothing has a context of zeros, and
    finite gradients. Memory grows with `T + S`, not with `T S`, where the sequences are long.

    Args:
        query: `(B, H, T, d)`, scaled already.
        key: `(B, G, S, d)`, `G` a divisor of `H`: each key head serves `H / G` query heads.
        value: `(B, G, S, dv)`.
        reach: `Reach`, or `None` where every query sees all.
        table: Biases by distance, `(H, T + S - 1)`, from place `1 - T` to place `S - 1` relative to
            the query; or `None`.
        normalizer: `"softmax"`, `"sparsemax"` or `"entmax15"`.
        dropout: Rate at which weights are dropped.
        seed: A `keras.random.SeedGenerator`, where there is dropout.

    Returns:
        The context `(B, H, T, dv)`.
    """
    reach = reach or Reach()
    if table is None and normalizer == "softmax" and not dropout and _is_fused(query, key, reach):
        return _fused(query, key, value, reach)
    rule = Rule(reach, normalizer, dropout, seed.next() if dropout else None)
    return blocked_attention(query, key, value, rule, table)


def attention_with_scores(
    query,
    key,
    value,
    reach=None,
    table=None,
    normalizer="softmax",
    dropout=0.0,
    seed=None,
    rows=None,
):
    """Attend, and return the weights too; they are kept whole, and have gradients.

    Args:
        query: As in `attention`.
        key: As in `attention`.
        value: As in `attention`.
        reach: As in `attention`.
        table: As in `attention`.
        normalizer: As in `attention`.
        dropout: As in `attention`.
        seed: As in `attention`.
        rows: The `Span` of the queries' places. Default: from 0.

    Returns:
        The context `(B, H, T, dv)`, and the weights `(B, H, T, S)` before dropout.
    """
    steps, length = ops.shape(query)[2], ops.shape(key)[2]
    mask = (reach or Reach()).mask(rows or Span(0, steps), Span(0, length))
    scores = dot_products(query, key)
    if table is not None:
        scores = ops.cast(scores, "float32") + by_pairs(ops.cast(table, "float32"), steps, length)
    weights = ops.cast(NORMALIZERS[normalizer](scores, mask), query.dtype)
    kept = random.dropout(weights, dropout, seed=seed) if dropout else weights
    return weighted_sum(kept, value), weights


def _is_fused(query, key, reach) -> bool:
    """Whether the backend has a kernel that is faster and keeps no weights."""
    backend = keras.backend.backend()
    if backend == "torch":
        # A window is a mask of all pairs there: parts leave out what it hides.
        return reach.window is None or query.shape[2] * key.shape[2] <= FUSED_WINDOW_PAIRS
    if backend != "jax" or reach.has_masks or reach.window is not None:
        return False
    half = "float16" in keras.backend.standardize_dtype(query.dtype)
    return half and bool(keras.distribution.list_devices("gpu"))


def _fused(query, key, value, reach):
    heads = query.shape[1]
    query, key, value = (ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
    if key.shape[2] == 1 < heads:
        key, value = ops.repeat(key, heads, axis=2), ops.repeat(value, heads, axis=2)
    if not reach.has_masks and reach.window is None:
        context = ops.dot_product_attention(query, key, value, scale=1.0, is_causal=reach.causal)
        return ops.transpose(context, (0, 2, 1, 3))
    mask = reach.mask(Span(0, ops.shape(query)[1]), Span(0, ops.shape(key)[1]))
    context = ops.dot_product_attention(query, key, value, mask=mask, scale=1.0)
    seen = ops.cast(ops.any(mask, axis=-1, keepdims=True), context.dtype)
    return ops.transpose(context, (0, 2, 1, 3)) * seen
