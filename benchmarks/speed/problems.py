"""The problems measured: sizes, and the inputs and weights that all contenders share.

Everything is made from a seed with NumPy, so that the process of each contender makes the same
arrays. Weights are named and shaped as Keras shapes them; one with another layout converts.
"""

from dataclasses import dataclass

import numpy as np

SEED = 20150901
LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Size:
    """Batch, query steps (T), memory steps (S) and units; features are as many as units."""

    batch: int
    steps: int
    memory: int
    units: int

    def __str__(self) -> str:
        return f"{self.batch}x{self.steps}x{self.memory}x{self.units}"

    @classmethod
    def parse(cls, text: str) -> "Size":
        """Reads `"64x25x25x256"`."""
        try:
            size = cls(*(int(part) for part in text.split("x")))
        except (TypeError, ValueError):
            size = None
        if size is None or min(size.batch, size.steps, size.memory, size.units) < 1:
            raise ValueError(f"A size is BATCHxSTEPSxMEMORYxUNITS. Received: {text!r}")
        return size


@dataclass(frozen=True)
class Problem:
    """One comparison: what is computed, and at which size.

    `kind` is `"bahdanau"` (decoder: GRU, query is the state before the step), `"luong"` (decoder:
    LSTM, general score, input feeding), `"additive"` (additive attention over a whole sequence),
    `"multi-head"` (causal self-attention of 8 heads: the memory is the sequence itself),
    `"inner-gate"`, `"inner-word"`, `"inner-context"` (a GRU with attention before its state; the
    memory is the one vector that asks), `"pointer-generator"` (decoder: LSTM, additive attention
    with coverage and its loss, input feeding, words generated or copied), `"transformer"` (a
    translation model, in training: the memory is the source), or `"translation"` (the same,
    searching).
    """

    kind: str
    size: Size

    def __str__(self) -> str:
        return f"{self.kind} {self.size}"


DECODER_SIZES = (Size(64, 25, 25, 256), Size(64, 25, 25, 512), Size(16, 60, 400, 256))
ATTENTION_SIZES = (*DECODER_SIZES, Size(16, 64, 400, 256))
DECODERS = ("bahdanau", "luong")
ATTENTIONS = ("additive",)
SELF_SIZES = tuple(
    Size(batch, steps, steps, 512)
    for batch, steps in ((64, 32), (32, 64), (8, 256), (2, 1024), (1, 4096))
)
SELF_ATTENTIONS = ("multi-head",)
INNER_SIZES = (Size(64, 50, 1, 256), Size(64, 50, 1, 512), Size(32, 200, 1, 256))
INNER = ("inner-gate", "inner-word", "inner-context")
POINTER_SIZES = (Size(16, 100, 400, 256),)
POINTERS = ("pointer-generator",)
UNKNOWN_WORDS = 20
"""Of a document to summarise; their ids follow the vocabulary's."""
TRANSFORMER_SIZES = (Size(170, 24, 24, 128), Size(32, 25, 25, 512))
TRANSFORMERS = ("transformer",)
TRANSLATION_SIZES = (Size(320, 30, 20, 512), Size(32, 30, 20, 512), Size(1, 30, 20, 512))
TRANSLATIONS = ("translation",)
PASSES = ("forward", "train")
SEARCHES = ("greedy", "beam")


def passes_of(kind: str) -> tuple[str, ...]:
    """What is timed of a program, by the names of its methods."""
    return SEARCHES if kind in TRANSLATIONS else PASSES


def heads_of(units: int) -> int:
    """How many heads share the units: 8, or 1 where 8 cannot."""
    return 1 if units % 8 else 8


def vocabulary_of(units: int) -> int:
    """How many words a pointer-generator of that width knows."""
    return 20_000 if units >= 128 else 97


def _shapes(kind: str, units: int) -> dict[str, tuple[int, ...]]:
    if kind in INNER:
        return _inner_shapes(kind, units)
    if kind == "multi-head":
        split = (heads_of(units), units // heads_of(units))
        projections = {f"{name}_kernel": (units, *split) for name in ("query", "key", "value")}
        return projections | {"output_kernel": (*split, units)}
    additive = {
        "query_kernel": (units, units),
        "key_kernel": (units, units),
        "score_vector": (units,),
    }
    if kind == "additive":
        return additive
    if kind in POINTERS:
        return additive | _pointer_shapes(units)
    if kind == "bahdanau":
        return additive | {
            "kernel": (2 * units, 3 * units),  # rows: input, then context
            "recurrent_kernel": (units, 3 * units),
            "bias": (2, 3 * units),
        }
    return {
        "score_kernel": (units, units),
        "kernel": (2 * units, 4 * units),  # rows: input, then the attentional vector fed back
        "recurrent_kernel": (units, 4 * units),
        "bias": (4 * units,),
        "attentional_kernel": (2 * units, units),  # rows: context, then cell output
    }


def _pointer_shapes(units: int) -> dict[str, tuple[int, ...]]:
    decoder = {
        name: shape for name, shape in _shapes("luong", units).items() if "score" not in name
    }
    gate = {f"{name}_vector": (units,) for name in ("context", "state", "input")}
    return {
        "coverage_vector": (units,),
        **decoder,
        "readout_kernel": (units, vocabulary_of(units)),
        "readout_bias": (vocabulary_of(units),),
        **gate,
        "gate_bias": (),
    }


def _inner_shapes(kind: str, units: int) -> dict[str, tuple[int, ...]]:
    shapes = {"kernel": (units, 3 * units), "recurrent_kernel": (units, 3 * units)}
    if kind == "inner-gate":
        return shapes | {"bias": (3 * units,), "query_kernel": (units, 2 * units)}
    shapes |= {"bias": (2, 3 * units), "attention_kernel": (units, units)}
    if kind == "inner-context":
        shapes["recurrent_attention_kernel"] = (units, units)
    return shapes


def make_weights(problem: Problem) -> dict[str, np.ndarray]:
    """Weights of the scale that Glorot's initialisation gives, float32."""
    rng = np.random.default_rng(SEED)
    weights = {}
    for name, shape in _shapes(problem.kind, problem.size.units).items():
        scale = 1.0 if name == "score_vector" or not shape else shape[0] ** -0.5
        if problem.kind == "multi-head":
            scale = problem.size.units**-0.5  # the first axis of the output's kernel is the heads
        weights[name] = np.asarray(scale * rng.standard_normal(shape), "float32")
    return weights


def make_inputs(problem: Problem) -> dict[str, np.ndarray]:
    """Queries or decoder inputs, the memory with its mask, first states, and the loss's targets."""
    rng = np.random.default_rng(SEED + 1)
    size = problem.size

    def normal(*shape):
        return rng.standard_normal(shape).astype("float32")

    lengths = rng.integers((size.memory + 1) // 2, size.memory + 1, size.batch)
    inputs = {
        "inputs": normal(size.batch, size.steps, size.units),
        "value": normal(size.batch, size.memory, size.units),
        "mask": np.arange(size.memory) < lengths[:, None],
        "states": np.tanh(normal(2, size.batch, size.units)),
        "targets": normal(size.batch, size.steps, size.units),
    }
    return inputs | (_words(problem, lengths) if problem.kind in POINTERS else {})


def _words(problem: Problem, lengths: np.ndarray) -> dict[str, np.ndarray]:
    """`source_ids` `(B, S)` and `labels` `(B, T)`, half of which their document holds."""
    rng = np.random.default_rng(SEED + 2)
    size, known = problem.size, vocabulary_of(problem.size.units)
    source = rng.integers(0, known + UNKNOWN_WORDS, (size.batch, size.memory))
    places = rng.integers(0, lengths[:, None], (size.batch, size.steps))
    copied = rng.random((size.batch, size.steps)) < 0.5
    generated = rng.integers(0, known, (size.batch, size.steps))
    labels = np.where(copied, np.take_along_axis(source, places, axis=1), generated)
    return {"source_ids": source.astype("int32"), "labels": labels.astype("int32")}
