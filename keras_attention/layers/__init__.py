"""Attention layers."""

from keras_attention.layers.attention_decoder import AttentionDecoder
from keras_attention.layers.attention_mechanism import AttentionMechanism
from keras_attention.layers.bahdanau import BahdanauAttention
from keras_attention.layers.coverage import CoverageAttention
from keras_attention.layers.hierarchical import HierarchicalAttention
from keras_attention.layers.inner_attention import InnerAttentionGRU
from keras_attention.layers.inner_attention_cell import InnerAttentionGRUCell
from keras_attention.layers.intra_decoder import IntraDecoderAttention
from keras_attention.layers.local import LocalAttention
from keras_attention.layers.luong import LuongAttention
from keras_attention.layers.multi_head_attention import MultiHeadAttention
from keras_attention.layers.pointer_generator import PointerGenerator
from keras_attention.layers.pooling import AttentionPooling
from keras_attention.layers.positional_encoding import LearnedPositions, PositionalEncoding
from keras_attention.layers.temporal import TemporalAttention
from keras_attention.layers.transformer_decoder import TransformerDecoder
from keras_attention.layers.transformer_encoder import TransformerEncoder

__all__ = [
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
]
