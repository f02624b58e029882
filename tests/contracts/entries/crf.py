"""The linear-chain conditional random field."""

import keras
import numpy as np

from keras_attention.layers import CRF
from tests.contracts.backend import random
from tests.contracts.entry import Entry
from tests.contracts.kinds import value_mask
from tests.contracts.plain import Plain
from tests.crf_oracle import Chain

TAGS = 3
FORBIDDEN = [[0, 2], [None, 2]]


def arrays(seed, batch, steps, lengths):
    """Emissions of sequences of unequal lengths; short ones, as the oracle lists all paths."""
    lengths = [(length + 1) // 2 for length in lengths]
    length = max(lengths)
    return {
        "inputs": random(seed + 1, batch, length, TAGS),
        "mask": value_mask(length, lengths),
    }


def reference(weights, options, arrays):
    """The float64 probabilities of the tags."""
    emissions = np.float64(arrays["inputs"])
    masks = arrays.get("mask", np.ones(emissions.shape[:2], bool))
    chains = [
        Chain(e, real, weights, options.get("forbidden", ()))
        for e, real in zip(emissions, masks, strict=True)
    ]
    return {"outputs": np.stack([chain.marginals() for chain in chains])}


def case(name, **options):
    """A case of the layer."""
    return Plain(
        name,
        CRF,
        {"num_tags": TAGS, **options},
        {"transitions": (TAGS, TAGS), "start": (TAGS,), "end": (TAGS,)},
        arrays,
        lambda layer, tensors, **options: {"outputs": layer(**tensors, **options)},
        reference,
        axes={"inputs": "BTK", "mask": "BT", "outputs": "BTK"},
        masks={"mask": "inputs"},
    )


ENTRIES = {
    CRF: Entry(
        cases=[case("crf"), case("crf-forbidden", forbidden=FORBIDDEN)],
        configs=[
            lambda: {
                "num_tags": 5,
                "forbidden": FORBIDDEN,
                "transitions_initializer": keras.initializers.RandomNormal(0.0, 0.3, seed=4),
                "boundary_initializer": keras.initializers.Constant(0.5),
            }
        ],
        refused=[
            {"num_tags": 0},
            {"num_tags": 2.5},
            {"num_tags": 3, "forbidden": [[0, 3]]},
            {"num_tags": 3, "forbidden": [[None, None]]},
            {"num_tags": 3, "forbidden": [0]},
        ],
    )
}
