"""Pooling: a sequence becomes one vector."""

import keras
import numpy as np

from keras_attention.layers import AttentionPooling
from tests.contracts.backend import random
from tests.contracts.entry import Entry
from tests.contracts.kinds import VALUE_SIZE, value_mask
from tests.contracts.oracles import softmax
from tests.contracts.plain import Plain

UNITS = 17


def arrays(seed, batch, steps, lengths):
    """A sequence of unequal lengths."""
    length = max(lengths)
    inputs = random(seed + 1, batch, length, VALUE_SIZE)
    return {"inputs": inputs, "mask": value_mask(length, lengths)}


def call(layer, tensors, **options):
    """Vectors and weights."""
    vectors, scores = layer(**tensors, return_attention_scores=True, **options)
    return {"outputs": vectors, "scores": scores}


def oracle(weights, options, arrays):
    """One sequence at a time, from equations 5 to 7."""
    inputs = np.float64(arrays["inputs"])
    mask = arrays.get("mask", np.ones(inputs.shape[:2], bool))
    vectors, scores = [], []
    for states, allowed in zip(inputs, mask, strict=True):
        hidden = np.tanh(states @ weights["kernel"] + weights["bias"])
        scores.append(softmax(hidden @ weights["context_vector"], allowed))
        vectors.append(scores[-1] @ states)
    return {"outputs": np.stack(vectors), "scores": np.stack(scores)}


ENTRIES = {
    AttentionPooling: Entry(
        cases=[
            Plain(
                "pooling",
                AttentionPooling,
                {"units": UNITS},
                {"kernel": (VALUE_SIZE, UNITS), "bias": (UNITS,), "context_vector": (UNITS,)},
                arrays,
                call,
                oracle,
                axes={"inputs": "BSD", "mask": "BS", "outputs": "BD", "scores": "BS"},
                masks={"mask": "inputs"},
            )
        ],
        configs=[
            lambda: {
                "units": 7,
                "kernel_initializer": keras.initializers.HeNormal(seed=3),
                "bias_initializer": keras.initializers.Constant(0.5),
                "context_initializer": keras.initializers.RandomNormal(0.0, 0.3, seed=4),
            }
        ],
        refused=[{"units": 0}, {"units": 2.5}, {"units": None}],
    )
}
