"""Linear attention, latent attention and gated delta networks."""

import keras
import numpy as np
from keras import ops

from keras_attention.layers import GatedDeltaNet, LinearAttention, MultiHeadLatentAttention
from tests.contracts.backend import random
from tests.contracts.entry import Entry
from tests.contracts.kinds import VALUE_SIZE, value_mask
from tests.contracts.plain import Plain
from tests.since_2017_oracle import delta_net, latent_attention, linear_attention

QUERY, KEY = 11, 5
CAUSAL = {"use_causal_mask": True}


@keras.saving.register_keras_serializable("tests")
def squares(x):
    """A user's feature map, of twice as many features."""
    return ops.square(ops.concatenate([x, x + 1], axis=-1))


def self_arrays(seed, batch, steps, lengths):
    """One sequence of unequal lengths."""
    length = max(lengths)
    query = random(seed + 1, batch, length, VALUE_SIZE)
    return {"query": query, "query_mask": value_mask(length, lengths)}


def linear_self_arrays(*sizes):
    """One sequence, whose mask is that of its keys, too."""
    arrays = self_arrays(*sizes)
    return arrays | {"value_mask": arrays["query_mask"]}


def cross_arrays(seed, batch, steps, lengths):
    """Queries, and a memory with keys of its own."""
    length = max(lengths)
    steps_seen = np.minimum(steps, np.array(lengths) + 1)
    return {
        "query": random(seed + 1, batch, steps, QUERY),
        "value": random(seed + 2, batch, length, VALUE_SIZE),
        "key": random(seed + 3, batch, length, KEY),
        "query_mask": np.arange(steps) < steps_seen[:, None],
        "value_mask": value_mask(length, lengths),
    }


def one_by_one(layer, tensors, *of_index):
    """A layer's steps over a sequence, and its states."""
    query, steps = tensors["query"], tensors["query"].shape[1]
    states = [layer.initial_state(query.shape[0], *[steps] * len(of_index))]
    outputs = []
    for t in range(steps):
        output, state = layer.step(query[:, t], states[-1], *[t] * len(of_index))
        outputs.append(output)
        states.append(state)
    return {"outputs": ops.stack(outputs, 1)}, states


def cross_steps(layer, tensors):
    """One query at a time over a memory summed up once."""
    memory = layer.prepare_memory(tensors["value"], tensors["key"], tensors["value_mask"])
    queries = [tensors["query"][:, t] for t in range(tensors["query"].shape[1])]
    outputs = [layer.step(query, {}, memory)[0] for query in queries]
    return {"outputs": ops.stack(outputs, 1)}, [memory, memory]


def causal_call(layer, tensors, **options):
    """The output of causal attention."""
    return {"outputs": layer(**tensors, **CAUSAL, **options)}


def plain_call(layer, tensors, **options):
    """The output of attention in both directions."""
    return {"outputs": layer(**tensors, **options)}


def projections(query, value, key, output, heads=2, key_dim=3, value_dim=2, biases=True):
    """Weights with the names and shapes of multi-head attention."""
    sizes = {"query": (query, key_dim), "key": (key, key_dim), "value": (value, value_dim)}
    weights = {}
    for name, (inputs, size) in sizes.items():
        weights |= {f"{name}_kernel": (inputs, heads, size), f"{name}_bias": (heads, size)}
    weights |= {"output_kernel": (heads, value_dim, output), "output_bias": (output,)}
    return {name: shape for name, shape in weights.items() if biases or "bias" not in name}


SELF_AXES = {"query": "BTD", "query_mask": "BT", "outputs": "BTD"}
HEADS = {"num_heads": 2, "key_dim": 3}


class Causal(Plain):
    """A case of causal calls, and the same case of the call of `model.add`, in both directions."""

    def self_attention(self):
        """The layer unbuilt, and its case without the causal mask."""
        return self.new(), linear("both-directions", plain_call, self.options)


def linear(name, call, options):
    """A case of linear attention of one sequence."""
    return (Causal if call is causal_call else Plain)(
        name,
        LinearAttention,
        options,
        projections(*[VALUE_SIZE] * 4),
        linear_self_arrays,
        call,
        lambda *given: linear_attention(*given, causal=call is causal_call),
        axes=SELF_AXES | {"value_mask": "BT"},
        masks={"query_mask": "query", "value_mask": "query"},
        steps=one_by_one,
        alone=lambda x, mask: {"query": x, "query_mask": mask},
        fixed=CAUSAL if call is causal_call else {},
    )


def cross_linear():
    """A case of linear attention over a memory."""
    options = {**HEADS, "value_dim": 2, "feature_map": squares, "use_bias": False}
    return Plain(
        "linear-cross",
        LinearAttention,
        options,
        projections(QUERY, VALUE_SIZE, KEY, QUERY, biases=False),
        cross_arrays,
        plain_call,
        linear_attention,
        axes={
            **{"query": "BTQ", "value": "BSV", "key": "BSK", "query_mask": "BT"},
            **{"value_mask": "BS", "outputs": "BTQ"},
        },
        masks={"query_mask": "query", "value_mask": "value"},
        steps=cross_steps,
        alone=lambda x, mask: {"query": x, "query_mask": mask},
    )


class CausalLatent(Plain):
    """As `Causal`."""

    def self_attention(self):
        """The layer unbuilt, and its case without the causal mask."""
        return self.new(), latent("both-directions", call=plain_call, **self.options)


def latent(name, call=causal_call, **options):
    """A case of latent attention."""
    given = {**HEADS, "value_dim": 2, "latent_dim": 7, "rotary_dim": 4, **options}
    rotary, of_query = given["rotary_dim"], given.get("query_latent_dim", VALUE_SIZE)
    weights = {
        "query_latent_kernel": (VALUE_SIZE, of_query),
        "query_kernel": (of_query, 2, 3),
        "query_rotary_kernel": (of_query, 2, rotary),
        "latent_kernel": (VALUE_SIZE, 7),
        "key_rotary_kernel": (VALUE_SIZE, rotary),
        "key_kernel": (7, 2, 3),
        "value_kernel": (7, 2, 2),
        "output_kernel": (2, 2, VALUE_SIZE),
        "latent_gain": (7,),
        "query_latent_gain": (of_query,),
    }
    absent = [name for name in weights if "rotary" in name and not rotary]
    absent += [name for name in weights if "gain" in name and not given.get("latent_norm")]
    absent += [name for name in weights if "query_lat" in name and of_query == VALUE_SIZE]
    causal = call is causal_call
    return (CausalLatent if causal else Plain)(
        name,
        MultiHeadLatentAttention,
        given,
        {name: shape for name, shape in weights.items() if name not in absent},
        self_arrays,
        call,
        lambda *given: {"outputs": latent_attention(*given, causal=causal)["outputs"]},
        axes=SELF_AXES,
        masks={"query_mask": "query"},
        steps=lambda layer, tensors: one_by_one(layer, tensors, "index"),
        fixed=CAUSAL if causal else {},
    )


def delta(name, **options):
    """A case of a gated delta network."""
    given = {**HEADS, "value_dim": 2, "norm_eps": 0.1, **options}
    keys, values = (2, 3), (given.get("num_value_heads", 2), 2)
    heads = {"query": keys, "key": keys, "value": values}
    weights = {f"{name}_kernel": (VALUE_SIZE, *shape) for name, shape in heads.items()}
    if (size := given.get("conv_size", 4)) is not None:
        weights |= {f"{name}_conv": (size, *shape) for name, shape in heads.items()}
    weights |= {f"{name}_kernel": (VALUE_SIZE, values[0]) for name in ("decay", "beta")}
    weights |= {"a_log": values[:1], "dt_bias": values[:1]}
    if given.get("use_gate", True):
        weights["gate_kernel"] = (VALUE_SIZE, *values)
    return Plain(
        name,
        GatedDeltaNet,
        given,
        weights | {"norm_gain": (2,), "output_kernel": (*values, VALUE_SIZE)},
        self_arrays,
        plain_call,
        delta_net,
        axes=SELF_AXES,
        masks={"query_mask": "query"},
        steps=one_by_one,
    )


RANDOM = keras.initializers.HeNormal(seed=3)
WEIGHTS = {
    "kernel_initializer": RANDOM,
}
LATENT = {**HEADS, "latent_dim": 5}

ENTRIES = {
    LinearAttention: Entry(
        cases=[
            linear("linear", causal_call, {**HEADS, "value_dim": 2, "chunk_size": 3}),
            cross_linear(),
        ],
        configs=[
            lambda: {
                **HEADS,
                "value_dim": 5,
                "feature_map": "relu",
                "use_bias": False,
                "chunk_size": 7,
                "bias_initializer": keras.initializers.Constant(0.5),
                **WEIGHTS,
            },
            lambda: {**HEADS, "feature_map": squares},
        ],
        refused=[
            {**HEADS, "num_heads": 0},
            {**HEADS, "key_dim": 2.5},
            {**HEADS, "value_dim": -1},
            {**HEADS, "feature_map": "softmax"},
            {**HEADS, "use_bias": 1},
            {**HEADS, "chunk_size": 0},
        ],
    ),
    MultiHeadLatentAttention: Entry(
        cases=[
            latent("latent"),
            latent("latent-queries", query_latent_dim=5, latent_norm=True, max_wavelength=50),
            latent("latent-without-rotation", rotary_dim=0),
        ],
        configs=[
            lambda: {
                **LATENT,
                "value_dim": 5,
                "rotary_dim": 6,
                "query_latent_dim": 7,
                "latent_norm": True,
                "max_wavelength": 500,
                **WEIGHTS,
            }
        ],
        refused=[
            {**LATENT, "num_heads": 0},
            {**LATENT, "key_dim": 2.5},
            {**LATENT, "latent_dim": 0},
            {**LATENT, "value_dim": -1},
            {**LATENT, "rotary_dim": 3},
            {**LATENT, "rotary_dim": -2},
            {**LATENT, "query_latent_dim": 0},
            {**LATENT, "latent_norm": 1},
            {**LATENT, "max_wavelength": 0},
        ],
    ),
    GatedDeltaNet: Entry(
        cases=[
            delta("delta", num_value_heads=4, chunk_size=3),
            delta("delta-bare", conv_size=None, use_gate=False, allow_neg_eigval=True),
        ],
        configs=[
            lambda: {
                **HEADS,
                "value_dim": 5,
                "num_value_heads": 6,
                "conv_size": 2,
                "use_gate": False,
                "allow_neg_eigval": True,
                "norm_eps": 1e-3,
                "chunk_size": 7,
                **WEIGHTS,
            }
        ],
        refused=[
            {**HEADS, "num_heads": 0},
            {**HEADS, "key_dim": 2.5},
            {**HEADS, "value_dim": -1},
            {**HEADS, "num_value_heads": 3},
            {**HEADS, "conv_size": 0},
            {**HEADS, "use_gate": 1},
            {**HEADS, "allow_neg_eigval": None},
            {**HEADS, "norm_eps": 0},
            {**HEADS, "chunk_size": 0},
        ],
    ),
}
