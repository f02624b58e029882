"""Results that show themselves: words shaded by attention, and lists of results."""

import base64
import html
import math
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from keras_attention.visualization import ShadedTokens, plot_shaded, shaded_html, shaded_text

from ..store.files import check_picture, replacing

HTML = (".html", ".htm")


class Shown:
    """Base of results that show rows of shaded words: in a notebook, a terminal or a picture."""

    title = note = ""

    @property
    def shaded(self) -> list[ShadedTokens]:
        """The answers as rows of words, shaded by their attention; their labels are the scores."""
        raise NotImplementedError

    def show(self, color: bool | None = None) -> str:
        """Return the answers as text for a terminal.

        Args:
            color: whether to shade words by colours; None for a terminal that shows them. Without,
                the weight follows each word in brackets.
        """
        if color is None:
            color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        return "\n".join(filter(None, [shaded_text(self.shaded, color=color), self.note]))

    def plot(self, path: Path | str | None = None) -> Any:
        """Return the answers as a `matplotlib.figure.Figure`, and write it where asked to.

        Args:
            path: a new picture. The task's `explain` returns what can be saved as a page of HTML.

        Raises:
            ValueError: if the file exists, or its suffix is no format of pictures.
        """
        if path is not None:
            check_picture(path)
        return written(plot_shaded(self.shaded, title=self.title or None), path)

    def _repr_html_(self) -> str:
        return shaded_html(self.shaded, title=self.title, page=False) + noted(self.note)


def noted(note: str) -> str:
    """Return a note as HTML, "" of none."""
    return f"<p><small>{html.escape(note)}</small></p>" if note else ""


class Results(list):
    """A list of results; a notebook shows the texts, each with its map to unfold.

    It is a list like any other, and slices are results too: `results[:3]` shows three.
    """

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        return Results(found) if isinstance(place, slice) else found

    def _repr_html_(self) -> str:
        rows = [f"<li>{_in_a_list(result)}</li>" for result in self[:MOST_SHOWN]]
        left = len(self) - len(rows)
        more = f"<p>… and {left:,} more: results[{len(rows)}:]</p>" if left else ""
        return f'<ol start="0">{"".join(rows)}</ol>{more}'


MOST_SHOWN = 20
"""The most results of a list that a notebook shows: a map takes some kilobytes."""


def _in_a_list(result: Any) -> str:
    if result is None:
        return "<i>skipped: the text is too long</i>"
    if isinstance(result, Searched):
        text = html.escape(result.text) or "<i>(nothing)</i>"
        picture = result.picture
        folded = f"<details><summary>Attention</summary>{picture}</details>" if picture else ""
        return f'<span dir="auto">{text}</span>{noted(result.note)}{folded}'
    return result._repr_html_()


def framed(page: str, height: str) -> str:
    """Return a page as a frame of a notebook."""
    content = html.escape(page, quote=True)
    return f'<iframe srcdoc="{content}" style="width: 100%; height: {height}; border: 0"></iframe>'


def written(figure: Any, path: Path | str | None) -> Any:
    """Write a figure to a new picture, whole or not at all, unless the path is None; return it."""
    if path is not None:
        with replacing(path, new=True) as temporary, warnings.catch_warnings():
            # The figure was made with a warning that names the remedy.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            figure.savefig(temporary, format=Path(path).suffix[1:].lower(), dpi=figure.dpi)
    return figure


def ranked_number(score: Any) -> float:
    """Return a score as a float: of NaN, which ranks nothing, minus infinity."""
    return -math.inf if math.isnan(score) else float(score)


class Searched:
    """A result of a search: it holds the next best ones. A notebook shows its text and picture."""

    note = ""

    @property
    def ranked(self) -> tuple[Any, ...]:
        """This one and its alternatives."""
        return (self, *self.alternatives)

    def _repr_png_(self) -> bytes | None:
        return self.plot()._repr_png_() if self.can_be_drawn else None

    @property
    def picture(self) -> str:
        """The picture as HTML, "" where there is nothing to draw."""
        drawn = self._repr_png_()
        if drawn is None:
            return ""
        png = base64.b64encode(drawn).decode()
        # White under the labels, which are black: a notebook may be dark.
        style = "max-width: 100%; background: #fff"
        return f'<img alt="Attention weights" style="{style}" src="data:image/png;base64,{png}">'

    def _repr_html_(self) -> str:
        text = html.escape(self.text) or "<i>(nothing)</i>"
        return f'<p dir="auto"><b>{text}</b></p>{noted(self.note)}{self.picture}'
