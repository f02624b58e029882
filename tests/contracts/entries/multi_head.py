"""Multi-head attention: cross-attention, and causal self-attention over a cache."""

import keras
import numpy as np
from keras import ops

from keras_attention.layers import MultiHeadAttention
from tests import attention_oracle
from tests.contracts.backend import random
from tests.contracts.entry import Entry
from tests.contracts.kinds import VALUE_SIZE, value_mask
from tests.contracts.plain import Plain

QUERY, KEY = 11, 5
PADDING = {"query_mask": "query", "value_mask": "value", "key_mask": "key"}


def weights_of(query, value, key, heads, groups, key_dim, value_dim, output):
    """Pinned weights: the order and the shapes of `keras.layers.MultiHeadAttention`."""
    return {
        "query_kernel": (query, heads, key_dim),
        "query_bias": (heads, key_dim),
        "key_kernel": (key, groups, key_dim),
        "key_bias": (groups, key_dim),
        "value_kernel": (value, groups, value_dim),
        "value_bias": (groups, value_dim),
        "output_kernel": (heads, value_dim, output),
        "output_bias": (output,),
    }


def pairs(seed, batch, steps, length):
    """A mask of pairs that leaves most."""
    return np.random.default_rng(seed).random((batch, steps, length)) < 0.8


def cross_arrays(seed, batch, steps, lengths):
    """Queries, a memory with keys of their own, and all masks."""
    length = max(lengths)
    steps_seen = np.minimum(steps, np.array(lengths) + 1)
    return {
        "query": random(seed + 1, batch, steps, QUERY),
        "value": random(seed + 2, batch, length, VALUE_SIZE),
        "key": random(seed + 3, batch, length, KEY),
        "query_mask": np.arange(steps) < steps_seen[:, None],
        "value_mask": value_mask(length, lengths),
        "key_mask": value_mask(length, lengths),
        "attention_mask": pairs(seed + 4, batch, steps, length),
    }


def cross_call(layer, inputs, **options):
    """The output and the weights."""
    inputs = dict(inputs)
    query, value = inputs.pop("query"), inputs.pop("value", None)
    output, scores = layer(query, value, **inputs, return_attention_scores=True, **options)
    return {"outputs": output, "scores": scores}


def cross_steps(layer, inputs):
    """One query at a time over a memory projected once."""
    mask = ops.logical_and(inputs["value_mask"], inputs["key_mask"])
    memory = layer.prepare_memory(inputs["value"], inputs["key"], mask)
    outputs, scores = [], []
    for t in range(inputs["query"].shape[1]):
        seen = inputs["attention_mask"][:, t]
        output, score, state = layer.step(inputs["query"][:, t], memory, {}, t, seen)
        outputs.append(output)
        scores.append(score)
    return {"outputs": ops.stack(outputs, 1), "scores": ops.stack(scores, 2)}, [memory, memory]


def cross(name, **options):
    """A case of cross-attention."""
    # Without biases: softmax is blind to that of the keys, whose gradient is rounding alone.
    given = {"num_heads": 2, "key_dim": 3, "value_dim": 2, "use_bias": False, **options}
    weights = weights_of(QUERY, VALUE_SIZE, KEY, 2, 2, 3, 2, QUERY)
    weights = {name: shape for name, shape in weights.items() if "bias" not in name}
    if options.get("positions") == "relative":
        weights["relative_bias"] = (8, 2)
    return Plain(
        name,
        MultiHeadAttention,
        given,
        weights,
        cross_arrays,
        cross_call,
        attention_oracle.multi_head,
        axes={
            "query": "BTQ",
            "value": "BSV",
            "key": "BSK",
            "query_mask": "BT",
            "value_mask": "BS",
            "key_mask": "BS",
            "attention_mask": "BTS",
            "outputs": "BTQ",
            "scores": "BHTS",
        },
        masks=PADDING,
        steps=cross_steps,
        alone=lambda x, mask: {"query": x, "query_mask": mask},
    )


def self_arrays(seed, batch, steps, lengths):
    """One sequence with its mask, and a causal mask of pairs that leaves every place itself."""
    length = max(lengths)
    mask = value_mask(length, lengths)
    return {
        "query": random(seed + 1, batch, length, VALUE_SIZE),
        "query_mask": mask,
        "value_mask": mask,
        "key_mask": mask,
        "attention_mask": np.tril(
            pairs(seed + 4, batch, length, length) | np.eye(length, dtype=bool)
        ),
    }


def self_steps(layer, inputs):
    """One place at a time over a cache."""
    length = inputs["query"].shape[1]
    states = [layer.initial_state(inputs["query"].shape[0], length)]
    outputs, scores = [], []
    for t in range(length):
        seen = inputs["attention_mask"][:, t]
        output, score, state = layer.step(inputs["query"][:, t], None, states[-1], t, seen)
        outputs.append(output)
        scores.append(score)
        states.append(state)
    return {"outputs": ops.stack(outputs, 1), "scores": ops.stack(scores, 2)}, states


def causal(name, groups=4, **options):
    """A case of causal self-attention."""
    given = {"num_heads": 4, "key_dim": 6, "num_key_value_heads": groups, **options}
    weights = weights_of(VALUE_SIZE, VALUE_SIZE, VALUE_SIZE, 4, groups, 6, 6, VALUE_SIZE)
    if not options.get("use_bias", True):
        weights = {name: shape for name, shape in weights.items() if "bias" not in name}
    if options.get("query_key_norm"):
        weights |= {"query_gain": (6,), "key_gain": (6,)}
    if options.get("sink_logits"):
        weights |= {"sink_logits": (4,)}
    return Plain(
        name,
        MultiHeadAttention,
        given,
        weights,
        self_arrays,
        cross_call,
        attention_oracle.multi_head,
        axes={
            "query": "BTV",
            "query_mask": "BT",
            "value_mask": "BT",
            "key_mask": "BT",
            "attention_mask": "BTT",
            "outputs": "BTV",
            "scores": "BHTT",
        },
        masks=dict.fromkeys(PADDING, "query"),
        steps=self_steps,
        alone=lambda x, mask: {"query": x, "query_mask": mask},
    )


SIZES = {"num_heads": 4, "key_dim": 6}


@keras.saving.register_keras_serializable("tests")
def halved(score, batch, head, query, key):
    """A score's function."""
    return score / 2


@keras.saving.register_keras_serializable("tests")
def near(batch, head, query, key):
    """A mask's function."""
    return ops.abs(query - key) < 3


ENTRIES = {
    MultiHeadAttention: Entry(
        cases=[
            cross("multi-head"),
            cross(
                "multi-head-relative-entmax",
                positions="relative",
                num_buckets=8,
                max_distance=9,
                normalizer="entmax15",
            ),
            causal(
                "multi-head-rotary-sinks",
                2,
                positions="rotary",
                max_wavelength=50,
                window=3,
                num_sinks=1,
                query_key_norm=True,
            ),
            causal("multi-head-alibi", 1, positions="alibi", use_bias=False),
            causal("multi-head-sink-logits", 2, sink_logits=True),
            cross("multi-head-softmax1", normalizer="softmax1"),
        ],
        configs=[
            lambda: {
                "num_heads": 4,
                "key_dim": 6,
                "value_dim": 5,
                "dropout": 0.3,
                "use_bias": False,
                "output_shape": (3, 7),
                "num_key_value_heads": 2,
                "positions": "relative",
                "num_buckets": 8,
                "max_distance": 50,
                "window": 5,
                "num_sinks": 2,
                "normalizer": "sparsemax",
                "query_key_norm": True,
                "kernel_initializer": keras.initializers.HeNormal(seed=3),
                "bias_initializer": keras.initializers.Constant(0.5),
                "kernel_regularizer": keras.regularizers.L2(0.1),
                "bias_regularizer": keras.regularizers.L1(0.1),
                "kernel_constraint": keras.constraints.MaxNorm(3.0),
                "bias_constraint": keras.constraints.NonNeg(),
                "seed": 5,
                "attention_axes": (1,),
                "use_gate": True,
                "use_forget_gate": True,
                "score_mod": halved,
                "mask_mod": near,
            },
            lambda: {
                **SIZES,
                "positions": "rotary",
                "max_wavelength": 500,
                "rotary_dim": 4,
                "rotary_scaling": 2.0,
            },
            lambda: {**SIZES, "sliding_window": 3, "sink_logits": True},
        ],
        refused=[
            {**SIZES, "num_heads": 0},
            {**SIZES, "key_dim": 2.5},
            {**SIZES, "value_dim": -1},
            {**SIZES, "dropout": 1.0},
            {**SIZES, "num_key_value_heads": 3},
            {**SIZES, "output_shape": 0},
            {**SIZES, "positions": "learned"},
            {**SIZES, "positions": "rotary", "key_dim": 5},
            {**SIZES, "max_wavelength": 500},
            {**SIZES, "positions": "alibi", "num_buckets": 8},
            {**SIZES, "window": 0},
            {**SIZES, "num_sinks": 2},
            {**SIZES, "normalizer": "hardmax"},
            {**SIZES, "sink_logits": "yes"},
            {**SIZES, "sink_logits": True, "normalizer": "softmax1"},
        ],
    )
}
