"""Measures of models and of their output: over tokens, over text and over alignments."""

from .alignment import Alignment, AlignmentErrorRate, alignment_error_rate, read_alignments
from .classification import (
    Calibration,
    F1Scores,
    LabelScores,
    calibration,
    confusion_matrix,
    f1_scores,
)
from .corpus import (
    CorpusScore,
    LengthBucket,
    bleu,
    bleu_by_length,
    bleu_tokenizer,
    chrf,
    oracle_sentences,
    repeated_ngrams,
    rouge,
)
from .ranking import (
    RankingScore,
    pair_accuracy,
    rank,
    ranking_score,
    read_trec_judgements,
    read_trec_run,
    trec_run_lines,
)
from .tokens import MaskedSparseCategoricalAccuracy, Perplexity

__all__ = [
    "Alignment",
    "AlignmentErrorRate",
    "Calibration",
    "CorpusScore",
    "F1Scores",
    "LabelScores",
    "LengthBucket",
    "MaskedSparseCategoricalAccuracy",
    "Perplexity",
    "RankingScore",
    "alignment_error_rate",
    "bleu",
    "bleu_by_length",
    "bleu_tokenizer",
    "calibration",
    "chrf",
    "confusion_matrix",
    "f1_scores",
    "oracle_sentences",
    "pair_accuracy",
    "rank",
    "ranking_score",
    "read_alignments",
    "read_trec_judgements",
    "read_trec_run",
    "repeated_ngrams",
    "rouge",
    "trec_run_lines",
]
