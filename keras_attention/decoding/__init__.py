"""Greedy search, beam search and sampling over any step function."""

from .beam import CoveragePenalty, LengthPenalty, beam_search
from .greedy_and_sampling import greedy_search, sample
from .loop import DecodingResult
from .options import SearchOptions, search
from .problem import SearchProblem, mask_of_origins
from .seeds import sentence_seeds

__all__ = [
    "CoveragePenalty",
    "DecodingResult",
    "LengthPenalty",
    "SearchOptions",
    "SearchProblem",
    "beam_search",
    "greedy_search",
    "mask_of_origins",
    "sample",
    "search",
    "sentence_seeds",
]
