"""The programs compared. Each lives in its own module, imported only in its own process.

A program is built by `program(problem, compiled)` and has

- `forward()`: one forward pass; returns the outputs as NumPy;
- `train()`: one training step (forward, mean squared error or the model's own loss, gradients to
  the weights, the inputs and the memory, SGD); returns the loss and those gradients as a callable
  `gradients()`, so that converting them to NumPy is no part of the step's time;

or, where sentences are translated, `greedy()` and `beam()`, which return the words.
"""

import importlib
from dataclasses import dataclass

from benchmarks.speed.problems import INNER, POINTERS, TRANSFORMERS, TRANSLATIONS

OURS, KERAS, TORCH, GRU = "ours", "keras", "pytorch", "gru"
OURS_HALF, KERAS_HUB, ENGINE, ENGINE_INT8 = "ours-half", "keras-hub", "engine", "engine-int8"
BY_ENGINE, BY_ENGINE_INT8 = "ours-by-engine", "ours-by-engine-int8"
BY_LITERT, BY_LITERT_INT8 = "ours-by-litert", "ours-by-litert-int8"
OF_KERAS = ("our_layers", "keras_layers", "pointer_generator", "transformers", "translators")
"""Modules of programs that run on any backend."""
# Whose results are another's: a yardstick that computes something else, and rounded weights.
INEXACT = (GRU, OURS_HALF, ENGINE_INT8, BY_ENGINE_INT8, BY_LITERT_INT8)


@dataclass(frozen=True)
class Contender:
    """A program, as a side of the comparison runs it.

    `compiled` is XLA for Keras' programs on TensorFlow, and `torch.compile` for PyTorch.
    Sides in `INEXACT` are no part of the comparison of results. With `streams` it works on as many
    batches at once as there are cores, a thread each.
    """

    name: str
    side: str
    module: str
    program: str
    compiled: bool
    label: str
    streams: bool = False

    def load(self):
        """Imports the program's framework and returns what builds it."""
        module = importlib.import_module(f"benchmarks.speed.contenders.{self.module}")
        return getattr(module, self.program)


def _keras(name: str, side: str, module: str, program: str, label: str) -> list[Contender]:
    return [
        Contender(name, side, module, program, False, label),
        Contender(f"{name}-xla", side, module, program, True, f"{label}, XLA"),
    ]


_DECODERS = [
    *_keras("ours", OURS, "our_layers", "OurDecoder", "AttentionDecoder"),
    *_keras("keras-rnn", KERAS, "keras_layers", "RNNDecoder", "Keras RNN over a cell"),
    *_keras("keras-loop", KERAS, "keras_layers", "LoopDecoder", "Keras unrolled loop"),
    Contender("torch", TORCH, "torch_decoder", "TorchDecoder", False, "PyTorch loop"),
]
_ATTENTIONS = [
    *_keras("ours", OURS, "our_layers", "OurAttention", "BahdanauAttention"),
    *_keras("keras", KERAS, "keras_layers", "KerasAttention", "Dense, AdditiveAttention"),
]
_INNER = [
    *_keras("ours", OURS, "our_layers", "OurInnerAttention", "InnerAttentionGRU"),
    *_keras("keras-rnn", KERAS, "keras_layers", "InnerRNN", "Keras RNN over a cell"),
    Contender("torch", TORCH, "torch_inner", "TorchInner", False, "PyTorch loop"),
    *_keras("gru", GRU, "keras_layers", "PlainGRU", "keras.layers.GRU"),
]
_SELF_ATTENTIONS = [
    *_keras("ours", OURS, "our_layers", "OurSelfAttention", "MultiHeadAttention"),
    *_keras("keras", KERAS, "keras_layers", "KerasSelfAttention", "Keras MultiHeadAttention"),
    Contender("torch", TORCH, "torch_attention", "TorchSelfAttention", False, "PyTorch fused"),
]
_POINTERS = [
    *_keras("ours", OURS, "pointer_generator", "OurPointerGenerator", "our layers"),
    Contender("torch", TORCH, "torch_pointer", "TorchPointerGenerator", False, "PyTorch loop"),
]
_TRANSFORMERS = [
    *_keras("ours", OURS, "transformers", "OurTransformer", "Transformer"),
    *_keras("hub", KERAS_HUB, "transformers", "KerasHubTransformer", "KerasHub's blocks"),
    Contender("torch", TORCH, "torch_transformer", "TorchTransformer", False, "PyTorch's blocks"),
]
_TRANSLATORS = [
    Contender("ours", OURS, "translators", "OurTranslator", False, "Transformer"),
    Contender("ours-streams", OURS, "translators", "OurStreams", False, "in streams", True),
    Contender("half", OURS_HALF, "translators", "OurHalfTranslator", False, "bfloat16"),
    Contender(
        "half-streams", OURS_HALF, "translators", "OurHalfStreams", False, "bfloat16 streams", True
    ),
    *_keras("hub", KERAS_HUB, "translators", "KerasHubTranslator", "KerasHub"),
    *(
        Contender(
            f"{name}{'-streams' * streams}",
            side,
            "engines",
            program,
            False,
            label,
            streams,
        )
        for name, side, streams, program, label in (
            ("engine", ENGINE, False, "CTranslate2Translator", "CTranslate2"),
            ("engine", ENGINE, True, "CTranslate2Streams", "CTranslate2 streams"),
            ("engine-int8", ENGINE_INT8, False, "CTranslate2Int8", "CTranslate2 int8"),
            (
                "engine-int8",
                ENGINE_INT8,
                True,
                "CTranslate2Int8Streams",
                "CTranslate2 int8 streams",
            ),
            ("engine-by-ours", BY_ENGINE, False, "OurEngine", "translate(engine=)"),
            (
                "engine-by-ours-int8",
                BY_ENGINE_INT8,
                False,
                "OurEngineInt8",
                "translate(engine=) int8",
            ),
            ("litert", BY_LITERT, False, "OurLiteRT", "LiteRT"),
            ("litert-int8", BY_LITERT_INT8, False, "OurLiteRTInt8", "LiteRT int8"),
        )
    ),
]
_EXTRA = [
    Contender("torch-compiled", TORCH, "torch_decoder", "TorchDecoder", True, "torch.compile loop"),
]
_INNER_EXTRA = [
    Contender("torch-compiled", TORCH, "torch_inner", "TorchInner", True, "torch.compile loop"),
]


def contenders_for(kind: str, extra: bool = False, backend: str = "tensorflow") -> list[Contender]:
    """The programs that solve a kind of problem, ours first; on JAX those of Keras alone."""
    if backend == "jax":  # which compiles all by XLA
        return [
            each
            for each in contenders_for(kind)
            if each.module in OF_KERAS and not (each.compiled or each.streams)
        ]
    if kind == "additive":
        return list(_ATTENTIONS)
    if kind == "multi-head":
        return list(_SELF_ATTENTIONS)
    if kind in POINTERS:
        return list(_POINTERS)
    if kind in TRANSFORMERS:
        return list(_TRANSFORMERS)
    if kind in TRANSLATIONS:
        return list(_TRANSLATORS)
    if kind in INNER:
        return _INNER + (_INNER_EXTRA if extra else [])
    return _DECODERS + (_EXTRA if extra else [])


def find(kind: str, name: str) -> Contender:
    """The contender of that name."""
    return next(c for c in contenders_for(kind, extra=True) if c.name == name)
