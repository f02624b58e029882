"""Tokens shaded by their weights: for a terminal, as HTML and drawn by matplotlib."""

import functools
import html
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .alignment import check_maximum, check_values
from .colors import TERMINAL, background, colors_of, full_weight
from .figures import display_tokens, extents, make_figure, new_figure, shape_right_to_left

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

_PAGE = """\
<!DOCTYPE html>
<html>
<head>
<meta charset="utf-8">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
body {{ font-family: sans-serif; line-height: 1.9; max-width: 60em; margin: 2em auto; }}
span {{ border-radius: 0.2em; padding: 0.1em 0.15em; }}
b {{ margin-right: 0.6em; }}
</style>
</head>
<body>
<h1>{title}</h1>
{rows}
</body>
</html>
"""
# Lengths in inches.
_MARGIN, _SPACE, _LINE, _BETWEEN_ROWS, _INDENT = 0.15, 0.08, 0.26, 0.1, 0.3


@dataclass(frozen=True)
class ShadedTokens:
    """One line of a picture: tokens, and how much weight is on each.

    Attributes:
        tokens: Words or SentencePiece pieces, shown as in
            [`display_tokens`][keras_attention.visualization.display_tokens].
        weights: A weight for each token, not negative: attention, or an inner attention's gates.
        label: What stands before them, such as a score or a class.

    Raises:
        ValueError: If the weights do not fit the tokens, or are negative or not finite.

    Example:

    >>> row = ShadedTokens(["It", "opened", "in", "1931"], [0.0, 0.3, 0.1, 0.6], label="0.84")
    >>> row.labels[int(row.weights.argmax())]
    '1931'
    """

    tokens: Sequence[str]
    weights: Sequence[float] | np.ndarray
    label: str = ""

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights, dtype="float64")
        if weights.shape != (len(self.tokens),):
            raise ValueError(
                "`weights` must have one number for each token. "
                f"Received: {len(self.tokens)} tokens and weights of shape {weights.shape}"
            )
        check_values("weights", weights)
        object.__setattr__(self, "tokens", tuple(self.tokens))
        object.__setattr__(self, "weights", weights)

    @property
    def labels(self) -> list[str]:
        """The tokens in readable form."""
        return display_tokens(self.tokens)


def shaded_text(
    rows: Sequence[ShadedTokens], maximum: float | None = None, color: bool = True
) -> str:
    """Return lines of tokens for a terminal, each on a background as strong as its weight.

    Args:
        rows: A list of `ShadedTokens`, a line each.
        maximum: The weight of the strongest colour; `None` for the largest there is, but at least
            three times the mean of a row, so that weights that are nearly equal are all pale.
        color: Whether to write ANSI escapes, for 256 colours; else the weights, in brackets.

    Raises:
        ValueError: If `rows` is something else or `maximum` is not positive.

    Example:

    >>> row = ShadedTokens(["It", "opened", "in", "1931"], [0.0, 0.3, 0.1, 0.6], label="0.84")
    >>> print(shaded_text([row], color=False))
    0.84  It[0.00] opened[0.30] in[0.10] 1931[0.60]
    """
    lines = []
    for row, levels in zip(rows, _shades(rows, maximum), strict=True):
        if color:
            words = list(map(_coloured, row.labels, levels))
        else:
            words = [f"{label}[{w:.2f}]" for label, w in zip(row.labels, row.weights, strict=True)]
        lines.append((f"{row.label}  " if row.label else "") + " ".join(words))
    return "\n".join(lines)


def shaded_html(
    rows: Sequence[ShadedTokens],
    title: str = "Attention",
    maximum: float | None = None,
    page: bool = True,
) -> str:
    """Return tokens as HTML, each on a background as strong as its weight.

    The weight itself appears where the pointer rests on a token. The page needs no other file.

    Args:
        rows: A list of `ShadedTokens`, a paragraph each.
        title: The page's title and heading.
        maximum: As in `shaded_text`.
        page: Whether to write a whole page; else the title and the rows, for a notebook.

    Raises:
        ValueError: As `shaded_text`.

    Example:

    >>> page = shaded_html([ShadedTokens(["a", "<b>"], [0.2, 0.8])], title="Two tokens")
    >>> "&lt;b&gt;" in page
    True
    """
    paragraphs = []
    for row, levels in zip(rows, _shades(rows, maximum), strict=True):
        label = f"<b>{html.escape(row.label)}</b>" if row.label else ""
        words = (
            f'<span style="{background(level) if level > 0 else ""}" title="{weight:.4f}">'
            f"{html.escape(word)}</span>"
            for word, weight, level in zip(row.labels, row.weights, levels, strict=True)
        )
        paragraphs.append(f'<p dir="auto">{label}{" ".join(words)}</p>')
    if not page:
        return "\n".join([f"<p><b>{html.escape(title)}</b></p>", *paragraphs])
    return _PAGE.format(title=html.escape(title), rows="\n".join(paragraphs))


def plot_shaded(
    rows: Sequence[ShadedTokens],
    path: str | os.PathLike | None = None,
    *,
    title: str | None = None,
    overwrite: bool = False,
    maximum: float | None = None,
    width: float = 8.0,
    colormap: str | None = None,
    dpi: int = 150,
) -> "Figure":
    """Draw tokens, shaded by their weights, as lines of text in a `matplotlib.figure.Figure`.

    Args:
        rows: A list of `ShadedTokens`; each begins a new line, and long ones are broken.
        path, title, overwrite, dpi: As in
            [`plot_alignment`][keras_attention.visualization.plot_alignment].
        maximum: As in `shaded_text`.
        width: The longest line, in inches.
        colormap: As in `plot_alignment`; the picture uses its lighter half.

    Raises:
        ValueError, FileExistsError: As `plot_alignment` and `shaded_text`, and if `rows` is empty.

    Example:

    >>> row = ShadedTokens(["It", "opened", "in", "1931"], [0.0, 0.3, 0.1, 0.6], label="0.84")
    >>> figure = plot_shaded([row], title="when was it opened ?")
    """
    levels = _shades(rows, maximum)
    if not rows:
        raise ValueError("`rows` must have at least one line of tokens. Received: none")
    lines = [[row.label, *row.labels] for row in rows]
    lines = [[shape_right_to_left(word) for word in line] for line in lines]
    title = shape_right_to_left(title or "")
    draw = functools.partial(_draw, lines, levels, title, width, colormap, dpi)
    return make_figure(draw, [title, *(word for line in lines for word in line)], path, overwrite)


def _shades(rows: Sequence[ShadedTokens], maximum: float | None) -> list[np.ndarray]:
    """Return the shades of each row, from 0 to 1 at `maximum`, or else as `full_weight` says."""
    if isinstance(rows, ShadedTokens) or not all(isinstance(row, ShadedTokens) for row in rows):
        raise ValueError(f"`rows` must be a list of ShadedTokens. Received: {type(rows).__name__}")
    maximum = check_maximum(maximum, full_weight([np.asarray(row.weights) for row in rows]))
    return [np.minimum(np.asarray(row.weights) / maximum, 1.0) for row in rows]


def _coloured(label: str, level: float) -> str:
    step = round(float(level) * len(TERMINAL))
    return f"\x1b[30;48;5;{TERMINAL[step - 1]}m{label}\x1b[0m" if step else label


def _draw(
    lines: list[list[str]],
    levels: list[np.ndarray],
    title: str,
    width: float,
    colormap: str | None,
    dpi: int,
    families: list[str],
) -> "Figure":
    figure = new_figure(figsize=(width, 1), dpi=dpi)
    colours = colors_of(colormap)
    style: dict[str, Any] = {"family": families, "parse_math": False}
    # Positions are in inches, and negative until the height is known.
    style |= {"fontsize": 10, "va": "center_baseline", "transform": figure.dpi_scale_trans}
    down = _MARGIN + _LINE / 2
    if title:
        figure.text(_MARGIN, -down, title, weight="bold", **style)
        down += _LINE + _BETWEEN_ROWS
    for words, shade in zip(lines, levels, strict=True):
        texts = [figure.text(0, 0, words[0], weight="bold", **style)] if words[0] else []
        for word, level in zip(words[1:], shade, strict=True):
            colour = colours(float(level) / 2) if level > 0 else "none"
            box = {"boxstyle": "round,pad=0.12", "facecolor": colour, "edgecolor": "none"}
            texts.append(figure.text(0, 0, word, bbox=box, **style))
        down = _place_row(texts, figure, width, down) + _LINE + _BETWEEN_ROWS
    height = down - _BETWEEN_ROWS - _LINE / 2 + _MARGIN
    right = max((box.x1 for box in extents(figure.texts, figure)), default=_MARGIN)
    figure.set_size_inches(right + _MARGIN, height)
    for text in figure.texts:
        text.set_y(text.get_position()[1] + height)
    return figure


def _place_row(texts: list["Text"], figure: "Figure", width: float, down: float) -> float:
    """Break a row of texts into lines; return how far down the last one is."""
    left = _MARGIN
    for text, box in zip(texts, extents(texts, figure), strict=True):
        if left > _MARGIN and left + box.width > width - _MARGIN:
            left, down = _MARGIN + _INDENT, down + _LINE
        text.set_position((left, -down))
        left += box.width + _SPACE
    return down
