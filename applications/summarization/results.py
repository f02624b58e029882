"""Results of a summariser: summaries that show themselves, and measures of many."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from keras_attention.visualization import (
    alignment_text,
    display_tokens,
    make_figure,
    new_figure,
)

from ..errors import shown
from ..show.explanation import AttentionMap, Tokens, attention_map
from ..show.results import Searched, written
from ..show.unknown import unknown_note, unknown_words
from ..store.files import check_picture
from .metrics import repeated_ngrams, rouge

WIDEST = 40
"""The most words of a document that are drawn, those that were read the most."""


@dataclasses.dataclass(frozen=True, eq=False)
class Summary(Searched):
    """A summary and where its words come from. In a notebook it shows that.

    Args:
        text: the summary.
        score: what summaries of a document are ranked by (with a penalty, where one is set). Of a
            sample: its log-probability in the distribution that `temperature`, `top_k` and `top_p`
            leave.
        log_probability: the model's own log-probability of its tokens and of the end.
        tokens: its written words; those copied of unknown ones too.
        copied: of each token, whether the vocabulary does not hold it.
        unknown: of each token, whether it was left unknown.
        source: the words of each sentence of the document, as far as they were read.
        attention: weights `(T, S)` over the words of all sentences on end; zeros without attention;
            None where it was not wanted.
        p_gen: the probability with which each token was generated; ones without a pointer; None
            where attention was not wanted.
        alternatives: the next best summaries, best first, where more than one was asked for.
        token_log_probabilities: the model's own log-probability of each of `tokens`, and of the end
            where it was written; they sum to `log_probability`.
        truncated: whether the document was longer than is read, and was cut.
        unknown_source: the places of the words of `source`, sentences on end, that the vocabulary
            lacks. With a pointer, the network can copy them.

    Example:

    ```python
    from keras_attention.applications.summarization import Summarizer

    documents, summaries = ["One dog runs. It barks.", "Two cats. They sleep."], ["dog", "cats"]
    summarizer = Summarizer.from_texts(documents, summaries, units=8)
    result = summarizer.summarize("A dog barks. It runs.", min_length=2, max_length=5)
    print(result.text, result.score, result.p_gen)
    print(result.sentence_weights)  # how much each word attends to each sentence
    ```
    """

    text: str
    score: float
    log_probability: float
    tokens: list[str]
    copied: np.ndarray = dataclasses.field(repr=False)
    unknown: np.ndarray = dataclasses.field(repr=False)
    source: list[list[str]] = dataclasses.field(repr=False)
    attention: np.ndarray | None = dataclasses.field(default=None, repr=False)
    p_gen: np.ndarray | None = dataclasses.field(default=None, repr=False)
    alternatives: tuple["Summary", ...] = ()
    token_log_probabilities: list[float] = dataclasses.field(default_factory=list, repr=False)
    truncated: bool = dataclasses.field(default=False, repr=False)
    unknown_source: tuple[int, ...] = dataclasses.field(default=(), repr=False)

    @property
    def note(self) -> str:
        """How many words of the document are unknown, and which; "" where all are known."""
        words = [word for sentence in self.source for word in sentence]
        return unknown_note(*unknown_words(words, self.unknown_source))

    @property
    def sentence_weights(self) -> np.ndarray:
        """The weights `(T, N)` of each sentence, the sums of those of its words."""
        ends = np.cumsum([len(sentence) for sentence in self.source])[:-1]
        parts = np.split(self.attention, ends, axis=1)
        return np.stack([part.sum(axis=1) for part in parts], axis=1)

    def plot(self, path: Path | str | None = None) -> Any:
        """Return a picture of where each word comes from, as a `matplotlib.figure.Figure`.

        Three panels, a row for each word of the summary: the words that were read the most, in the
        document's order; the sentences; and the probability with which the word was generated.

        Args:
            path: a new .png, .svg or .pdf to write.

        Raises:
            ValueError: where there is nothing to draw.
        """
        words, weights = self._most_read()
        if path is not None:
            check_picture(path)
        sentences = self.sentence_weights
        panels = [
            ("words read the most", weights, display_tokens(words)),
            ("sentences", sentences, [str(n + 1) for n in range(sentences.shape[1])]),
            ("p_gen", self.p_gen[:, None], [""]),
        ]
        labels_of_rows = display_tokens(self.tokens)
        widths = [max(matrix.shape[1], 1) for _, matrix, _ in panels]
        size = (2.5 + 0.25 * sum(widths), 1.8 + 0.25 * len(self.tokens))

        def draw(families: list[str]) -> Any:
            style = {"fontsize": 8, "family": families, "parse_math": False}
            figure = new_figure(figsize=size, layout="constrained")
            axes = figure.subplots(1, 3, width_ratios=widths, sharey=True)
            for axis, (title, matrix, labels) in zip(axes, panels, strict=True):
                axis.imshow(matrix, cmap="Blues", vmin=0, vmax=1, aspect="auto")
                axis.set_title(title, fontsize=9)
                axis.set_xticks(range(len(labels)), labels, rotation=90, **style)
            axes[0].set_yticks(range(len(self.tokens)), labels_of_rows, **style)
            return figure

        return written(make_figure(draw, [*panels[0][2], *labels_of_rows]), path)

    def maps(self) -> list[AttentionMap]:
        """Return where the words were read, and which were copied, as maps for a page."""
        if not self.can_be_drawn:
            return []
        sentences = [" ".join(sentence) for sentence in self.source]
        words = [word for sentence in self.source for word in sentence]
        places = [place for place, sentence in enumerate(self.source) for _ in sentence]
        source = Tokens(words, sentences, places, "sentences", list(self.unknown_source))
        written = Tokens(self.tokens)
        maps = [attention_map("attention", written, source, self.attention)]
        if (self.p_gen < 1).any():
            copied = {"copied, not generated": 1 - self.p_gen, "unknown words copied": self.copied}
            maps += [attention_map(name, [name], written, [row]) for name, row in copied.items()]
        return maps

    def show(self) -> str:
        """Return the words that were read the most, and their weights, as text for a terminal.

        A note below says which words of the document are unknown.
        """
        words, weights = self._most_read()
        shown = alignment_text(weights, words, self.tokens)
        return "\n\n".join(filter(None, [shown, self.note]))

    def _most_read(self) -> tuple[list[str], np.ndarray]:
        if not self.can_be_drawn:
            raise ValueError(
                "There is nothing to draw: a picture needs a network with attention, "
                "`return_attention=True`, and words in the document and its summary. "
                f"Received: {shown(self)}"
            )
        words = [word for sentence in self.source for word in sentence]
        chosen = np.sort(np.argsort(-self.attention.max(axis=0))[:WIDEST])
        return [words[place] for place in chosen], self.attention[:, chosen]

    @property
    def can_be_drawn(self) -> bool:
        """Whether there are attention weights of any word."""
        return bool(self.tokens) and self.attention is not None and bool(self.attention.any())


RESAMPLES = 1000
SENTENCE_END = re.compile("([.!?…][\"')\\]”’»]*)\\s+|([。！？][”’」』]*)\\s*(?=.)")
"""What ends a sentence of a summary, for ROUGE-Lsum: it needs no capital letter after it."""


def in_lines(text: str) -> str:
    """Return a text with each sentence on a line of its own."""
    return SENTENCE_END.sub(lambda found: f"{found[1] or found[2]}\n", text)


def evaluation_report(
    results: Sequence[Summary],
    references: Sequence[Sequence[str]],
    extracts: Mapping[str, Sequence[str]],
    reference_tokens: Sequence[Sequence[str]],
) -> dict[str, Any]:
    """Return ROUGE, and the shares of repeated, copied and unknown words, as JSON types."""
    texts = [result.text for result in results]
    lines = [[in_lines(text) for text in wanted] for wanted in references]
    exact = [text in wanted for text, wanted in zip(texts, references, strict=True)]
    return {
        "documents": len(results),
        **rouge(list(map(in_lines, texts)), lines, resamples=RESAMPLES),
        "signature": f"rouge-score {version('rouge-score')}, F-measure, stemmed, best reference, "
        "Lsum of sentences that . ! ? end, letters of all scripts",
        "exact_match": _percentage([exact]),
        "repeated_trigrams": repeated_ngrams([result.tokens for result in results]),
        "repeated_trigrams_of_references": repeated_ngrams(reference_tokens),
        "copied_unknown": _percentage([result.copied for result in results]),
        "in_source": _percentage([_in_source(result) for result in results]),
        "unknown": _percentage([result.unknown for result in results]),
        **{
            f"{name}_rouge": rouge(list(map(in_lines, found)), lines)
            for name, found in extracts.items()
        },
    }


def _in_source(result: Summary) -> np.ndarray:
    words = {word for sentence in result.source for word in sentence}
    return np.array([word in words for word in result.tokens], bool)


def _percentage(flags: list) -> float:
    joined = np.concatenate([np.zeros(0), *flags])
    return 100 * float(joined.mean()) if joined.size else 0.0


TOO_LONG = {"left_out": "left out as too long", "truncated": "of them cut short"}
"""What a table says of the counts that a report has where documents were too long."""


def table(report: dict[str, Any]) -> str:
    """Write a report for people."""
    count, others = report["lead"], (report["lead_rouge"], report["oracle_rouge"])
    names = "model", "95 % interval", f"lead-{count}", f"oracle-{count}"
    lines = [f"{report['documents']:,} documents of {report['data']}"]
    lines += [f"{report[key]:,} {words}" for key, words in TOO_LONG.items() if report.get(key)]
    lines.append("")
    lines.append(f"{'':<22} {names[0]:>8}  {names[1]:>14} {names[2]:>8} {names[3]:>8}")
    for name, key in (
        ("ROUGE-1", "rouge1"),
        ("ROUGE-2", "rouge2"),
        ("ROUGE-L", "rougeL"),
        ("ROUGE-Lsum", "rougeLsum"),
    ):
        interval = f"{report[f'{key}_low']:.2f} to {report[f'{key}_high']:.2f}"
        lead, oracle = (other[key] for other in others)
        lines.append(f"{name:<22} {report[key]:8.2f}  {interval:>14} {lead:8.2f} {oracle:8.2f}")
    for name, key in (
        ("exact match %", "exact_match"),
        ("repeated trigrams %", "repeated_trigrams"),
        ("  in the references %", "repeated_trigrams_of_references"),
        ("words of the source %", "in_source"),
        ("copied unknown words %", "copied_unknown"),
        ("unknown words %", "unknown"),
    ):
        lines.append(f"{name:<22} {report[key]:8.2f}")
    return "\n".join([*lines, "", f"beam size {report['beam_size']}; {report['signature']}"])
