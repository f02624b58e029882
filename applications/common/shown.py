"""Results that show themselves: words shaded by attention."""

import html
import math
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from keras_attention.visualization import ShadedTokens, plot_shaded, shaded_html, shaded_text

from .files import check_new_file, check_picture, output_file, replacing

HTML = (".html", ".htm")


class Shown:
    """Base of results that show rows of shaded words: in a notebook, in a terminal, as a file."""

    title = ""

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
        return shaded_text(self.shaded, color=color)

    def plot(self, path: Path | str | None = None) -> Any:
        """Return the answers as a `matplotlib.figure.Figure`, and write it where asked to.

        Args:
            path: a new picture; a page of HTML is written without a figure.

        Raises:
            ValueError: if the file exists, or its suffix is no format of pictures.
        """
        if path is not None:
            check_shaded(path)
        if path is not None and Path(path).suffix.lower() in HTML:
            with output_file(path) as file:
                file.write(shaded_html(self.shaded, title=self.title))
            return None
        return written(plot_shaded(self.shaded, title=self.title or None), path)

    def _repr_html_(self) -> str:
        return framed(shaded_html(self.shaded, title=self.title), f"{90 + 60 * len(self.shaded)}px")


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


def check_shaded(output: Path | str) -> None:
    """Refuse a file that shaded words cannot be written to.

    Raises:
        UserError: if it exists, has no folder, or a suffix that is neither HTML's nor a format of
            pictures.
    """
    if Path(output).suffix.lower() in HTML:
        check_new_file(output)
    else:
        check_picture(output, more=HTML)


def ranked_number(score: Any) -> float:
    """Return a score as a float: of NaN, which ranks nothing, minus infinity."""
    return -math.inf if math.isnan(score) else float(score)


class Searched:
    """A result of a search: it holds the next best ones, and shows its picture in a notebook."""

    @property
    def ranked(self) -> tuple[Any, ...]:
        """This one and its alternatives."""
        return (self, *self.alternatives)

    def _repr_png_(self) -> bytes | None:
        if not self.can_be_drawn:
            return None
        return self.plot()._repr_png_()
