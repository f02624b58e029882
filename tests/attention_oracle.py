"""Multi-head attention in float64, row by row."""

import numpy as np


def softmax(scores):
    """Softmax of one row."""
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def by_threshold(weights_at, low, high):
    """The weights for the threshold at which they sum to 1, found by halving an interval."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if weights_at(middle).sum() > 1 else (low, middle)
    weights = weights_at((low + high) / 2)
    return weights / weights.sum()


def sparsemax(scores):
    """Sparsemax of one row (Martins and Astudillo 2016, equation 3)."""
    return by_threshold(lambda t: np.maximum(scores - t, 0), scores.max() - 1, scores.max())


def entmax15(scores):
    """Entmax-1.5 of one row (Peters, Niculae and Martins 2019, equation 5)."""
    half = scores / 2
    return by_threshold(lambda t: np.maximum(half - t, 0) ** 2, half.max() - 1, half.max())


NORMALIZERS = {"softmax": softmax, "sparsemax": sparsemax, "entmax15": entmax15}


def visible(t, s, causal=False, window=None, num_sinks=0):
    """Whether places alone let query `t` see place `s`."""
    if causal and s > t:
        return False
    return window is None or abs(t - s) < window or s < num_sinks


def attend(
    query,
    key,
    value,
    bias=lambda head, distance: 0.0,
    normalizer="softmax",
    query_mask=None,
    value_mask=None,
    attention_mask=None,
    first=0,
    **places,
):
    """Context `(B, H, T, dv)` and weights `(B, H, T, S)`; queries are scaled already."""
    query, key, value = (np.float64(x) for x in (query, key, value))
    batch, heads, steps, _ = query.shape
    groups, length = key.shape[1:3]
    weights = np.zeros((batch, heads, steps, length))
    if attention_mask is not None:
        attention_mask = np.broadcast_to(attention_mask, weights.shape)
    for b, h, t in np.ndindex(batch, heads, steps):
        if query_mask is not None and not query_mask[b, t]:
            continue
        seen = [
            s
            for s in range(length)
            if visible(t + first, s, **places)
            and (value_mask is None or value_mask[b, s])
            and (attention_mask is None or attention_mask[b, h, t, s])
        ]
        if seen:
            keys = key[b, h * groups // heads, seen]
            distances = [bias(h, s - t - first) for s in seen]
            scores = keys @ query[b, h, t] + np.array(distances)
            weights[b, h, t, seen] = NORMALIZERS[normalizer](scores)
    shared = np.repeat(value, heads // groups, axis=1)
    return weights @ shared, weights
