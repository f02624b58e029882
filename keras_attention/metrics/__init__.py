"""Measures of what layers give: tokens, and alignments. Those of a task stand beside the task."""

from .alignment import Alignment, AlignmentErrorRate, alignment_error_rate, read_alignments
from .tokens import MaskedSparseCategoricalAccuracy, Perplexity

__all__ = [
    "Alignment",
    "AlignmentErrorRate",
    "MaskedSparseCategoricalAccuracy",
    "Perplexity",
    "alignment_error_rate",
    "read_alignments",
]
