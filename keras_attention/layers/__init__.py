"""Attention layers."""

from .attention.bahdanau import BahdanauAttention
from .attention.base import AttentionMechanism
from .attention.coverage import CoverageAttention
from .attention.hierarchical import HierarchicalAttention
from .attention.intra_decoder import IntraDecoderAttention
from .attention.latent import MultiHeadLatentAttention
from .attention.linear import LinearAttention
from .attention.local import LocalAttention
from .attention.luong import LuongAttention
from .attention.monotonic import MonotonicAttention
from .attention.multi_head import MultiHeadAttention
from .attention.pointer_generator import PointerGenerator
from .attention.pooling import AttentionPooling
from .attention.scored import ScoredAttention
from .attention.temporal import TemporalAttention
from .crf import CRF
from .recurrent.attention_decoder import AttentionDecoder
from .recurrent.gated_delta_net import GatedDeltaNet
from .recurrent.inner_attention_cell import InnerAttentionGRUCell
from .recurrent.inner_attention_gru import InnerAttentionGRU
from .recurrent.ssru import SSRU
from .transformer.decoder import TransformerDecoder
from .transformer.encoder import TransformerEncoder
from .transformer.positional_encoding import LearnedPositions, PositionalEncoding

__all__ = [
    "CRF",
    "SSRU",
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
]
