"""Tagged sentences, which show themselves: coloured spans, and tables of alternatives."""

import dataclasses
import html
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_attention.visualization import ShadedTokens, display_tokens

from ..show.explanation import AttentionMap, ExplainedAnswer, Explanation, Tokens, attention_map
from ..show.results import Shown, noted
from ..show.unknown import unknown_note
from . import metrics

COLORS = ("#9ecae1", "#a1d99b", "#fdae6b", "#bcbddc", "#fc9272", "#c7e9c0", "#fdd0a2", "#d9d9d9")
FEW = 4
"""The most tags of a word that a table names."""


@dataclasses.dataclass(frozen=True)
class Span:
    """Words that belong together, such as a name.

    Args:
        label: what they are, such as `"PER"`.
        text: the text from the first word to the last.
        start, end: its first character, and the one after its last.
        first, last: the index of its first word, and the one after its last.
        probability: of the tags of its words, the smallest.
    """

    label: str
    text: str
    start: int
    end: int
    first: int
    last: int
    probability: float


@dataclasses.dataclass(frozen=True, eq=False)
class Tagged(Shown):
    """A sentence whose words have tags. In a notebook its spans are coloured.

    Args:
        text: the text; of words that were given, the words with spaces between.
        words: its words.
        tags: the tag of each.
        offsets: of each word the first character, and the one after its last.
        names: the tags that there are.
        probabilities: of each tag at each word, `(words, tags)`.
        alternatives: the best sequences of tags, this one first, and their probabilities.
        predicate: the index of the predicate, of a sentence with roles.
        maps: what the words attended to, where that was asked for and the network attends.
        unknown: the indices of the words that the vocabulary lacks. Where the network reads
            letters, it reads those of these words too.

    Example:

    ```python
    from keras_attention.applications.tagging import TokenClassifier

    words = [["Anna", "lives", "in", "Rome"], ["Rome", "likes", "Anna"]] * 20
    tags = [["B-PER", "O", "O", "B-LOC"], ["B-LOC", "O", "B-PER"]] * 20
    tagger = TokenClassifier.from_texts(words, tags, units=8)
    tagger.fit(words, tags, epochs=4, verbose=0)
    result = tagger.tag("Anna likes Rome")
    print([(span.label, span.text) for span in result.spans])
    print(result.show(color=False))  # a word a line: its tag, and the likeliest ones
    ```
    """

    text: str
    words: list[str]
    tags: list[str]
    offsets: list[tuple[int, int]]
    names: list[str] = dataclasses.field(repr=False)
    probabilities: np.ndarray = dataclasses.field(repr=False)
    alternatives: list[tuple[list[str], float]] = dataclasses.field(default_factory=list)
    predicate: int | None = None
    maps: list[AttentionMap] = dataclasses.field(default_factory=list, repr=False)
    unknown: tuple[int, ...] = dataclasses.field(default=(), repr=False)

    @property
    def note(self) -> str:
        """How many words are unknown to the model, and which; "" where all are known."""
        return unknown_note(len(self.words), [self.words[index] for index in self.unknown])

    @property
    def spans(self) -> list[Span]:
        """The spans that the tags mark; none where tags mark no spans."""
        if not metrics.are_of_spans(self.names):
            return []
        found = []
        for label, first, last in metrics.spans_of(self.tags):
            start, end = self.offsets[first][0], self.offsets[last - 1][1]
            likely = min(self.of_tags[first:last])
            found.append(Span(label, self.text[start:end], start, end, first, last, likely))
        return found

    @property
    def of_tags(self) -> list[float]:
        """The probability of the tag of each word."""
        index = {name: place for place, name in enumerate(self.names)}
        pairs = zip(self.probabilities, self.tags, strict=True)
        return [float(row[index[tag]]) for row, tag in pairs]

    @property
    def summary(self) -> str:
        """The spans in one line, or the words with their tags."""
        if metrics.are_of_spans(self.names):
            named = [f"{span.text} [{span.label}]" for span in self.spans]
            return ", ".join(named) or "no spans"
        return " ".join(f"{word}/{tag}" for word, tag in zip(self.words, self.tags, strict=True))

    @property
    def shaded(self) -> list[ShadedTokens]:
        """The words with their tags, shaded by how sure the tags are."""
        pairs = zip(self.words, self.tags, strict=True)
        labels = [word if tag == metrics.OUTSIDE else f"{word} [{tag}]" for word, tag in pairs]
        found = zip(self.tags, self.of_tags, strict=True)
        sure = [0.0 if tag == metrics.OUTSIDE else p for tag, p in found]
        return [ShadedTokens(labels, np.array(sure))]

    title = summary

    def likeliest(self, word: int, count: int = FEW) -> list[tuple[str, float]]:
        """Return the likeliest tags of a word, and their probabilities."""
        row = self.probabilities[word]
        order = np.argsort(-row, kind="stable")[:count]
        return [(self.names[place], float(row[place])) for place in order]

    def show(self, color: bool | None = None) -> str:
        """Return a line for each word: its tag, and the likeliest tags, for a terminal.

        Args:
            color: unused; results of other tasks are shaded by colours.
        """
        width = max([4, *map(len, self.words)])
        lines = [self.summary]
        for place, (word, tag) in enumerate(zip(self.words, self.tags, strict=True)):
            few = "  ".join(f"{name} {p:.3f}" for name, p in self.likeliest(place))
            mark = "*" if place == self.predicate else " "
            lines.append(f"{mark}{word:<{width}}  {tag:<10}  {few}")
        for tags, probability in self.alternatives[1:]:
            lines.append(f"{probability:.3f}  {' '.join(tags)}")
        return "\n".join([*lines, *filter(None, [self.note])])

    def as_json(self) -> dict[str, Any]:
        """Return the words, tags, offsets, probabilities and spans as JSON types."""
        found = {"text": self.text, "words": self.words, "tags": self.tags}
        found["offsets"] = [list(pair) for pair in self.offsets]
        found["probabilities"] = [round(each, 6) for each in self.of_tags]
        if metrics.are_of_spans(self.names):
            names = ("label", "text", "start", "end", "probability")
            found["spans"] = [{name: getattr(s, name) for name in names} for s in self.spans]
        if self.predicate is not None:
            found["predicate"] = self.predicate
        if self.unknown:
            found["unknown"] = [self.words[index] for index in self.unknown]
        return found

    def explanation(self, inputs: dict[str, str]) -> Explanation:
        """Return the best sequences of tags and the attention, for a page."""
        said = [(self.summary, None)]
        if self.alternatives:
            said = [(" ".join(tags), p) for tags, p in self.alternatives]
            said[0] = (self.summary, said[0][1])
        answers = [ExplainedAnswer(text, p) for text, p in said]
        answers[0] = dataclasses.replace(answers[0], maps=[*self._sure(), *self.maps])
        notes = [self.note] if self.note else []
        return Explanation("tagging", inputs, self.summary, answers, notes)

    def _sure(self) -> list[AttentionMap]:
        """Return how sure the tags are as a map of one row."""
        if not self.words:
            return []
        shaded = self.shaded[0]
        columns = Tokens(display_tokens(shaded.tokens), unknown=list(self.unknown))
        return [attention_map("tags", ["tags"], columns, [shaded.weights])]

    def plot(self, path: Path | str | None = None) -> Any:
        if not self.words:
            raise ValueError("A picture needs words. Received: a text without any")
        return super().plot(path)

    def _repr_html_(self) -> str:
        pieces, at = [], 0
        kinds = metrics.kinds_of(self.names)
        if metrics.are_of_spans(self.names):
            for span in self.spans:
                color = COLORS[kinds.index(span.label) % len(COLORS)]
                pieces.append(html.escape(self.text[at : span.start]))
                pieces.append(_mark(span.text, span.label, color, span.probability))
                at = span.end
            pieces.append(html.escape(self.text[at:]))
        else:
            for word, tag, p in zip(self.words, self.tags, self.of_tags, strict=True):
                color = COLORS[self.names.index(tag) % len(COLORS)]
                pieces.append(_mark(word, tag, color, p) + " ")
        table = "".join(map(self._row, range(len(self.words))))
        folded = f"<details><summary>Probabilities</summary><table>{table}</table></details>"
        text = f'<p dir="auto" style="line-height: 2.2">{"".join(pieces)}</p>'
        return text + noted(self.note) + folded

    def _row(self, word: int) -> str:
        cells = [f"{html.escape(name)} {p:.3f}" for name, p in self.likeliest(word)]
        cells = [f"<td>{cell}</td>" for cell in cells]
        return f"<tr><th>{html.escape(self.words[word])}</th>{''.join(cells)}</tr>"


def _mark(text: str, label: str, color: str, probability: float) -> str:
    style = f"background: {color}; color: #000; padding: 0.2em 0.3em; border-radius: 0.3em"
    label = f'<b style="font-size: 0.7em; margin-left: 0.4em">{html.escape(label)}</b>'
    title = f"probability {probability:.3f}"
    return f'<mark style="{style}" title="{title}">{html.escape(text)}{label}</mark>'


def table(report: dict[str, Any]) -> str:
    """Return the figures of a set as a table for people."""
    lines = [f"{report['data']}: {report['sentences']:,} sentences, {report['words']:,} words"]
    for name, words in metrics.FIGURES.items():
        if name in report:
            lines.append(f"{words:<18} {report[name]:.4f}")
    for kind, each in report.get("types", {}).items():
        figures = " ".join(f"{name} {each[name]:.4f}" for name in ("f1", "precision", "recall"))
        lines.append(f"  {kind:<16} {figures}  ({each['spans']:,} spans)")
    if report.get("broken"):
        lines.append(f"spans that began with I- or E-: {report['broken']:,}")
    return "\n".join([*lines, report["signature"]])


def alternatives_of(
    paths: np.ndarray, likelihoods: np.ndarray, names: Sequence[str], count: int
) -> list[tuple[list[str], float]]:
    """Return the best sequences of tags of a sentence of `count` words, and their probabilities."""
    found = []
    for path, value in zip(paths, likelihoods, strict=True):
        if np.isfinite(value):
            found.append(([names[tag] for tag in path[:count]], math.exp(value)))
    return found
