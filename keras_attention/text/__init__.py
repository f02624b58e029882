"""Tokenizers and batches of text."""

from keras_attention.text.batching import BucketedBatches
from keras_attention.text.sentencepiece_tokenizer import SentencePieceTokenizer
from keras_attention.text.tokenizer import (
    END_ID,
    PAD_ID,
    SPECIAL_TOKENS,
    START_ID,
    UNK_ID,
    Tokenizer,
    load_tokenizer,
    tokenizer_from_config,
)
from keras_attention.text.word_tokenizer import WordTokenizer

__all__ = [
    "END_ID",
    "PAD_ID",
    "SPECIAL_TOKENS",
    "START_ID",
    "UNK_ID",
    "BucketedBatches",
    "SentencePieceTokenizer",
    "Tokenizer",
    "WordTokenizer",
    "load_tokenizer",
    "tokenizer_from_config",
]
