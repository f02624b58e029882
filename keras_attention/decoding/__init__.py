"""Search over any step function: greedy, beam search, sampling. Knows no model and no layer."""

from keras_attention.decoding.beam_search import beam_search
from keras_attention.decoding.greedy import greedy_search
from keras_attention.decoding.penalties import CoveragePenalty, LengthPenalty
from keras_attention.decoding.result import DecodingResult
from keras_attention.decoding.sampling import sample

__all__ = [
    "CoveragePenalty",
    "DecodingResult",
    "LengthPenalty",
    "beam_search",
    "greedy_search",
    "sample",
]
