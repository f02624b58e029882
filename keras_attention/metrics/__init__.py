"""Measures of models and of their output: over tokens, over text and over alignments."""

from keras_attention.metrics.alignment import (
    Alignment,
    AlignmentErrorRate,
    alignment_error_rate,
    read_alignments,
)
from keras_attention.metrics.classification import (
    Calibration,
    F1Scores,
    LabelScores,
    calibration,
    confusion_matrix,
    f1_scores,
)
from keras_attention.metrics.corpus import (
    CorpusScore,
    LengthBucket,
    bleu,
    bleu_by_length,
    chrf,
    repeated_ngrams,
    rouge,
)
from keras_attention.metrics.ranking import (
    RankingScore,
    pair_accuracy,
    rank,
    ranking_score,
    read_trec_judgements,
    read_trec_run,
    trec_run_lines,
)
from keras_attention.metrics.tokens import MaskedSparseCategoricalAccuracy, Perplexity

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
    "calibration",
    "chrf",
    "confusion_matrix",
    "f1_scores",
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
