"""Multi-head attention in float64, row by row."""

import numpy as np


def softmax(scores):
    """Softmax of one row."""
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def softmax1(scores, sink=0.0):
    """Softmax of one row and a sink, whose weight is left out."""
    return softmax(np.append(scores, sink))[:-1]


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


NORMALIZERS = {
    "softmax": softmax,
    "softmax1": softmax1,
    "sparsemax": sparsemax,
    "entmax15": entmax15,
}


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
    sinks=None,
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
            own = (scores,) if sinks is None else (scores, sinks[h])
            weights[b, h, t, seen] = NORMALIZERS[normalizer if sinks is None else "softmax1"](*own)
    shared = np.repeat(value, heads // groups, axis=1)
    return weights @ shared, weights


def rotated(heads, first=0, max_wavelength=10000):
    """Each pair of features (one of each half) of `(B, T, H, D)`, turned by its place."""
    heads, half = np.array(heads), heads.shape[-1] // 2
    for t in range(heads.shape[1]):
        for i in range(half):
            angle = (t + first) * max_wavelength ** (-i / half)
            pair = heads[:, t, :, i] + 1j * heads[:, t, :, i + half]
            pair = pair * np.exp(1j * angle)
            heads[:, t, :, i], heads[:, t, :, i + half] = pair.real, pair.imag
    return heads


def bucket(distance, num_buckets, max_distance, both_ways):
    """The bucket of T5's relative bias (Raffel et al. 2020, section 2.1)."""
    if both_ways:
        half = num_buckets // 2
        return half * (distance > 0) + bucket(-abs(distance), half, max_distance, False)
    distance, exact = max(-distance, 0), num_buckets // 2
    if distance < exact:
        return distance
    share = np.log(distance / exact) / np.log(max_distance / exact)
    return min(exact + int(share * (num_buckets - exact) + 1e-9), num_buckets - 1)


def multi_head(weights, options, arrays, causal=False):
    """The output and the scores of `MultiHeadAttention`, its weights by name."""
    weights = {name: np.float64(array) for name, array in weights.items()}
    heads, size = options["num_heads"], options["key_dim"]
    query = np.float64(arrays["query"])
    value = np.float64(arrays.get("value", query))
    key = np.float64(arrays.get("key", value))
    query_mask = arrays.get("query_mask")
    value_mask = arrays.get("value_mask", None if "value" in arrays else query_mask)
    if "key_mask" in arrays:
        value_mask = arrays["key_mask"] & (True if value_mask is None else value_mask)
    attention_mask = arrays.get("attention_mask")
    if attention_mask is not None and attention_mask.ndim == 3:
        attention_mask = attention_mask[:, None]

    def project(name, inputs):
        product = np.einsum("btd,dhk->bthk", inputs, weights[f"{name}_kernel"])
        return product + weights.get(f"{name}_bias", 0.0)

    def placed(name, inputs):
        product = project(name, inputs)
        if options.get("query_key_norm"):
            squares = np.mean(product**2, axis=-1, keepdims=True)
            product = product / np.sqrt(squares + 1e-6) * weights[f"{name}_gain"]
        if options.get("positions") == "rotary":
            product = rotated(product, 0, options.get("max_wavelength", 10000))
        return product.swapaxes(1, 2)

    def bias(head, distance):
        if options.get("positions") == "alibi":  # for a power of two heads
            return -(2.0 ** (-8 * (head + 1) / heads)) * abs(distance)
        if options.get("positions") == "relative":
            buckets = options.get("num_buckets", 32), options.get("max_distance", 128)
            return weights["relative_bias"][bucket(distance, *buckets, not causal), head]
        return 0.0

    context, scores = attend(
        placed("query", query) / np.sqrt(size),
        placed("key", key),
        project("value", value).swapaxes(1, 2),
        bias=bias,
        normalizer=options.get("normalizer", "softmax"),
        query_mask=query_mask,
        value_mask=value_mask,
        attention_mask=attention_mask,
        causal=causal,
        window=options.get("window"),
        num_sinks=options.get("num_sinks", 0),
        sinks=weights.get("sink_logits"),
    )
    output = np.einsum("bhtv,hv...->bt...", context, weights["output_kernel"])
    return {"outputs": output + weights.get("output_bias", 0.0), "scores": scores}
