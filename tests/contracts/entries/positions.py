"""Positions that are added to a sequence."""

import keras
import numpy as np
from keras import ops

from keras_attention.layers import LearnedPositions, PositionalEncoding
from tests.contracts.backend import random
from tests.contracts.entry import Entry
from tests.contracts.kinds import VALUE_SIZE, value_mask
from tests.contracts.plain import Plain

MAX_LENGTH = 53  # the longest sequence of the checks, with what starts it and pads it


def arrays(seed, batch, steps, lengths):
    """A sequence of unequal lengths, and its mask: positions do not count padding."""
    length = max(lengths)
    inputs = random(seed + 1, batch, length, VALUE_SIZE)
    return {"inputs": inputs, "inputs_mask": value_mask(length, lengths)}


def started(seed, batch, steps, lengths):
    """The same, each example from a place of its own on."""
    starts = np.random.default_rng(seed).integers(0, 9, batch).astype("int32")
    return arrays(seed, batch, steps, lengths) | {"start_index": starts}


def call(layer, tensors, **options):
    """The sequence with positions."""
    return {"outputs": layer(**tensors, **options)}


def stepwise(layer, tensors):
    """One place at a time; there is no state."""
    inputs, start = tensors["inputs"], tensors.get("start_index", 0)
    steps = [layer.step(inputs[:, t], start + t) for t in range(inputs.shape[1])]
    return {"outputs": ops.stack(steps, 1)}, []


def added(code):
    """An oracle that adds `code(weights, options, place, size)` step by step."""

    def oracle(weights, options, arrays):
        inputs = np.float64(arrays["inputs"])
        mask = arrays.get("inputs_mask", np.ones(inputs.shape[:2], bool))
        size = inputs.shape[2]
        outputs = np.where(mask[:, :, None], inputs, 0)
        outputs = outputs * (np.sqrt(size) if options.get("scale") else 1.0)
        starts = arrays.get("start_index", np.zeros(len(inputs), int))
        for b, t in np.ndindex(inputs.shape[:2]):
            position = max(np.count_nonzero(mask[b, : t + 1]) - 1, 0)
            outputs[b, t] += code(weights, options, starts[b] + position, size)
        return {"outputs": outputs}

    return oracle


def sinusoid(weights, options, place, size):
    """One row, feature by feature."""
    wavelength = options.get("max_wavelength", 10_000.0)
    angles = [place / wavelength ** (2 * (i // 2) / size) for i in range(size)]
    return [np.cos(a) if i % 2 else np.sin(a) for i, a in enumerate(angles)]


def learned(weights, options, place, size):
    """One row of the table."""
    return weights["embeddings"][place]


def case(name, layer, options, weights, code, make=arrays):
    """A case of either layer."""
    return Plain(
        name,
        layer,
        options,
        weights,
        make,
        call,
        added(code),
        axes={"inputs": "BTD", "inputs_mask": "BT", "start_index": "B", "outputs": "BTD"},
        masks={"inputs_mask": "inputs"},
        steps=stepwise,
    )


TABLE = {"embeddings": (MAX_LENGTH, VALUE_SIZE)}

ENTRIES = {
    PositionalEncoding: Entry(
        cases=[
            case("sinusoids", PositionalEncoding, {}, {}, sinusoid),
            case(
                "sinusoids-scaled-started",
                PositionalEncoding,
                {"max_wavelength": 50.0, "scale": True},
                {},
                sinusoid,
                started,
            ),
        ],
        configs=[
            lambda: {"max_wavelength": 50.0, "scale": True, "layout": "halves", "endpoint": False}
        ],
        refused=[
            {"layout": "thirds"},
            {"endpoint": 1},
            {"max_wavelength": 0},
            {"max_wavelength": -1.0},
            {"max_wavelength": "long"},
            {"scale": 2.0},
        ],
    ),
    LearnedPositions: Entry(
        cases=[
            case("positions", LearnedPositions, {"max_length": MAX_LENGTH}, TABLE, learned),
            case(
                "positions-scaled-started",
                LearnedPositions,
                {"max_length": MAX_LENGTH, "scale": True},
                TABLE,
                learned,
                started,
            ),
        ],
        configs=[
            lambda: {
                "max_length": 19,
                "embeddings_initializer": keras.initializers.HeNormal(seed=3),
                "scale": True,
            }
        ],
        refused=[
            {"max_length": 0},
            {"max_length": 2.5},
            {"max_length": 5, "scale": "yes"},
        ],
    ),
}
