"""Shaded tokens as a picture, drawn with matplotlib's objects and no global state."""

import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras_attention.visualization import fonts
from keras_attention.visualization.figures import checked_path, extents, write_figure
from keras_attention.visualization.shading import ShadedTokens, shades

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Lengths in inches.
_MARGIN, _SPACE, _LINE, _BETWEEN_ROWS, _INDENT = 0.15, 0.08, 0.26, 0.1, 0.3


def plot_shaded(
    rows: Sequence[ShadedTokens],
    path: str | os.PathLike | None = None,
    *,
    title: str | None = None,
    overwrite: bool = False,
    maximum: float | None = None,
    width: float = 8.0,
    colormap: str = "Oranges",
    dpi: int = 150,
) -> "Figure":
    """Draw tokens, each on a background as strong as its weight, in lines like a text's.

    Fonts are chosen for the characters, as in
    [`plot_alignment`][keras_attention.visualization.plot_alignment].

    Args:
        rows: A list of `ShadedTokens`; each begins a new line, and long ones are broken.
        path: File to write; its suffix says the format (`.png`, `.svg`, `.pdf`, ...). `None` writes
            nothing.
        title: Line above the picture.
        overwrite: Whether an existing file is replaced.
        maximum: The weight of the strongest colour; `None` for the largest there is.
        width: The longest line, in inches.
        colormap: Name of a colour map of matplotlib, of which the lighter two thirds are used, so
            that the letters stay readable.
        dpi: Pixels to the inch in formats made of pixels.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ValueError: If `rows` is empty or something else, or the path's suffix is no format of
            matplotlib.
        FileExistsError: If the file exists and `overwrite` is False.

    Example:

    ```python
    from keras_attention.visualization import ShadedTokens, plot_shaded

    row = ShadedTokens(["It", "opened", "in", "1931"], [0.0, 0.3, 0.1, 0.6], label="0.84")
    figure = plot_shaded([row], title="when was it opened ?")
    ```
    """
    levels = shades(rows, maximum)
    if not rows:
        raise ValueError("`rows` must have at least one line of tokens. Received: none")
    if path is not None:
        path = checked_path(path, overwrite)
    lines = [[row.label, *row.labels] for row in rows]
    lines = [[fonts.shape_right_to_left(word) for word in line] for line in lines]
    title = fonts.shape_right_to_left(title or "")
    families = fonts.choose_families([title, *(word for line in lines for word in line)])
    with warnings.catch_warnings():
        # choose_families has said it already, once and with the remedy.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = _draw(lines, levels, title, families, width, colormap, dpi)
        if path is not None:
            write_figure(figure, path, overwrite)
    return figure


def _draw(lines, levels, title, families, width, colormap, dpi):
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 1), dpi=dpi)
    FigureCanvasAgg(figure)
    colours = matplotlib.colormaps[colormap]
    style = {"family": families, "fontsize": 10, "parse_math": False, "va": "center_baseline"}
    placed = []  # (text, inches from the left, inches from the top)
    down = _MARGIN + _LINE / 2
    if title:
        placed.append((figure.text(0, 0, title, weight="bold", **style), _MARGIN, down))
        down += _LINE + _BETWEEN_ROWS
    for words, shade in zip(lines, levels, strict=True):
        texts = [figure.text(0, 0, words[0], weight="bold", **style)] if words[0] else []
        texts += [
            figure.text(0, 0, word, bbox=_box(colours, level), **style)
            for word, level in zip(words[1:], shade, strict=True)
        ]
        down = _place_row(texts, figure, width, down, placed) + _LINE + _BETWEEN_ROWS
    height = down - _BETWEEN_ROWS - _LINE / 2 + _MARGIN
    boxes = extents([text for text, _, _ in placed], figure)
    right = max(left + box.width for (_, left, _), box in zip(placed, boxes, strict=True))
    total = right + _MARGIN
    figure.set_size_inches(total, height)
    for text, left, top in placed:
        text.set_position((left / total, 1 - top / height))
    return figure


def _box(colours, level):
    colour = colours(float(level) * 2 / 3) if level > 0 else "none"
    return {"boxstyle": "round,pad=0.12", "facecolor": colour, "edgecolor": "none"}


def _place_row(texts, figure, width, down, placed):
    """Break a row of texts into lines; return how far down the last one is."""
    left = _MARGIN
    for text, box in zip(texts, extents(texts, figure), strict=True):
        if left > _MARGIN and left + box.width > width - _MARGIN:
            left, down = _MARGIN + _INDENT, down + _LINE
        placed.append((text, left, down))
        left += box.width + _SPACE
    return down
