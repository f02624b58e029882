"""Attention layers."""

from keras_attention.layers.attention.bahdanau import BahdanauAttention
from keras_attention.layers.attention.base import AttentionMechanism
from keras_attention.layers.attention.coverage import CoverageAttention
from keras_attention.layers.attention.hierarchical import HierarchicalAttention
from keras_attention.layers.attention.intra_decoder import IntraDecoderAttention
from keras_attention.layers.attention.local import LocalAttention
from keras_attention.layers.attention.loop_scores import AdditiveScore, DotScore, LoopScore
from keras_attention.layers.attention.luong import LuongAttention
from keras_attention.layers.attention.multi_head import MultiHeadAttention
from keras_attention.layers.attention.pointer_generator import PointerGenerator
from keras_attention.layers.attention.pooling import AttentionPooling
from keras_attention.layers.attention.temporal import TemporalAttention
from keras_attention.layers.recurrent.attention_decoder import AttentionDecoder
from keras_attention.layers.recurrent.inner_attention_cell import InnerAttentionGRUCell
from keras_attention.layers.recurrent.inner_attention_gru import InnerAttentionGRU
from keras_attention.layers.transformer.decoder import TransformerDecoder
from keras_attention.layers.transformer.encoder import TransformerEncoder
from keras_attention.layers.transformer.positional_encoding import (
    LearnedPositions,
    PositionalEncoding,
)

__all__ = [
    "AdditiveScore",
    "AttentionDecoder",
    "AttentionMechanism",
    "AttentionPooling",
    "BahdanauAttention",
    "CoverageAttention",
    "DotScore",
    "HierarchicalAttention",
    "InnerAttentionGRU",
    "InnerAttentionGRUCell",
    "IntraDecoderAttention",
    "LearnedPositions",
    "LocalAttention",
    "LoopScore",
    "LuongAttention",
    "MultiHeadAttention",
    "PositionalEncoding",
    "PointerGenerator",
    "TemporalAttention",
    "TransformerDecoder",
    "TransformerEncoder",
]
