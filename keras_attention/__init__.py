"""Attention layers for Keras 3, and what decodes, trains and scores with them."""

from keras_attention.layers import (
    SSRU,
    AttentionDecoder,
    AttentionMechanism,
    AttentionPooling,
    BahdanauAttention,
    CoverageAttention,
    HierarchicalAttention,
    InnerAttentionGRU,
    InnerAttentionGRUCell,
    IntraDecoderAttention,
    LearnedPositions,
    LocalAttention,
    LuongAttention,
    MultiHeadAttention,
    PointerGenerator,
    PositionalEncoding,
    TemporalAttention,
    TransformerDecoder,
    TransformerEncoder,
)
from keras_attention.ops.vjp import automatic_derivatives
from keras_attention.version import __version__

__all__ = [
    "SSRU",
    "__version__",
    "AttentionDecoder",
    "AttentionMechanism",
    "AttentionPooling",
    "BahdanauAttention",
    "CoverageAttention",
    "HierarchicalAttention",
    "InnerAttentionGRU",
    "InnerAttentionGRUCell",
    "IntraDecoderAttention",
    "LearnedPositions",
    "LocalAttention",
    "LuongAttention",
    "MultiHeadAttention",
    "PositionalEncoding",
    "PointerGenerator",
    "TemporalAttention",
    "TransformerDecoder",
    "TransformerEncoder",
    "automatic_derivatives",
]
