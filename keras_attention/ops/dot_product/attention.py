"""Scaled dot-product attention over heads (Vaswani et al. 2017): the functions that a layer calls.

| case | computed by |
| --- | --- |
| the weights are wanted | `attention_with_scores`: all at once, by automatic differentiation |
| PyTorch, softmax without biases, `score_mod` or dropout | the backend's fused kernel |
| JAX on a GPU, the same in half precision, even lengths, no mask but the causal one | the same |
| lengths that only the graph knows | `chunks` |
| softmax with `score_mod` or `mask_mod` over long sequences | `block_sparse` |
| all else | `blocks` |

The last three are modules with `forward`, `backward` and `differentiable`, which has derivatives of
any order.
"""

import keras
from keras import ops, random

from ..bound_functions import BoundFunction
from ..dropout import dropout_factors
from ..normalizers import NORMALIZERS
from ..shapes import is_symbol, size_of
from ..types import Tensor, at_least_float32
from ..vjp import is_in_graph, unwatched, with_gradient
from . import block_sparse, blocks, chunks
from .blocks import WeightOptions, plan_for
from .mask_spec import MaskSpec, Range
from .products import by_pairs, dot_products, weighted_sum

# Pairs up to which PyTorch's kernel is used for a window, which saves no work there.
FUSED_WINDOW_PAIRS = 512 * 512


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    spec: MaskSpec | None = None,
    bias: Tensor = None,
    normalizer: str = "softmax",
    dropout: float = 0.0,
    seed: random.SeedGenerator = None,
    score_mod: BoundFunction | None = None,
    sink: Tensor = None,
) -> Tensor:
    """`A(q . k + b) v` of every head, `(B, H, T, dv)`, without the weights.

    Memory grows with `T + S`, not with `T S`. A query that may attend to no key has a context of
    zeros.

    Args:
        query: Queries `(B, H, T, d)`, scaled already.
        key: Keys `(B, G, S, d)`; each key head serves `H / G` query heads.
        value: Values `(B, G, S, dv)`.
        spec: The keys that each query may attend to. Default: all.
        bias: Biases by distance `(H, T + S - 1)`, as in `products`.
        normalizer: A key of `NORMALIZERS`.
        dropout: Rate at which weights are dropped.
        seed: Seed generator of the dropout.
        score_mod: Function of scores and positions that returns other scores.
        sink: Logits `(H,)` of the sinks of `softmax1`, which must then be the normalizer.
    """
    if _is_empty(query, key):
        return _zero_context(query, value)
    spec = (spec or MaskSpec()).for_queries(query)
    if is_symbol(query.shape[2]) or is_symbol(key.shape[2]):  # they cannot be cut to blocks
        given = (query, key, value, spec, bias, normalizer, dropout, seed, score_mod, sink)
        return attention_with_scores(*given)[0]
    is_plain = bias is None and normalizer == "softmax"
    if is_plain and not dropout and score_mod is None and _is_fused(query, key, spec):
        return _fused(query, key, value, spec)
    zero_distance = None if bias is None else size_of(query, 2) - 1
    drawn = seed.next() if dropout else None
    has_sink = sink is not None
    options = WeightOptions(spec, normalizer, dropout, drawn, score_mod, zero_distance, has_sink)
    plan = plan_for(query.shape, key.shape, spec)
    has_functions = score_mod is not None or spec.mask_mod is not None
    way = chunks if plan is None else blocks
    is_softmax = bias is None and normalizer in ("softmax", "softmax1")
    if plan is not None and not plan.keep and is_softmax and has_functions:
        way = block_sparse

    def attend(*tensors: Tensor) -> tuple:
        if way is chunks and is_in_graph(tensors[0]):  # a loop's updates have no native gradient
            tensors = tuple(unwatched(tensors))
        context, saved = way.forward(tensors, options, plan)
        given = (tensors, options, plan, context, saved)
        return context, lambda d_context: way.backward(*given, d_context)

    tensors = [query, key, value]
    tensors += [] if sink is None else [ops.expand_dims(sink, 1)]
    tensors += [] if bias is None else [bias]
    tensors += [] if score_mod is None else score_mod.tensors()
    return with_gradient(attend, lambda *x: way.differentiable(x, options, plan))(*tensors)


def attention_with_scores(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    spec: MaskSpec | None = None,
    bias: Tensor = None,
    normalizer: str = "softmax",
    dropout: float = 0.0,
    seed: random.SeedGenerator = None,
    score_mod: BoundFunction | None = None,
    sink: Tensor = None,
    rows: Range | None = None,
    keys: Range | None = None,
) -> tuple[Tensor, Tensor]:
    """Attend as `attention` does; return the weights `(B, H, T, S)` before dropout too.

    `rows` are the positions of the queries, `keys` those of the keys. Default: from 0.
    """
    if _is_empty(query, key):
        shape = (*ops.shape(query)[:3], ops.shape(key)[2])
        return _zero_context(query, value), ops.zeros(shape, query.dtype)
    spec = (spec or MaskSpec()).for_queries(query)
    rows = rows or Range.of_axis(query, 2)
    keys = keys or Range.of_axis(key, 2)
    scores = dot_products(query, key)
    if bias is not None:
        pairs = by_pairs(at_least_float32(bias), size_of(query, 2), keys.size)
        scores = at_least_float32(scores) + pairs
    if score_mod is not None:
        positions = spec.positions(rows, [keys])
        scores = score_mod.function(at_least_float32(scores), *positions)
    sinks = {} if sink is None else {"sink": ops.expand_dims(sink, (1, 2))}
    weights = NORMALIZERS[normalizer](scores, spec.mask(rows, [keys]), **sinks)
    weights = ops.cast(weights, query.dtype)
    kept = weights
    if dropout:
        dtype = keras.backend.standardize_dtype(weights.dtype)
        kept = weights * dropout_factors(ops.shape(weights), dropout, seed, dtype)
    return weighted_sum(kept, value), weights


def _is_empty(query: Tensor, key: Tensor) -> bool:
    """Return whether it is known that there is no example, no query or no key."""
    return 0 in (query.shape[0], query.shape[2], key.shape[2])


def _zero_context(query: Tensor, value: Tensor) -> Tensor:
    """Return a context of zeros, with gradients of zeros."""
    shape = (*ops.shape(query)[:3], ops.shape(value)[3])
    return ops.zeros(shape, query.dtype) + ops.sum(query[:0]) + ops.sum(value[:0])


def _is_fused(query: Tensor, key: Tensor, spec: MaskSpec) -> bool:
    """Return whether the backend has a kernel that is faster and keeps no weights."""
    backend = keras.backend.backend()
    dtype = keras.backend.standardize_dtype(query.dtype)
    if dtype == "float64":
        return False  # Keras would round it to float32
    is_half = "float16" in dtype
    if backend == "torch":
        if is_half and query.device.type == "cpu":
            return False  # its gradients of scores are those of the rounded context
        # A window is a mask of all pairs there, while blocks skip what it hides.
        pairs = query.shape[2] * key.shape[2]
        return (spec.window is None and spec.mask_mod is None) or pairs <= FUSED_WINDOW_PAIRS
    if backend != "jax" or spec.has_masks or spec.window is not None:
        return False
    # JAX raises an error where it is asked for GPUs and there are none.
    if not is_half or not any("gpu" in device for device in keras.distribution.list_devices()):
        return False
    # cuDNN has no gradient for odd lengths; Keras falls back, but prints a long error first.
    return query.shape[2] % 2 == 0 and key.shape[2] % 2 == 0


def _fused(query: Tensor, key: Tensor, value: Tensor, spec: MaskSpec) -> Tensor:
    heads = query.shape[1]
    query, key, value = (ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
    if key.shape[2] == 1 < heads:
        key, value = ops.repeat(key, heads, axis=2), ops.repeat(value, heads, axis=2)
    if not spec.has_masks and spec.window is None:
        context = ops.dot_product_attention(query, key, value, scale=1.0, is_causal=spec.causal)
        return ops.transpose(context, (0, 2, 1, 3))
    mask = spec.mask(Range.of_axis(query, 1), [Range.of_axis(key, 1)])
    context = ops.dot_product_attention(query, key, value, mask=mask, scale=1.0)
    seen = ops.cast(ops.any(mask, axis=-1, keepdims=True), context.dtype)
    return ops.transpose(context, (0, 2, 1, 3)) * seen
