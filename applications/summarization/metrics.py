"""Scores of summaries: ROUGE by rouge-score, its oracle sentences, and repetition."""

import functools
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from ..text.references import References, texts_and_references

ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")
# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana, bopomofo, Chinese.
_WITHOUT_SPACES = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u312f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)


def rouge(
    hypotheses: Sequence[str],
    references: References,
    stem: bool = True,
    resamples: int = 0,
) -> dict[str, float]:
    """Return the mean F-measures of ROUGE-1, ROUGE-2, ROUGE-L and ROUGE-Lsum, from 0 to 100.

    ROUGE-L compares texts as a whole, ROUGE-Lsum sentence by sentence, as the paper does for
    summaries: each line of a text is a sentence. The two are equal where texts have one line.

    Words are those of rouge-score, in lower case, but letters beyond a to z count too: rouge-score
    takes them for spaces. A word is a run of letters, marks and numbers; of scripts without spaces
    (Chinese, Japanese, Thai, Lao, Burmese, Khmer) each character is one. So texts in ASCII have the
    figures that rouge-score gives them.

    Args:
        hypotheses, references: A summary of each document, and its references, a list or the only
            one. Of several, the best counts, for each measure by itself.
        stem: Whether words of a to z are compared by their stems (Porter's), as is usual.
        resamples: From how many draws of the documents, with replacement, a 95 % confidence
            interval comes: `"rouge1_low"` and `"rouge1_high"`, and so on. 0 for none; 1,000 is
            usual. The draws are always the same.

    Raises:
        ValueError: Where there are not as many of both, a document has no reference, an entry is
            no string, or `resamples` is below 0.

    Reference:
        Lin 2004, "ROUGE: a package for automatic evaluation of summaries"; computed by Google's
        rouge-score.

    Example:

    >>> scores = rouge(["the cat sat"], [["the cat sat down", "a dog"]])
    >>> round(scores["rouge1"], 1)
    85.7
    >>> round(rouge(["天气好"], ["天气很好"])["rouge1"], 1)
    85.7
    """
    from rouge_score.rouge_scorer import RougeScorer

    hypotheses, groups = texts_and_references(hypotheses, references)
    if len(hypotheses) != len(groups) or not all(groups):
        raise ValueError(
            "Each summary needs at least one reference. "
            f"Received: {len(hypotheses)} summaries, {sum(map(bool, groups))} with references"
        )
    if resamples < 0:
        raise ValueError(f"`resamples` must be at least 0. Received: resamples={resamples}")
    scorer = RougeScorer(list(ROUGE), tokenizer=_RougeWords(stem))
    found = [
        scorer.score_multi(targets, text) for text, targets in zip(hypotheses, groups, strict=True)
    ]
    scores = {
        name: np.array([100 * each[name].fmeasure for each in found] or [0.0]) for name in ROUGE
    }
    report = {name: float(values.mean()) for name, values in scores.items()}
    if not resamples:
        return report
    draws, count = np.random.default_rng(0), max(1, len(found))
    rows = [draws.integers(0, count, count) for _ in range(resamples)]
    for name, values in scores.items():
        ends = np.quantile([values[each].mean() for each in rows], (0.025, 0.975))
        report |= zip((f"{name}_low", f"{name}_high"), map(float, ends), strict=True)
    return report


class _RougeWords:
    """The words that ROUGE counts, in the form in which rouge-score takes a tokenizer."""

    def __init__(self, stem: bool):
        from rouge_score.tokenizers import DefaultTokenizer

        self._words_of_ascii: Callable[[str], list[str]] = DefaultTokenizer(stem).tokenize

    def tokenize(self, text: str) -> list[str]:
        if text.isascii():
            return self._words_of_ascii(text)
        # Composed, as an accent may be a character of its own in one of two texts.
        found = _rouge_pattern().findall(unicodedata.normalize("NFC", text.lower()))
        return [
            word
            for each in found
            for word in (self._words_of_ascii(each) if each.isascii() else [each])
        ]


@functools.cache
def _rouge_pattern() -> re.Pattern[str]:
    """Return the pattern of a word; Python's `\\w` has no marks, such as Indic vowel signs."""
    characters = map(chr, range(sys.maxunicode + 1))
    marks = "".join(each for each in characters if unicodedata.category(each)[0] == "M")
    letter = f"[^\\W_][{marks}]*"
    return re.compile(f"(?=[{_WITHOUT_SPACES}]){letter}|(?:(?![{_WITHOUT_SPACES}]){letter})+")


def oracle_sentences(
    sentences: Sequence[str], references: Sequence[str] | str, count: int
) -> list[int]:
    """Return the places of sentences of a document that make a good summary by ROUGE.

    The sum of ROUGE-1 and ROUGE-2 (F-measure, stemmed, best reference) chooses one sentence after
    another, until none adds to it. This is a greedy estimate of what extraction can reach, not a
    bound: other sentences may score higher.

    Args:
        sentences: Of the document.
        references: Its summaries, a list or the only one.
        count: The most sentences to choose.

    Reference:
        Nallapati et al. 2017, "SummaRuNNer", section 3.3.

    Example:

    >>> oracle_sentences(["a cat sat", "it rained all day", "the cat slept"], ["the cat slept"], 1)
    [2]
    """
    tokenize = _RougeWords(stem=True).tokenize
    words = [tokenize(sentence) for sentence in sentences]
    references = [references] if isinstance(references, str) else references
    wanted = [[_ngrams(tokenize(text), n) for text in references] for n in (1, 2)]

    def score(places: list[int]) -> float:
        """Return ROUGE-1 and ROUGE-2 of some sentences, added up."""
        joined = [word for place in places for word in words[place]]
        pairs = zip((_ngrams(joined, n) for n in (1, 2)), wanted, strict=True)
        return sum(
            max((_f_measure(own, text) for text in texts), default=0) for own, texts in pairs
        )

    chosen: list[int] = []
    while len(chosen) < min(count, len(sentences)):
        rest = (place for place in range(len(sentences)) if place not in chosen)
        best = max((sorted([*chosen, place]) for place in rest), key=score)  # the first of equals
        if score(best) <= (score(chosen) if chosen else 0.0):
            break
        chosen = best
    return chosen


def _ngrams(words: list[str], n: int) -> Counter:
    return Counter(zip(*(words[start:] for start in range(n)), strict=False))


def _f_measure(own: Counter, wanted: Counter) -> float:
    total = own.total() + wanted.total()
    return 2 * (own & wanted).total() / total if total else 0.0


def repeated_ngrams(summaries: Sequence[Sequence[str]], n: int = 3) -> float:
    """Return the percentage of n-grams that occurred before in the same summary, a list of words.

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
