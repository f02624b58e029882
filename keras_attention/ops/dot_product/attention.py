"""Scaled dot-product attention over heads (Vaswani et al. 2017), whichever way is best here.

| where | what runs |
| --- | --- |
| the weights are asked for | `attention_with_scores`: all at once, by automatic differentiation |
| PyTorch, softmax without biases, `score_mod` or dropout | Keras' fused kernel of the backend |
| JAX on a GPU, the same in half precision, lengths even, no mask but the causal one | the same |
| lengths known only when the graph runs | `open_lengths` |
| softmax with `score_mod` or `mask_mod` over long sequences | `block_sparse`, in square blocks |
| anything else | `blocks`, in parts as the lengths ask for |
"""

import keras
from keras import ops, random

from ..axes import size_of
from ..dropout import dropout_factors
from ..normalizers import NORMALIZERS
from ..types import Tensor, at_least_float32
from .block_sparse import block_sparse_attention
from .blocks import Rule, blocked_attention, plan_for
from .open_lengths import attend_in_turns
from .products import by_pairs, dot_products, weighted_sum
from .reach import Reach, Span

# Pairs of places up to which PyTorch's kernel is taken for a window, which saves no work there.
FUSED_WINDOW_PAIRS = 512 * 512


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    reach: Reach | None = None,
    table: Tensor = None,
    normalizer: str = "softmax",
    dropout: float = 0.0,
    seed: random.SeedGenerator = None,
) -> Tensor:
    """`softmax(q . k + bias) v` of every head, `(B, H, T, dv)`, without the weights.

    Takes queries `(B, H, T, d)`, scaled already, keys `(B, G, S, d)` and values `(B, G, S, dv)`:
    each key head serves `H / G` query heads. `table` has biases by distance, as in `products`.
    A query that sees nothing has a context of zeros. Memory grows with `T + S`, not with `T S`.
    """
    if _is_empty(query, key):
        return _nothing(query, value)
    reach = (reach or Reach()).of_inputs(query)
    plain = table is None and normalizer == "softmax"
    if plain and not dropout and reach.mods.score is None and _is_fused(query, key, reach):
        return _fused(query, key, value, reach)
    seed = seed.next() if dropout else None
    rule = Rule(reach, normalizer, dropout, seed, has_table=table is not None)
    tensors = (query, key, value, *([] if table is None else [table]), *reach.mods.tensors())
    plan = plan_for(query.shape, key.shape, reach)
    if plan is None:
        return attend_in_turns(tensors, rule)
    if plain and not plan.keep and reach.mods.any:
        return block_sparse_attention(tensors, rule)
    return blocked_attention(tensors, rule, plan)


def attention_with_scores(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    reach: Reach | None = None,
    table: Tensor = None,
    normalizer: str = "softmax",
    dropout: float = 0.0,
    seed: random.SeedGenerator = None,
    rows: Span | None = None,
) -> tuple[Tensor, Tensor]:
    """Attend as `attention` does; return the weights `(B, H, T, S)` before dropout too."""
    if _is_empty(query, key):
        shape = (*ops.shape(query)[:3], ops.shape(key)[2])
        return _nothing(query, value), ops.zeros(shape, query.dtype)
    steps, length = size_of(query, 2), size_of(key, 2)
    reach = (reach or Reach()).of_inputs(query)
    pairs = rows or Span(0, steps, is_all=True), Span(0, length, is_all=True)
    mask, scores = reach.mask(*pairs), dot_products(query, key)
    if table is not None:
        scores = at_least_float32(scores) + by_pairs(at_least_float32(table), steps, length)
    if reach.mods.score is not None:
        scores = reach.mods.score(at_least_float32(scores), *reach.places(*pairs))
    weights = ops.cast(NORMALIZERS[normalizer](scores, mask), query.dtype)
    kept = weights
    if dropout:
        dtype = keras.backend.standardize_dtype(weights.dtype)
        kept = weights * dropout_factors(ops.shape(weights), dropout, seed, dtype)
    return weighted_sum(kept, value), weights


def _is_empty(query: Tensor, key: Tensor) -> bool:
    """Whether there is no example, no query or no place, and that is known."""
    return 0 in (query.shape[0], query.shape[2], key.shape[2])


def _nothing(query: Tensor, value: Tensor) -> Tensor:
    """Return a context of zeros, with gradients of zeros."""
    shape = (*ops.shape(query)[:3], ops.shape(value)[3])
    return ops.zeros(shape, query.dtype) + ops.sum(query[:0]) + ops.sum(value[:0])


def _is_fused(query: Tensor, key: Tensor, reach: Reach) -> bool:
    """Whether the backend has a kernel that is faster and keeps no weights."""
    backend = keras.backend.backend()
    if keras.backend.standardize_dtype(query.dtype) == "float64":
        return False  # Keras would round it to float32
    half = "float16" in keras.backend.standardize_dtype(query.dtype)
    if backend == "torch":
        if half and query.device.type == "cpu":
            return False  # its gradients of scores are those of the rounded context
        # A window is a mask of all pairs there: parts leave out what it hides.
        pairs = query.shape[2] * key.shape[2]
        return (reach.window is None and reach.mods.mask is None) or pairs <= FUSED_WINDOW_PAIRS
    if backend != "jax" or reach.has_masks or reach.window is not None:
        return False
    # Asked for GPUs alone, JAX raises where there are none.
    if not half or not any("gpu" in device for device in keras.distribution.list_devices()):
        return False
    # Of odd lengths cuDNN has no gradient; Keras goes another way, but prints a long error first.
    return query.shape[2] % 2 == 0 and key.shape[2] % 2 == 0


def _fused(query: Tensor, key: Tensor, value: Tensor, reach: Reach) -> Tensor:
    heads = query.shape[1]
    query, key, value = (ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
    if key.shape[2] == 1 < heads:
        key, value = ops.repeat(key, heads, axis=2), ops.repeat(value, heads, axis=2)
    if not reach.has_masks and reach.window is None:
        context = ops.dot_product_attention(query, key, value, scale=1.0, is_causal=reach.causal)
        return ops.transpose(context, (0, 2, 1, 3))
    rows, columns = (Span(0, ops.shape(x)[1], is_all=True) for x in (query, key))
    mask = reach.mask(rows, columns)
    context = ops.dot_product_attention(query, key, value, mask=mask, scale=1.0)
    seen = ops.cast(ops.any(mask, axis=-1, keepdims=True), context.dtype)
    return ops.transpose(context, (0, 2, 1, 3)) * seen
