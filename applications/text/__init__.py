"""Tokenizers and batches of text."""

from .batching import BucketedBatches
from .normalization import nfc
from .packed import PackedIds
from .sentencepiece_tokenizer import SentencePieceTokenizer
from .sentences import split_sentences
from .tokenizer import (
    END_ID,
    PAD_ID,
    SPECIAL_TOKENS,
    START_ID,
    UNK_ID,
    Tokenizer,
    load_tokenizer,
    tokenizer_from_config,
)
from .word_tokenizer import WordTokenizer

__all__ = [
    "END_ID",
    "PAD_ID",
    "SPECIAL_TOKENS",
    "START_ID",
    "UNK_ID",
    "BucketedBatches",
    "PackedIds",
    "SentencePieceTokenizer",
    "Tokenizer",
    "WordTokenizer",
    "load_tokenizer",
    "nfc",
    "split_sentences",
    "tokenizer_from_config",
]
