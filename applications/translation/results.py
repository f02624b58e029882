"""Results of a translator: translations that show themselves, links of words, and reports."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_attention.visualization import alignment_text, display_tokens, plot_alignment

from ..errors import shown
from ..show.explanation import AttentionMap, Tokens, attention_map
from ..show.results import Searched, ranked_number, written
from ..show.unknown import join_pieces, unknown_note, unknown_words
from ..store.files import check_picture
from ..text import END_ID, UNK_ID, Tokenizer, nfc
from .metrics import bleu, bleu_by_length, chrf
from .preprocessor import TranslationPreprocessor


@dataclasses.dataclass(frozen=True, eq=False)
class Translation(Searched):
    """A translation. In a notebook it shows its alignment.

    Args:
        text: the translation.
        score: what translations of a sentence are ranked by (with a penalty, where one is set). Of
            a sample: its log-probability in the distribution that `temperature`, `top_k` and
            `top_p` leave.
        log_probability: the model's own log-probability of its tokens and of the end.
        tokens: its written tokens.
        source_tokens: the written tokens of the source.
        alignment: attention weights, one row for each of `tokens`, one column for each of
            `source_tokens`; None where the network has no attention or it was not asked for.
        alternatives: the next best translations, best first, where more than one was asked for.
        ids: the ids of `tokens` as the network wrote them, before unknown words were replaced.
        token_log_probabilities: the model's own log-probability of each of `tokens`, and of the end
            where it was written; they sum to `log_probability`. None of the engine `ctranslate2`,
            which does not give them.
        truncated: whether the source was longer than is read, and was cut.
        unknown: the indices of the `source_tokens` that the vocabulary lacks. The network reads
            all of them as one and the same.

    Example:

    ```python
    from keras_attention.applications.translation import Translator

    result = Translator.from_preset("dates").translate("4 juin 1999", beam_size=3, n_best=2)
    print(result.text, result.log_probability, result.alternatives[0].text)
    print(result.show())  # which tokens of the source each written token attends to
    ```
    """

    text: str
    score: float
    log_probability: float
    tokens: list[str]
    source_tokens: list[str]
    alignment: np.ndarray | None = dataclasses.field(repr=False)
    alternatives: tuple["Translation", ...] = ()
    ids: tuple[int, ...] = dataclasses.field(default=(), repr=False)
    token_log_probabilities: list[float] | None = dataclasses.field(default=None, repr=False)
    truncated: bool = dataclasses.field(default=False, repr=False)
    unknown: tuple[int, ...] = dataclasses.field(default=(), repr=False)

    @property
    def note(self) -> str:
        """How many words of the source are unknown, and which; "" where all are known."""
        return unknown_note(*unknown_words(self.source_tokens, self.unknown))

    @property
    def can_be_drawn(self) -> bool:
        """Whether there are attention weights of any token."""
        return self.alignment is not None and bool(self.tokens)

    def plot(self, path: Path | str | None = None, *, words: bool = True) -> Any:
        """Return the alignment as a `matplotlib.figure.Figure`, and write it where asked to.

        Args:
            path: a new .png, .svg or .pdf.
            words: whether to draw whole words, as `whole_words` says, in place of their pieces.
        """
        if not self.can_be_drawn:
            raise ValueError(
                "A picture needs an alignment: a network with attention, a text that is not empty, "
                f"and `return_alignments=True`. Received: {shown(self)}"
            )
        if path is not None:
            check_picture(path)
        return written(plot_alignment(*self._drawn(words)), path)

    def show(self, *, words: bool = True) -> str:
        """Return the alignment as text, for a terminal; of no alignment, the translation.

        A note below says which words of the source are unknown.

        Args:
            words: whether to write whole words in place of their pieces, as in `plot`.
        """
        shown = alignment_text(*self._drawn(words)) if self.can_be_drawn else self.text
        return "\n\n".join(filter(None, [shown, self.note]))

    def _drawn(self, words: bool) -> tuple[np.ndarray, list[str], list[str]]:
        drawn = self.alignment, self.source_tokens, self.tokens
        if not words:
            return drawn
        weights, source, target = whole_words(*drawn)
        return weights, _labels(source), _labels(target)


def whole_words(
    attention: np.ndarray, source_tokens: Sequence[str], target_tokens: Sequence[str]
) -> tuple[np.ndarray, list[str], list[str]]:
    """Return the attention of whole words: of weights `(T, S)` between pieces, and their words.

    A word is looked at by as much as all its pieces are, and looks as its pieces do in the mean.
    Letters that follow each other without a space are one word. Digits, punctuation, and letters
    of scripts that are written without spaces, stay the tokens that they are.
    """
    source, columns = join_pieces(source_tokens)
    target, rows = join_pieces(target_tokens)
    weights = np.asarray(attention) @ np.eye(len(source))[columns]
    member = np.eye(len(target))[rows]
    return (member / member.sum(axis=0)).T @ weights, source, target


Links = list[tuple[int, int]]
"""Pairs `(source word, target word)`, counted from 0, in the order of the target."""


def words_of_tokens(tokenizer: Tokenizer, tokens: Sequence[str]) -> list[int]:
    """Return for each written token which word of the text it belongs to.

    Spaces in the text that the tokens stand for separate words, as in alignments in Pharaoh form;
    punctuation that is joined to a word belongs to it.
    """
    texts = (tokenizer.join(tokens[: end + 1]) for end in range(len(tokens)))
    # A token that is a space alone begins the word after it.
    return [max(0, len(text.split()) - (not text[-1:].isspace())) for text in texts]


def translation_of(
    preprocessor: TranslationPreprocessor,
    dictionary: Mapping[str, str],
    words: list[str],
    source: list[str],
    tokens: np.ndarray,
    length: int,
    score: float,
    log_probability: float,
    alignment: np.ndarray | None,
    terms: np.ndarray | None,
    start: Sequence[str] = (),
) -> Translation:
    """Return one hypothesis of a search as a `Translation`.

    Args:
        preprocessor: of the translator.
        dictionary: translations of single source words.
        words: the vocabulary of the target.
        source: the written tokens of the source.
        tokens, length, score, log_probability, alignment, terms: of the hypothesis.
        start: the written tokens that it had to begin with.
    """
    target = preprocessor.target_tokenizer
    ids = tokens[:length]
    ids = ids[ids != END_ID]
    written, text = [words[token] for token in ids], target.decode([ids])[0]
    if alignment is not None:
        alignment = alignment[: len(written), : len(source)]
        if preprocessor.replace_unknown:
            for place in np.flatnonzero(ids[len(start) :] == UNK_ID) + len(start):
                if alignment[place].any():
                    word = source[int(alignment[place].argmax())]
                    written[place] = dictionary.get(word, word)
            text = target.join(written)
    if UNK_ID in ids[: len(start)]:  # the vocabulary lacks a word that the caller has given
        written[: len(start)] = start[: len(written)]
        text = target.join(written)
    return Translation(
        text,
        ranked_number(score),
        ranked_number(log_probability),
        written,
        source,
        alignment,
        ids=tuple(map(int, ids)),
        token_log_probabilities=None if terms is None else terms[:length].astype(float).tolist(),
    )


def links_of(translation: Translation, preprocessor: TranslationPreprocessor) -> Links:
    """Return the links between words, as `Translator.links` says."""
    if translation.alignment is None:
        raise ValueError(
            "Links need a translation with an alignment: a model with attention, and "
            f"`return_alignments=True`. Received: {shown(translation)}"
        )
    return align_words(
        translation.alignment,
        words_of_tokens(preprocessor.source_tokenizer, translation.source_tokens),
        words_of_tokens(preprocessor.target_tokenizer, translation.tokens),
    )


def maps_of(
    result: Translation,
    maps: dict[str, Any],
    place: int,
    layer: int = -1,
    head: int | None = None,
) -> list[AttentionMap]:
    """Return the maps of a translation out of those of all, `(ranked, layers, heads, ...)`.

    Its alignment is `head` of the decoder's `layer`, which the map between both texts shows first.
    """
    if not result.ids:
        return []
    source = _with_words(result.source_tokens)
    source = dataclasses.replace(source, unknown=list(result.unknown))
    target = _with_words(result.tokens)
    # When the decoder writes a word, it has read the start and the words before.
    before = Tokens(["<start>", *target.tokens[:-1]])
    sides = {"cross-attention": (target, source), "encoder self-attention": (source, source)}
    found = []
    for name, weights in maps.items():
        rows, columns = sides.get(name, (Tokens(target.tokens), before))
        weights = weights[place][..., : len(rows.tokens), : len(columns.tokens)]
        first = (layer, head) if name == "cross-attention" else ()
        found.append(attention_map(name, rows, columns, weights, *first))
    return found


def _with_words(tokens: Sequence[str]) -> Tokens:
    """Return tokens as a side of a map, with the words that pictures show in their place."""
    words, of_token = join_pieces(tokens)
    if len(words) == len(tokens):
        return Tokens(display_tokens(tokens))
    return Tokens(display_tokens(tokens), _labels(words), of_token, "words")


def _labels(words: Sequence[str]) -> list[str]:
    """Return words as people read them: none is a piece that continues the one before it."""
    return [display_tokens([word])[0] for word in words]


def words_of_line(tokenizer: Tokenizer, line: str) -> list[int]:
    """Return for each token of a line which word, as spaces separate them, it belongs to.

    Each word is made into tokens by itself. Where that gives other tokens than the whole line
    (normalisation can join or part words), words are those of the text that the tokens stand for.
    """
    by_word = tokenizer.encode(line.split())
    if [token for tokens in by_word for token in tokens] != tokenizer.encode([line])[0]:
        return words_of_tokens(tokenizer, tokenizer.tokens(line))
    return [word for word, tokens in enumerate(by_word) for _ in tokens]


def align_words(
    scores: np.ndarray, source_words: Sequence[int], target_words: Sequence[int]
) -> Links:
    """Link each target word to the source word with the highest weight, where it has any.

    `scores` are weights (target tokens or more, source tokens or more); a word's weight is the sum
    over its tokens, which the other arguments name the words of.
    """
    if not source_words or not target_words:
        return []
    weights = np.zeros((max(target_words) + 1, max(source_words) + 1))
    tokens = np.asarray(scores, np.float64)[: len(target_words), : len(source_words)]
    np.add.at(weights, (np.asarray(target_words)[:, None], np.asarray(source_words)), tokens)
    return [(int(row.argmax()), target) for target, row in enumerate(weights) if row.max() > 0]


def pharaoh(links: Links) -> str:
    """Write links as `0-0 2-1`, source first."""
    return " ".join(f"{source}-{target}" for source, target in links)


def evaluation_report(
    sources: Sequence[str],
    texts: Sequence[str],
    targets: Sequence[str | Sequence[str]],
    tokenize: str = "13a",
) -> dict[str, Any]:
    """Return BLEU, chrF, exact matches and BLEU by source length, as JSON types.

    A sentence may have several references, a list; an exact match is of any of them. Translations
    are in Unicode's form C, and so are compared with that of their references.
    """
    wanted = [[nfc(each) for each in ([of] if isinstance(of, str) else of)] for of in targets]
    score, characters = bleu(texts, wanted, tokenize=tokenize), chrf(texts, wanted)
    same = sum(text in references for text, references in zip(texts, wanted, strict=True))
    return {
        "sentences": len(texts),
        "bleu": score.value,
        "signature": score.signature,
        "chrf": characters.value,
        "chrf_signature": characters.signature,
        "exact_match": 100 * same / len(texts),
        "bleu_by_source_words": [
            {name: getattr(bucket, name) for name in ("shortest", "longest", "sentences")}
            | {"bleu": bucket.score and bucket.score.value}
            for bucket in bleu_by_length(sources, texts, wanted, tokenize=tokenize)
        ],
    }


def blind_bleu(targets: Sequence[str | Sequence[str]], tokenize: str) -> str:
    """Return why BLEU cannot tell right translations from wrong ones, `""` where it can.

    It is 0 for the references themselves where none of them has four tokens. Wrong translations,
    which may be longer, can then have a higher one.
    """
    first = [each if isinstance(each, str) else each[0] for each in targets]
    if not first or bleu(first, targets, tokenize=tokenize).value > 99:
        return ""
    return f"no reference has four tokens (tok:{tokenize}), and BLEU counts runs of four"


TOO_LONG = {"left_out": "left out as too long", "truncated": "of them cut short"}
"""What a table says of the counts that a report has where texts were too long."""


def table(report: dict[str, Any]) -> str:
    """Write a report for people."""
    lines = [f"{report['sentences']:,} sentence pairs of {report['data']}"]
    lines += [f"{report[key]:,} {words}" for key, words in TOO_LONG.items() if report.get(key)]
    lines.append("")
    names = {"bleu": "BLEU", "chrf": "chrF", "perplexity": "perplexity"}
    for key, name in {**names, "exact_match": "exact match %"}.items():
        lines.append(f"{name:<14} {report[key]:8.2f}")
    if alignment := report.get("alignment"):
        lines.append(
            f"{'AER %':<14} {alignment['aer']:8.2f}  (precision {alignment['precision']:.2f}, "
            f"recall {alignment['recall']:.2f})"
        )
    lines += ["", f"{'source words':<14} {'sentences':>9} {'BLEU':>7}"]
    for bucket in report["bleu_by_source_words"]:
        if bucket["sentences"]:
            last = f"-{bucket['longest']}" if bucket["longest"] else " or more"
            words = f"{bucket['shortest']}{last}"
            lines.append(f"{words:<14} {bucket['sentences']:>9,} {bucket['bleu']:>7.2f}")
    lines += ["", f"beam size {report['beam_size']}; {report['signature']}"]
    return "\n".join(lines)
