"""Linear attention, latent attention and gated delta networks in float64, step by step."""

import numpy as np

from tests.attention_oracle import softmax


def elu_plus_one(x):
    """The feature map of Katharopoulos et al. 2020, equation 7."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def squares(x):
    """A feature map of twice as many features."""
    return np.concatenate([x, x + 1], axis=-1) ** 2


MAPS = {"elu": elu_plus_one, "relu": lambda x: np.maximum(x, 0)}


def projected(x, weights, name):
    """Heads `(T, H, d)` of one sequence."""
    heads = np.einsum("td,dhe->the", x, weights[f"{name}_kernel"])
    return heads + weights.get(f"{name}_bias", 0.0)


def cleared(array, mask):
    """A sequence with zeros where it is masked."""
    return np.where(mask[:, None], np.float64(array), 0)


def linear_attention(weights, options, arrays, causal=False):
    """Equation 5, and 9 where causal, for each query by itself."""
    given = options.get("feature_map", "elu")
    feature_map = MAPS.get(given, squares)
    ones = np.ones(arrays["query"].shape[:2], bool)
    query_mask = arrays.get("query_mask", ones)
    alone = "value" not in arrays
    value, key = arrays.get("value", arrays["query"]), arrays.get("key")
    key = value if key is None else key
    default = query_mask if alone else np.ones(value.shape[:2], bool)
    value_mask = arrays.get("value_mask", default)
    outputs = []
    for b in range(len(ones)):
        q = feature_map(projected(cleared(arrays["query"][b], query_mask[b]), weights, "query"))
        k = feature_map(projected(cleared(key[b], value_mask[b]), weights, "key"))
        v = projected(cleared(value[b], value_mask[b]), weights, "value")
        context = np.zeros((len(q), *v.shape[1:]))
        for t in np.flatnonzero(query_mask[b]):
            seen = value_mask[b] & (np.arange(len(k)) <= t) if causal else value_mask[b]
            products = np.einsum("hd,shd->hs", q[t], k) * seen
            total = products.sum(axis=1, keepdims=True)
            share = products / np.where(total == 0, 1, total)
            context[t] = np.einsum("hs,shd->hd", share, v)
        output = np.einsum("thd,hdo->to", context, weights["output_kernel"])
        outputs.append(output + weights.get("output_bias", 0.0))
    return {"outputs": np.stack(outputs)}


def rotated(x, positions, max_wavelength):
    """Features turned by angles, halves paired, as complex numbers `(T, ..., d)`."""
    half = x.shape[-1] // 2
    angles = np.multiply.outer(positions, max_wavelength ** (-np.arange(half) / max(half, 1)))
    angles = angles.reshape(len(x), *[1] * (x.ndim - 2), half)
    numbers = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)
    return np.concatenate([numbers.real, numbers.imag], axis=-1)


def latent_attention(weights, options, arrays, causal=True):
    """DeepSeek-V2's equations 9 to 19, for each query by itself."""
    mask = arrays.get("query_mask", np.ones(arrays["query"].shape[:2], bool))
    wavelength = options.get("max_wavelength", 10000)
    rotary = options["rotary_dim"]

    def short(x, name):
        if not options.get("latent_norm"):
            return x
        root = np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6)
        return x / root * weights[f"{name}_gain"]

    outputs, scores = [], []
    for b, sequence in enumerate(arrays["query"]):
        x = cleared(sequence, mask[b])
        steps = np.arange(len(x))
        c = short(x @ weights["latent_kernel"], "latent")
        given = x
        if "query_latent_kernel" in weights:
            given = short(x @ weights["query_latent_kernel"], "query_latent")
        q, k = projected(given, weights, "query"), projected(c, weights, "key")
        if rotary:
            q_r = rotated(projected(given, weights, "query_rotary"), steps, wavelength)
            k_r = rotated(x @ weights["key_rotary_kernel"], steps, wavelength)
            k_r = np.repeat(k_r[:, None], k.shape[1], axis=1)
            q, k = np.concatenate([q, q_r], -1), np.concatenate([k, k_r], -1)
        v = projected(c, weights, "value")
        a = np.zeros((q.shape[1], len(x), len(x)))
        for t in np.flatnonzero(mask[b]):
            seen = mask[b] & (steps <= t) if causal else mask[b]
            for h in range(q.shape[1]):
                energies = k[seen, h] @ q[t, h] / np.sqrt(q.shape[-1])
                a[h, t, seen] = softmax(energies)
        context = np.einsum("hts,shd->thd", a, v)
        outputs.append(np.einsum("thd,hdo->to", context, weights["output_kernel"]))
        scores.append(a)
    return {"outputs": np.stack(outputs), "scores": np.stack(scores)}


def silu(x):
    """The activation of convolutions and gate."""
    return x / (1 + np.exp(-x))


def delta_net(weights, options, arrays):
    """Yang et al. 2025, equation 10, of the real steps of each sequence, one after the other."""
    mask = arrays.get("query_mask", np.ones(arrays["query"].shape[:2], bool))
    results = np.zeros(arrays["query"].shape)
    for b, sequence in enumerate(arrays["query"]):
        x = np.float64(sequence[mask[b]])
        heads = {}
        for name in ("query", "key", "value"):
            heads[name] = projected(x, weights, name)
            if options.get("conv_size", 4) is not None:
                kernel = weights[f"{name}_conv"]
                padded = np.concatenate(
                    [np.zeros((len(kernel) - 1, *kernel.shape[1:])), heads[name]]
                )
                mixed = [(padded[t : t + len(kernel)] * kernel).sum(axis=0) for t in range(len(x))]
                heads[name] = np.array(mixed).reshape(heads[name].shape)
            heads[name] = silu(heads[name])
        values = heads["value"].shape[1]
        for name in ("query", "key"):
            lengths = np.sqrt((heads[name] ** 2).sum(axis=-1, keepdims=True) + 1e-6)
            heads[name] = np.repeat(heads[name] / lengths, values // heads[name].shape[1], axis=1)
        rate = np.log1p(np.exp(x @ weights["decay_kernel"] + weights["dt_bias"]))
        alpha = np.exp(-np.exp(weights["a_log"]) * rate)
        beta = 1 / (1 + np.exp(-x @ weights["beta_kernel"]))
        beta = beta * (2 if options.get("allow_neg_eigval") else 1)
        context = np.zeros(heads["value"].shape)
        for h in range(values):
            q, k, v = (heads[name][:, h] for name in ("query", "key", "value"))
            state = np.zeros((v.shape[1], k.shape[1]))
            for t in range(len(x)):
                forget = np.eye(k.shape[1]) - beta[t, h] * np.outer(k[t], k[t])
                state = alpha[t, h] * state @ forget + beta[t, h] * np.outer(v[t], k[t])
                context[t, h] = state @ q[t]
        root = np.sqrt((context**2).mean(axis=-1, keepdims=True) + options.get("norm_eps", 1e-5))
        context = context / root * weights["norm_gain"]
        if options.get("use_gate", True):
            context = context * silu(projected(x, weights, "gate"))
        results[b, mask[b]] = np.einsum("thd,hdo->to", context, weights["output_kernel"])
    return {"outputs": results}
