"""The Transformer's blocks."""

import functools

import keras
import numpy as np
from keras import ops

from keras_attention.layers import SSRU, TransformerDecoder, TransformerEncoder
from tests.contracts.backend import random
from tests.contracts.entry import Entry
from tests.contracts.kinds import VALUE_SIZE, value_mask
from tests.contracts.oracles import softmax
from tests.contracts.plain import Plain

HEADS, SIZE, INNER, MEMORY, UNITS = 2, 3, 17, 11, 5
SCORES = {"self_attention": "scores_self", "cross_attention": "scores_memory"}


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
    return {"outputs": outputs} | {SCORES[name]: each for name, each in scores.items()}


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


def recurred(weights, x, real, prefix=""):
    """The simpler simple recurrent unit over one sequence."""
    kernel, bias = weights[f"{prefix}kernel"], weights[f"{prefix}bias"]
    units, outputs = len(bias), []
    cell = np.zeros(units)
    for vector, counts in zip(x, real, strict=True):
        if counts:
            forget = 1 / (1 + np.exp(-(vector @ kernel[:, :units] + bias)))
            cell = forget * cell + (1 - forget) * (vector @ kernel[:, units:])
        outputs.append(np.maximum(cell, 0))
    return np.stack(outputs)


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
            x = np.where(mask[b][:, None], np.float64(arrays["inputs"][b]), 0)

            def sublayer(x, name, function):
                if options.get("norm") == "pre":
                    return x + function(np.stack([normalised(weights, name, row) for row in x]))
                return np.stack([normalised(weights, name, row) for row in x + function(x)])

            def itself(y, b=b):
                y, scores = attended(weights, "self_attention", y, y, pairs[b])
                add("scores_self" if causal else "scores", scores)
                return y

            if options.get("autoregression") == "ssru":
                x = sublayer(x, "ssru", lambda y, b=b: recurred(weights, y, mask[b], "ssru."))
            else:
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
    outputs, weights = [], {}
    for t in range(steps):
        output, scores, state = layer.step(inputs[:, t], memory, states[-1], t)
        outputs.append(output)
        states.append(state)
        for name, each in scores.items():
            weights.setdefault(SCORES[name], []).append(each)
    results = {"outputs": ops.stack(outputs, 1)}
    results |= {name: ops.stack(each, 2) for name, each in weights.items()}
    carried = {} if memory is None else memory
    return results, [{"memory": carried, "cache": state} for state in states]


def ssru_stepwise(layer, tensors):
    """The recurrent unit one step at a time."""
    inputs, outputs = tensors["inputs"], []
    states = [layer.initial_state(inputs.shape[0])]
    for t in range(inputs.shape[1]):
        output, state = layer.step(inputs[:, t], states[-1])
        outputs.append(output)
        states.append(state)
    return {"outputs": ops.stack(outputs, 1)}, states


def without_pairs(make, autoregression="self-attention"):
    """Arrays without `attention_mask`, which a step over a cache does not know."""

    def arrays(seed, batch, steps, lengths):
        given = make(seed, batch, steps, lengths)
        pairs = given.pop("attention_mask")
        if autoregression == "self-attention":
            given["attention_mask"] = np.ones_like(pairs)
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


def pairs_given(arrays):
    """A mask of pairs, where no attention reads it."""
    batch, steps = arrays["inputs"].shape[:2]
    return {"pairs": arrays | {"attention_mask": np.ones((batch, steps, steps), bool)}}


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
    kind = options.get("autoregression", "self-attention")
    recurrent = {"ssru.kernel": (VALUE_SIZE, 2 * VALUE_SIZE), "ssru.bias": (VALUE_SIZE,)}
    weights = recurrent | norm("ssru") if kind == "ssru" else projections("self_attention")
    weights |= projections("cross_attention", MEMORY) if memory else {}
    axes = DECODER_AXES | (MEMORY_AXES if memory else {})
    masks = {"inputs_mask": "inputs"} | ({"value_mask": "value"} if memory else {})
    return (WithMemory if memory else Plain)(
        f"transformer-decoder-{name}",
        TransformerDecoder,
        OPTIONS | options,
        weights | network(options.get("activation") == "swiglu"),
        without_pairs(decoder_arrays if memory else encoder_arrays, kind),
        call_decoder,
        block(causal=True),
        axes=axes,
        masks=masks,
        steps=stepwise,
        alone=lambda x, mask: {"inputs": x, "inputs_mask": mask},
        wrong=pairs_given if kind == "ssru" else None,
    )


def ssru():
    """The case of the recurrent unit."""

    def arrays(*sizes):
        given = encoder_arrays(*sizes)
        return {name: given[name] for name in ("inputs", "inputs_mask")}

    def reference(weights, options, arrays):
        masks = arrays.get("inputs_mask", np.ones(arrays["inputs"].shape[:2], bool))
        pairs = zip(np.float64(arrays["inputs"]), masks, strict=True)
        return {"outputs": np.stack([recurred(weights, x, real) for x, real in pairs])}

    return Plain(
        "ssru",
        SSRU,
        {"units": UNITS},
        {"kernel": (VALUE_SIZE, 2 * UNITS), "bias": (UNITS,)},
        arrays,
        lambda layer, tensors, **options: {"outputs": layer(**tensors, **options)},
        reference,
        axes={"inputs": "BTD", "inputs_mask": "BT", "outputs": "BTU"},
        masks={"inputs_mask": "inputs"},
        steps=ssru_stepwise,
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
SINKS = {"sink_logits": True}
REFUSED = [
    {**OPTIONS, "intermediate_dim": 0},
    {**OPTIONS, "num_heads": 0},
    {**OPTIONS, "key_dim": 2.5},
    {**OPTIONS, "dropout": 1.0},
    {**OPTIONS, "attention_dropout": -0.1},
    {**OPTIONS, "norm": "middle"},
    {**OPTIONS, **SINKS, "normalizer": "sparsemax"},
]

SSRU_CONFIG = {
    "units": 7,
    "kernel_initializer": keras.initializers.HeNormal(seed=3),
    "bias_initializer": keras.initializers.Constant(0.5),
}
OTHER = {"autoregression": "ssru"}

ENTRIES = {
    SSRU: Entry(cases=[ssru()], configs=[lambda: SSRU_CONFIG], refused=[{"units": 0}]),
    TransformerEncoder: Entry(
        cases=[encoder("post"), encoder("pre-gated", norm="pre", activation="swiglu")],
        configs=[lambda: CONFIG, lambda: OPTIONS | SINKS],
        refused=REFUSED,
    ),
    TransformerDecoder: Entry(
        cases=[
            decoder("post"),
            decoder("pre-gated", norm="pre", activation="swiglu"),
            decoder("ssru", **OTHER),
        ],
        configs=[
            lambda: CONFIG,
            lambda: OPTIONS | OTHER,
            lambda: OPTIONS | SINKS | {"use_forget_gate": True},
        ],
        refused=[
            *REFUSED,
            {**OPTIONS, "autoregression": "average"},
            {**OPTIONS, **OTHER, "positions": "rotary"},
            {**OPTIONS, **OTHER, "window": 3},
            {**OPTIONS, **OTHER, "use_forget_gate": True},
        ],
    ),
}
