"""Measures of summaries: ROUGE through rouge-score, and the faults that summaries have."""

from collections.abc import Sequence

ROUGE = ("rouge1", "rouge2", "rougeL")


def rouge(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], stem: bool = True
) -> dict[str, float]:
    """Return the mean F-measures of ROUGE-1, ROUGE-2 and ROUGE-L, from 0 to 100.

    Where a document has several references, the one that a summary agrees with best counts, for
    each measure by itself.

    Args:
        hypotheses: A summary of each document.
        references: The references of each document, one or several.
        stem: Whether words are compared by their stems (Porter's), as is usual.

    Raises:
        ValueError: Where there are not as many of both, or a document has no reference.

    Reference:
        Lin 2004, "ROUGE: a package for automatic evaluation of summaries"; computed by Google's
        rouge-score.

    Example:

    >>> scores = rouge(["the cat sat"], [["the cat sat down", "a dog"]])
    >>> round(scores["rouge1"], 1)
    85.7
    """
    from rouge_score.rouge_scorer import RougeScorer

    if len(hypotheses) != len(references) or not all(references):
        raise ValueError(
            "Each summary needs at least one reference. "
            f"Received: {len(hypotheses)} summaries, {sum(map(bool, references))} with references"
        )
    scorer = RougeScorer(list(ROUGE), use_stemmer=stem)
    found = [
        scorer.score_multi(list(targets), text)
        for text, targets in zip(hypotheses, references, strict=True)
    ]
    count = max(len(found), 1)
    return {name: 100 * sum(each[name].fmeasure for each in found) / count for name in ROUGE}


def repeated_ngrams(summaries: Sequence[Sequence[str]], n: int = 3) -> float:
    """Return the percentage of n-grams that occurred in the same summary before.

    Args:
        summaries: The words of each summary.
        n: How many words in a row.

    Example:

    >>> repeated_ngrams(["a b c a b c".split()])    # the fourth of four trigrams is the first
    25.0
    """
    total = again = 0
    for words in summaries:
        ngrams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
        total += len(ngrams)
        again += len(ngrams) - len(set(ngrams))
    return 100 * again / total if total else 0.0
