"""Answers of a task with its attention, in one plain form: for pages and pictures."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_attention.visualization import (
    AXIS_LABELS,
    ShadedTokens,
    display_tokens,
    plot_alignment,
    plot_heads,
    plot_shaded,
)

from ..errors import UserError, check_choice, shown
from ..store.files import check_new_file, check_picture, output_file
from .results import HTML, framed

PAGE = Path(__file__).with_name("page.html")
PLACE = '<script id="data" type="application/json">null</script>'
MOST_WEIGHTS = 1_000_000
"""A map with more weights is sent as the mean of the heads, and if need be of the last layer."""
MEAN, LAST = ", mean of the heads", ", last layer"
"""`attention_map` adds these to the name of a map when it keeps no more than that of it."""


@dataclasses.dataclass(frozen=True)
class Tokens:
    """Labels along a side of a map, as people read them, and their words or sentences.

    Args:
        tokens: a label for each row or column.
        groups: what the tokens are parts of, such as words; none where they are not parts.
        group_of: of each token, the number of its group.
        unit: what the groups are, `"words"` or `"sentences"`.
        unknown: the indices of the tokens that the model's vocabulary lacks.
    """

    tokens: list[str]
    groups: list[str] = dataclasses.field(default_factory=list)
    group_of: list[int] = dataclasses.field(default_factory=list)
    unit: str = ""
    unknown: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class AttentionMap:
    """Attention weights: how much each row looked at each column.

    Args:
        name: of the attention, such as `"cross-attention"`.
        rows: what looked. A map with one row shades its columns.
        columns: what was looked at.
        weights: numbers from 0, as `[layer][head][row][column]`.
        layer, head: which are shown first; None for the mean of the heads.
        grouped: whether words are shown first, in place of their pieces.
    """

    name: str
    rows: Tokens
    columns: Tokens
    weights: list[list[list[list[float]]]]
    layer: int = -1
    head: int | None = None
    grouped: bool = False

    @property
    def kind(self) -> str:
        """The name, without what it says of heads and layers that were too much to keep."""
        return self.name.removesuffix(LAST).removesuffix(MEAN)

    @property
    def axis_labels(self) -> tuple[str, str]:
        """What the columns and the rows are called in a picture."""
        return ("attended to", "attending") if "self" in self.name else AXIS_LABELS

    def matrix(self, layer: int = -1, groups: bool = False) -> np.ndarray:
        """Return the weights `(heads, rows, columns)` of a layer.

        Args:
            layer: its number; -1 for the last.
            groups: whether to give the weights of words (or sentences) in place of those of tokens:
                a word is looked at by as much as all its pieces are, and looks as its pieces do in
                the mean.
        """
        weights = np.array(self.weights[layer])
        if groups and self.columns.groups:
            weights = weights @ np.eye(len(self.columns.groups))[self.columns.group_of]
        if groups and self.rows.groups:
            member = np.eye(len(self.rows.groups))[self.rows.group_of]
            weights = (member / np.maximum(member.sum(axis=0), 1)).T @ weights
        return weights


@dataclasses.dataclass(frozen=True)
class ExplainedAnswer:
    """One of the answers of a task.

    Args:
        text: the answer.
        score: what answers are ranked by; None where the task gives none.
        maps: what was attended to; none where it was the same as for the first answer.
        token_log_probabilities: of an answer that was written word by word, the model's own
            log-probability of each token, and of the end where it was written.
    """

    text: str
    score: float | None = None
    maps: list[AttentionMap] = dataclasses.field(default_factory=list)
    token_log_probabilities: list[float] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Answers of a task to a text, with its attention. A notebook shows it as a page to click.

    Args:
        task: the task, such as `"translation"`.
        inputs: the texts that were given, by their names.
        text: the answer, in a line.
        answers: the answers, best first.
        notes: what else the reader should know.
        model: a name of the model.

    Example:

    ```python
    from keras_attention.applications.translation import Translator

    found = Translator.from_preset("dates").explain("4 juin 1999", beam_size=2)
    print(found.text, [answer.text for answer in found.answers])
    found.plot("pieces.png", groups=False)  # pieces in place of words
    found.save("page.html")
    ```
    """

    task: str
    inputs: dict[str, str]
    text: str
    answers: list[ExplainedAnswer]
    notes: list[str] = dataclasses.field(default_factory=list)
    model: str = ""

    def to_json(self) -> str:
        """Return all of it as JSON: what `keras-attention serve` answers."""
        try:
            return json.dumps(self, default=vars, ensure_ascii=False, allow_nan=False)
        except ValueError:
            raise ValueError(
                "The model gave scores or weights that are no finite numbers: train it anew. "
                f"Received: {[answer.score for answer in self.answers]}"
            ) from None

    def save(self, path: Path | str) -> None:
        """Write a page of HTML, which needs no server and no other file.

        Args:
            path: a new file, .html or .htm.

        Raises:
            ValueError: where the file exists or has another suffix.
        """
        check_page(path)
        with output_file(path) as file:
            file.write(page([self]))

    def plot(
        self,
        path: Path | str | None = None,
        *,
        answer: int = 0,
        attention: int | str = 0,
        layer: int | None = None,
        head: int | str | None = None,
        groups: bool | None = None,
    ) -> Any:
        """Return a picture of a map as a `matplotlib.figure.Figure`, and write it where asked to.

        Args:
            path: a new .png, .svg or .pdf.
            answer: the place of the answer.
            attention: the place, the name or the kind of its map.
            layer: the layer. Default: the one that the map names, with the head that it names.
            head: its head; None for the mean of all, `"all"` for a sheet with every head.
            groups: whether to draw words in place of their pieces, or sentences in place of their
                words. Default: as the map says, which shows whole words, but not sentences, nor the
                one word that a text such as a date is.

        Raises:
            ValueError: where there is no such map, layer or head, or the file exists.
        """
        if path is not None:
            check_picture(path)
        check_choice("answer", answer, range(len(self.answers)))
        maps = self.answers[answer].maps or self.answers[0].maps
        if not maps:
            raise ValueError(
                "There is nothing to draw: a picture needs a model with attention and texts with "
                f"words. Received: {shown(self.inputs)}"
            )
        # Of maps of one kind or name, the first is meant.
        named = {each.kind: each for each in reversed(maps)}
        named |= {each.name: each for each in reversed(maps)}
        check_choice("attention", attention, [*range(len(maps)), *named])
        found = maps[attention] if isinstance(attention, int) else named[attention]
        if layer is None:
            layer, head = found.layer, found.head if head is None else head
        _check_kept(found, layer, head)
        layers, heads = len(found.weights), len(found.weights[0])
        check_choice("layer", layer, range(-layers, layers))
        check_choice("head", head, [None, "all", *range(heads)])
        if groups is None:
            groups = found.grouped
        weights = found.matrix(layer, groups)
        rows, columns = (
            (groups and each.groups) or each.tokens for each in (found.rows, found.columns)
        )
        if head == "all":
            return plot_heads(
                weights, columns, rows, path, title=found.name, axis_labels=found.axis_labels
            )
        chosen = weights.mean(axis=0) if head is None else weights[head]
        if len(rows) > 1:
            return plot_alignment(chosen, columns, rows, path, axis_labels=found.axis_labels)
        return plot_shaded([ShadedTokens(columns, chosen[0], rows[0])], path, title=self.text)

    def _repr_html_(self) -> str:
        return framed(page([self]), "40em")


def _check_kept(found: AttentionMap, layer: int, head: int | str | None) -> None:
    """Refuse a layer or head of a map that was too large to keep them."""
    for what, mark, value, usual in (("head", MEAN, head, None), ("layer", LAST, layer, -1)):
        if mark in found.name and value != usual:
            raise ValueError(
                f"A map with more than {MOST_WEIGHTS:,} weights has no single {what}s: leave "
                f"`{what}` out, or give a shorter text. Received: {what}={value!r} of "
                f"{found.name!r}"
            )


def attention_map(
    name: str,
    rows: Tokens | Sequence[str],
    columns: Tokens | Sequence[str],
    weights: Any,
    layer: int = -1,
    head: int | None = None,
) -> AttentionMap:
    """Return a map of weights `(rows, columns)` or `(layers, heads, rows, columns)`.

    Its `layer` and `head` are shown first, where the map keeps them.
    """
    sides = [
        each if isinstance(each, Tokens) else Tokens(display_tokens(each))
        for each in (rows, columns)
    ]
    weights = np.asarray(weights, "float64")
    weights = weights.reshape((1,) * (4 - weights.ndim) + weights.shape)
    expected = tuple(len(side.tokens) for side in sides)
    if weights.shape[2:] != expected:
        raise ValueError(
            f"`weights` should have a row and a column for each token, {expected}. "
            f"Received: shape {weights.shape}"
        )
    if weights.size > MOST_WEIGHTS and weights.shape[1] > 1:
        name, weights, head = f"{name}{MEAN}", weights.mean(axis=1, keepdims=True), None
    if weights.size > MOST_WEIGHTS and weights.shape[0] > 1:
        name, weights, layer = f"{name}{LAST}", weights[-1:], -1
    # Of a text that is one word, only its pieces tell anything.
    grouped = all(each.unit in ("", "words") and len(each.groups) != 1 for each in sides)
    return AttentionMap(name, *sides, np.round(weights, 4).tolist(), layer, head, grouped)


def page(explanations: Sequence[Explanation] | None = None) -> str:
    """Return the page: of explanations that it holds, or for a server that it asks."""
    template = PAGE.read_text(encoding="utf-8")
    if explanations is None:
        return template
    held = f"[{','.join(each.to_json() for each in explanations)}]"
    # Inside of a script nothing but `<` could end it.
    return template.replace(PLACE, PLACE.replace("null", held.replace("<", "\\u003c")))


def is_page(path: Path | str) -> bool:
    """Whether a file is a page, by its suffix."""
    return Path(path).suffix.lower() in HTML


def check_drawn(path: Path | str) -> None:
    """Refuse a file that neither a page nor a picture can be written to."""
    if is_page(path):
        check_new_file(path)
    else:
        check_picture(path, more=HTML)


def check_page(path: Path | str) -> None:
    """Refuse a file that a page cannot be written to."""
    if not is_page(path):
        raise UserError(f"a page is a file {' or '.join(HTML)}. Received: {path}.")
    check_new_file(path)
