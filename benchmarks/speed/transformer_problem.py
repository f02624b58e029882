"""The Transformers measured: their sizes, and the weights and sentences that all programs share."""

from dataclasses import dataclass

import numpy as np

from benchmarks.speed.problems import SEED, TRANSLATIONS, Problem

PAD, UNKNOWN, START, END = range(4)
FIRST_WORD = 4
DROPOUT = 0.1
CHECKED = 4
"""Sentences whose gradients are compared: few, since of the millions of inputs to ReLU in a whole
batch some lie so near zero that float32 has them on either side, with another gradient."""
BEAM_SIZE = 4
NEVER_WRITTEN = -1e4
"""Added to the scores of the special tokens, so that every translation has its full length."""


@dataclass(frozen=True)
class Architecture:
    """What makes a Transformer of a width: `layers` are those of encoder and decoder alike."""

    layers: int
    feed_forward_size: int
    heads: int
    vocabulary_size: int


SIZES = {128: Architecture(4, 256, 4, 6000), 512: Architecture(6, 2048, 8, 8000)}
"""The application's sizes `tiny` and `base`, by their width."""


def architecture_of(units: int) -> Architecture:
    """Return the architecture of a width; one that has no name is small."""
    return SIZES.get(units) or Architecture(1, 2 * units, 1 if units % 2 else 2, 97)


def make_weights(problem: Problem) -> dict[str, np.ndarray]:
    """Return weights by name, in the order of the layers, in which translations differ."""
    rng = np.random.default_rng(SEED)
    weights = {}
    for name, shape in _shapes(problem.size.units).items():
        middle = 1.0 if name.endswith("gamma") else 0.0
        spread = 0.1
        if name.endswith("kernel"):  # the inputs are all axes but those of a head's numbers
            inputs = np.prod(shape[:-1]) if "output" in name or len(shape) == 2 else shape[0]
            spread = 1.5 * float(inputs) ** -0.5
        if name == "table":
            spread = shape[1] ** -0.5
        weights[name] = rng.normal(middle, spread, shape).astype("float32")
    if problem.kind in TRANSLATIONS:
        weights["word_bias"][[PAD, START, END]] = NEVER_WRITTEN
    return weights


def make_ids(problem: Problem) -> dict[str, np.ndarray]:
    """Return `source` `(B, S)`, `target` `(B, T)`, which begins with the start, and `labels`.

    Sources to translate are all of full length; others are padded, from half of it on.
    """
    rng = np.random.default_rng(SEED + 1)
    size = problem.size
    words = architecture_of(size.units).vocabulary_size

    def ids(*shape):
        return rng.integers(FIRST_WORD, words, shape).astype("int32")

    source, labels = ids(size.batch, size.memory), ids(size.batch, size.steps)
    if problem.kind not in TRANSLATIONS:
        lengths = rng.integers((size.memory + 1) // 2, size.memory + 1, size.batch)
        source[np.arange(size.memory) >= lengths[:, None]] = PAD
    start = np.full((size.batch, 1), START, "int32")
    target = np.concatenate([start, labels[:, :-1]], axis=1)
    return {"source": source, "target": target, "labels": labels}


def _shapes(units: int) -> dict[str, tuple[int, ...]]:
    architecture = architecture_of(units)
    shapes = {
        "table": (architecture.vocabulary_size, units),
        "word_bias": (architecture.vocabulary_size,),
    }
    sides = {"encoder": ("self",), "decoder": ("self", "cross")}
    for side, attentions in sides.items():
        for index in range(architecture.layers):
            for attention in attentions:
                shapes |= _attention(f"{side}{index}.{attention}", units, architecture.heads)
            shapes |= _network(f"{side}{index}", units, architecture.feed_forward_size)
    return shapes


def _attention(name: str, units: int, heads: int) -> dict[str, tuple[int, ...]]:
    split = (heads, units // heads)
    shapes = {}
    for part in ("query", "key", "value"):
        shapes |= {f"{name}.{part}_kernel": (units, *split), f"{name}.{part}_bias": split}
    shapes |= {f"{name}.output_kernel": (*split, units), f"{name}.output_bias": (units,)}
    return shapes | {f"{name}.gamma": (units,), f"{name}.beta": (units,)}


def _network(name: str, units: int, inner: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{name}.inner_kernel": (units, inner),
        f"{name}.inner_bias": (inner,),
        f"{name}.outer_kernel": (inner, units),
        f"{name}.outer_bias": (units,),
        f"{name}.gamma": (units,),
        f"{name}.beta": (units,),
    }
