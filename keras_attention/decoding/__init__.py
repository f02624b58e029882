"""Search over any step function: greedy, beam search, sampling. Knows no model and no layer."""

from .beam import CoveragePenalty, LengthPenalty, beam_search
from .loop import DecodingResult
from .options import SearchOptions, search
from .problem import mask_of_origins
from .seeds import sentence_seeds
from .single import greedy_search, sample

__all__ = [
    "CoveragePenalty",
    "DecodingResult",
    "LengthPenalty",
    "SearchOptions",
    "beam_search",
    "greedy_search",
    "mask_of_origins",
    "sample",
    "search",
    "sentence_seeds",
]
