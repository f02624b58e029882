"""Attention layers for Keras 3, and what decodes, trains and scores with them."""

from pathlib import Path as _Path

from keras_attention.layers import (
    CRF,
    SSRU,
    AttentionDecoder,
    AttentionMechanism,
    AttentionPooling,
    BahdanauAttention,
    CoverageAttention,
    GatedDeltaNet,
    HierarchicalAttention,
    InnerAttentionGRU,
    InnerAttentionGRUCell,
    IntraDecoderAttention,
    LearnedPositions,
    LinearAttention,
    LocalAttention,
    LuongAttention,
    MonotonicAttention,
    MultiHeadAttention,
    MultiHeadLatentAttention,
    PointerGenerator,
    PositionalEncoding,
    ScoredAttention,
    TemporalAttention,
    TransformerDecoder,
    TransformerEncoder,
)
from keras_attention.ops.vjp import automatic_derivatives
from keras_attention.version import __version__

__all__ = [
    "CRF",
    "SSRU",
    "__version__",
    "AttentionDecoder",
    "AttentionMechanism",
    "AttentionPooling",
    "BahdanauAttention",
    "CoverageAttention",
    "GatedDeltaNet",
    "HierarchicalAttention",
    "InnerAttentionGRU",
    "InnerAttentionGRUCell",
    "IntraDecoderAttention",
    "LearnedPositions",
    "LinearAttention",
    "LocalAttention",
    "LuongAttention",
    "MonotonicAttention",
    "MultiHeadAttention",
    "MultiHeadLatentAttention",
    "PositionalEncoding",
    "PointerGenerator",
    "ScoredAttention",
    "TemporalAttention",
    "TransformerDecoder",
    "TransformerEncoder",
    "automatic_derivatives",
]

# In a clone, `keras_attention.applications` lies beside this folder. Python that starts there
# imports this folder in place of an installed copy, and has to find the applications, too.
_HERE = _Path(__file__).resolve().parent
if not (_HERE / "applications").exists() and (_HERE.parent / "applications").exists():
    __path__.append(str(_HERE.parent))
