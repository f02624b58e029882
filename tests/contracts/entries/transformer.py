"""The Transformer's blocks."""

import functools

import keras
import numpy as np
from keras import ops

from keras_attention.layers import TransformerDecoder, TransformerEncoder
from tests.contracts.backend import random
from tests.contracts.entry import Entry
from tests.contracts.kinds import VALUE_SIZE, value_mask
from tests.contracts.oracles import softmax
from tests.contracts.plain import Plain

HEADS, SIZE, INNER, MEMORY = 2, 3, 17, 11


def projections(name, value_size=VALUE_SIZE, heads=HEADS, size=SIZE):
    """Pinned weights of an attention and its norm."""
    kernels = {"query": (VALUE_SIZE, heads, size), "key": (value_size, heads, size)}
    kernels |= {"value": (value_size, heads, size), "output": (heads, size, VALUE_SIZE)}
    weights = {}
    for part, shape in kernels.items():
        weights[f"{name}.{part}_kernel"] = shape
        weights[f"{name}.{part}_bias"] = shape[1:] if part != "output" else shape[2:]
    return weights | norm(name)


def norm(name):
    """Pinned weights of a layer normalisation."""
    return {f"{name}_norm.gamma": (VALUE_SIZE,), f"{name}_norm.beta": (VALUE_SIZE,)}


def network(gated=False):
    """Pinned weights of the feed-forward network and its norm."""
    width = 2 * INNER if gated else INNER
    return {
        "feed_forward.kernel": (VALUE_SIZE, width),
        "feed_forward.bias": (width,),
        "feed_forward.output_kernel": (INNER, VALUE_SIZE),
        "feed_forward.output_bias": (VALUE_SIZE,),
        **norm("feed_forward"),
    }


def encoder_arrays(seed, batch, steps, lengths):
    """A sequence of unequal lengths, and pairs that may attend."""
    length = max(lengths)
    pairs = np.random.default_rng(seed + 9).random((batch, length, length)) < 0.7
    return {
        "inputs": random(seed + 1, batch, length, VALUE_SIZE),
        "inputs_mask": value_mask(length, lengths),
        "attention_mask": pairs | np.eye(length, dtype=bool),
    }


def decoder_arrays(seed, batch, steps, lengths):
    """A sequence of targets, some shorter, and a memory of unequal lengths."""
    length = max(lengths)
    targets = tuple(max(1, steps - place) for place in range(batch))
    pairs = np.random.default_rng(seed + 9).random((batch, steps, steps)) < 0.7
    return {
        "inputs": random(seed + 1, batch, steps, VALUE_SIZE),
        "value": random(seed + 2, batch, length, MEMORY),
        "inputs_mask": value_mask(steps, targets),
        "value_mask": value_mask(length, lengths),
        "attention_mask": pairs | np.eye(steps, dtype=bool),
    }


def call_encoder(layer, tensors, **options):
    """Outputs and weights."""
    outputs, scores = layer(**tensors, return_attention_scores=True, **options)
    return {"outputs": outputs, "scores": scores}


def call_decoder(layer, tensors, **options):
    """Outputs, and the weights of both attentions."""
    outputs, scores = layer(**tensors, return_attention_scores=True, **options)
    results = {"outputs": outputs, "scores_self": scores["self_attention"]}
    if "cross_attention" in scores:
        results["scores_memory"] = scores["cross_attention"]
    return results


def normalised(weights, name, x, epsilon=1e-5):
    """Layer normalisation of one vector."""
    x = (x - x.mean()) / np.sqrt(x.var() + epsilon)
    return x * weights[f"{name}_norm.gamma"] + weights[f"{name}_norm.beta"]


def attended(weights, name, queries, memory, allowed):
    """Attention of one example, head by head and query by query; weights (H, T, S)."""

    def projected(x, part, head):
        kernel, bias = (weights[f"{name}.{part}_{kind}"] for kind in ("kernel", "bias"))
        return x @ kernel[:, head] + bias[head]

    kernel = weights[f"{name}.output_kernel"]
    outputs = np.tile(weights[f"{name}.output_bias"], (len(queries), 1))
    scores = np.zeros((len(kernel), len(queries), len(memory)))
    for head in range(len(kernel)):
        keys, values = (projected(memory, part, head) for part in ("key", "value"))
        for t, query in enumerate(queries):
            energies = keys @ projected(query, "query", head) / np.sqrt(keys.shape[1])
            scores[head, t] = softmax(energies, allowed[t])
            outputs[t] += scores[head, t] @ values @ kernel[head]
    return outputs, scores


def fed(weights, x, activation):
    """The feed-forward network."""
    hidden = x @ weights["feed_forward.kernel"] + weights["feed_forward.bias"]
    if activation == "swiglu":
        gate, hidden = np.split(hidden, 2, axis=-1)
        hidden = gate / (1 + np.exp(-gate)) * hidden
    else:
        hidden = np.maximum(hidden, 0)
    return hidden @ weights["feed_forward.output_kernel"] + weights["feed_forward.output_bias"]


def block(causal):
    """An oracle of a block, one example at a time."""

    def oracle(weights, options, arrays):
        batch, steps = arrays["inputs"].shape[:2]
        mask = arrays.get("inputs_mask", np.ones((batch, steps), bool))
        pairs = arrays.get("attention_mask", np.ones((batch, steps, steps), bool))
        pairs = pairs & mask[:, None, :] & mask[:, :, None]
        pairs = pairs & np.tri(steps, dtype=bool) if causal else pairs
        feed = functools.partial(fed, weights, activation=options.get("activation", "relu"))
        results = {}

        def add(key, value):
            results.setdefault(key, []).append(value)

        for b in range(batch):
            x = np.float64(arrays["inputs"][b])

            def sublayer(x, name, function):
                if options.get("norm") == "pre":
                    return x + function(np.stack([normalised(weights, name, row) for row in x]))
                return np.stack([normalised(weights, name, row) for row in x + function(x)])

            def itself(y, b=b):
                y, scores = attended(weights, "self_attention", y, y, pairs[b])
                add("scores_self" if causal else "scores", scores)
                return y

            x = sublayer(x, "self_attention", itself)
            if "value" in arrays:
                memory = np.float64(arrays["value"][b])
                real = arrays.get("value_mask", np.ones(arrays["value"].shape[:2], bool))[b]

                def reading(y, b=b, memory=memory, real=real):
                    allowed = mask[b][:, None] & real
                    y, scores = attended(weights, "cross_attention", y, memory, allowed)
                    add("scores_memory", scores)
                    return y

                x = sublayer(x, "cross_attention", reading)
            add("outputs", sublayer(x, "feed_forward", feed))
        return {name: np.stack(values) for name, values in results.items()}

    return oracle


def stepwise(layer, tensors):
    """One step at a time over a cache; padding at the end and free pairs do not enter."""
    inputs, value = tensors["inputs"], tensors.get("value")
    batch, steps = inputs.shape[:2]
    memory = layer.prepare_memory(value, tensors.get("value_mask"))
    states = [layer.initial_state(batch, steps)]
    outputs, weights = [], {"self_attention": [], "cross_attention": []}
    for t in range(steps):
        output, scores, state = layer.step(inputs[:, t], memory, states[-1], t)
        outputs.append(output)
        states.append(state)
        for name, each in scores.items():
            weights[name].append(each)
    results = {"outputs": ops.stack(outputs, 1)}
    results["scores_self"] = ops.stack(weights["self_attention"], 2)
    if value is not None:
        results["scores_memory"] = ops.stack(weights["cross_attention"], 2)
    carried = {} if memory is None else memory
    return results, [{"memory": carried, "cache": state} for state in states]


def without_pairs(make):
    """Arrays without `attention_mask`, which a step over a cache does not know."""

    def arrays(seed, batch, steps, lengths):
        given = make(seed, batch, steps, lengths)
        given["attention_mask"] = np.ones_like(given["attention_mask"])
        return given

    return arrays


ENCODER_AXES = {"inputs": "BTD", "inputs_mask": "BT", "attention_mask": "BTT", "outputs": "BTD"}
DECODER_AXES = {**ENCODER_AXES, "scores_self": "BHTT"}
MEMORY_AXES = {"value": "BSM", "value_mask": "BS", "scores_memory": "BHTS"}
OPTIONS = {"intermediate_dim": INNER, "num_heads": HEADS, "key_dim": SIZE}


class WithMemory(Plain):
    """A decoder's case that has a memory, which `model.add` gives it none of."""

    def self_attention(self):
        """A block without cross-attention, and the case of such a block."""
        return self.layer(**self.options), decoder(self.name, memory=False, **self.options)


def encoder(name, **options):
    """A case of the encoder."""
    return Plain(
        f"transformer-encoder-{name}",
        TransformerEncoder,
        OPTIONS | options,
        projections("self_attention") | network(options.get("activation") == "swiglu"),
        encoder_arrays,
        call_encoder,
        block(causal=False),
        axes=ENCODER_AXES | {"scores": "BHTT"},
        masks={"inputs_mask": "inputs"},
        alone=lambda x, mask: {"inputs": x, "inputs_mask": mask},
    )


def decoder(name, memory=True, **options):
    """A case of the decoder, with a memory or without."""
    weights = projections("self_attention")
    weights |= projections("cross_attention", MEMORY) if memory else {}
    axes = DECODER_AXES | (MEMORY_AXES if memory else {})
    masks = {"inputs_mask": "inputs"} | ({"value_mask": "value"} if memory else {})
    return (WithMemory if memory else Plain)(
        f"transformer-decoder-{name}",
        TransformerDecoder,
        OPTIONS | options,
        weights | network(options.get("activation") == "swiglu"),
        without_pairs(decoder_arrays if memory else encoder_arrays),
        call_decoder,
        block(causal=True),
        axes=axes,
        masks=masks,
        steps=stepwise,
        alone=lambda x, mask: {"inputs": x, "inputs_mask": mask},
    )


CONFIG = {
    "intermediate_dim": 19,
    "num_heads": 4,
    "key_dim": 6,
    "dropout": 0.2,
    "attention_dropout": 0.3,
    "activation": "geglu",
    "norm": "pre",
    "layer_norm_epsilon": 1e-3,
    "use_bias": False,
    "kernel_initializer": keras.initializers.HeNormal(seed=3),
    "bias_initializer": keras.initializers.Constant(0.5),
    "num_key_value_heads": 2,
    "positions": "rotary",
    "window": 3,
    "num_sinks": 1,
    "normalizer": "sparsemax",
    "query_key_norm": True,
    "seed": 5,
}
REFUSED = [
    {**OPTIONS, "intermediate_dim": 0},
    {**OPTIONS, "num_heads": 0},
    {**OPTIONS, "key_dim": 2.5},
    {**OPTIONS, "dropout": 1.0},
    {**OPTIONS, "attention_dropout": -0.1},
    {**OPTIONS, "norm": "middle"},
]

ENTRIES = {
    TransformerEncoder: Entry(
        cases=[encoder("post"), encoder("pre-gated", norm="pre", activation="swiglu")],
        configs=[lambda: CONFIG],
        refused=REFUSED,
    ),
    TransformerDecoder: Entry(
        cases=[decoder("post"), decoder("pre-gated", norm="pre", activation="swiglu")],
        configs=[lambda: CONFIG],
        refused=REFUSED,
    ),
}
