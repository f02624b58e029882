"""Search over any step function: greedy, beam search, sampling. Knows no model and no layer."""

from keras_attention.decoding.beam import beam_search
from keras_attention.decoding.loop import DecodingResult
from keras_attention.decoding.options import SearchOptions, search
from keras_attention.decoding.scoring import CoveragePenalty, LengthPenalty
from keras_attention.decoding.single import greedy_search, sample

__all__ = [
    "CoveragePenalty",
    "DecodingResult",
    "LengthPenalty",
    "SearchOptions",
    "beam_search",
    "greedy_search",
    "sample",
    "search",
]
