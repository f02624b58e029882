"""Attention layers for Keras 3, and what decodes, trains and scores with them."""

from keras_attention.layers import (
    AttentionDecoder,
    AttentionMechanism,
    AttentionPooling,
    BahdanauAttention,
    CoverageAttention,
    InnerAttentionGRU,
    InnerAttentionGRUCell,
    IntraDecoderAttention,
    LearnedPositions,
    LocalAttention,
    LuongAttention,
    MultiHeadAttention,
    PositionalEncoding,
    TemporalAttention,
    TransformerDecoder,
    TransformerEncoder,
)

__all__ = [
    "AttentionDecoder",
    "AttentionMechanism",
    "AttentionPooling",
    "BahdanauAttention",
    "CoverageAttention",
    "InnerAttentionGRU",
    "InnerAttentionGRUCell",
    "IntraDecoderAttention",
    "LearnedPositions",
    "LocalAttention",
    "LuongAttention",
    "MultiHeadAttention",
    "PositionalEncoding",
    "TemporalAttention",
    "TransformerDecoder",
    "TransformerEncoder",
]
