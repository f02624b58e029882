"""All heads of a layer of attention, side by side in one picture."""

import functools
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .alignment import check_maximum, check_weights, labels_of
from .figures import make_figure, new_figure, shape_right_to_left

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Lengths in inches.
_CELL, _SMALLEST_PANEL, _LARGEST_PANEL, _LABELS = 0.2, 1.2, 4.0, 1.0
_POINTS, _FONT = 72, 7


def plot_heads(
    attention: Any,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    path: str | os.PathLike | None = None,
    *,
    title: str | None = None,
    overwrite: bool = False,
    maximum: float | None = None,
    colormap: str = "bone_r",
    dpi: int = 150,
) -> "Figure":
    """Draw all heads of a layer in one `matplotlib.figure.Figure`, up to four to a row.

    Args:
        attention: Weights of shape `(H, T, S)`: of each head, counted from 0, a row for each target
            token.
        source_tokens: The `S` source tokens; of self-attention the tokens themselves.
        target_tokens: The `T` target tokens.
        path, title, overwrite, maximum, colormap, dpi: As in
            [`plot_alignment`][keras_attention.visualization.plot_alignment], for all heads.

    Raises:
        ValueError, FileExistsError: As `plot_alignment`, and where the weights have no heads.

    Example:

    >>> from keras_attention import MultiHeadAttention
    >>> layer = MultiHeadAttention(num_heads=4, key_dim=2)
    >>> states = np.random.normal(size=(1, 3, 8)).astype("float32")
    >>> _, weights = layer(states, states, return_attention_scores=True)
    >>> words = ["the", "dog", "runs"]
    >>> figure = plot_heads(np.array(weights[0]), words, words, title="Four heads")
    """
    heads = np.asarray(attention, dtype="float64")
    if heads.ndim != 3 or not len(heads):
        raise ValueError(
            "`attention` must be the weights of heads, of shape (H, T, S). "
            f"Received: attention of shape {heads.shape}"
        )
    for head in heads:
        check_weights(head, source_tokens, target_tokens)
    maximum = check_maximum(maximum, max(1.0, float(heads.max())))
    source, target = labels_of(source_tokens), labels_of(target_tokens)
    title = shape_right_to_left(title or "")
    draw = functools.partial(_draw, heads, source, target, title, maximum, colormap, dpi)
    return make_figure(draw, [*source, *target, title], path, overwrite)


def _draw(
    heads: np.ndarray,
    source: list[str],
    target: list[str],
    title: str,
    maximum: float,
    colormap: str,
    dpi: int,
    families: list[str],
) -> "Figure":
    down = math.ceil(len(heads) / 4)
    across = math.ceil(len(heads) / down)
    width, height = (
        float(np.clip(_CELL * len(tokens), _SMALLEST_PANEL, _LARGEST_PANEL))
        for tokens in (source, target)
    )
    size = (across * width + 2 * _LABELS, down * (height + 0.35) + _LABELS + (0.4 if title else 0))
    figure = new_figure(figsize=size, dpi=dpi, layout="constrained")
    style: dict[str, Any] = {"family": families, "parse_math": False}
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for number, panel in enumerate(panels):
        if number >= len(heads):
            panel.set_visible(False)
            continue
        image = panel.imshow(heads[number], cmap=colormap, vmin=0, vmax=maximum, aspect="auto")
        panel.set_xlabel(f"head {number}", fontsize=8)
        columns = _ticks(source if number < across else [], width)
        rows = _ticks(target if number % across == 0 else [], height)
        panel.set_xticks(*columns, rotation=90, fontsize=_FONT, **style)
        panel.set_yticks(*rows, fontsize=_FONT, **style)
        panel.tick_params(length=2, width=0.5, pad=2, top=True, bottom=False)
        panel.tick_params(labeltop=True, labelbottom=False)
        panel.spines[:].set_linewidth(0.5)
    bar = figure.colorbar(image, ax=list(panels), shrink=0.6)
    bar.set_label("attention weight", fontsize=8)
    bar.ax.tick_params(labelsize=_FONT)
    if title:
        figure.suptitle(title, fontsize=11, **style)
    return figure


def _ticks(labels: list[str], inches: float) -> tuple[range, list[str]]:
    """Return places and labels: of every so many tokens where cells are smaller than letters."""
    stride = max(1, math.ceil((_FONT + 1) * len(labels) / (inches * _POINTS)))
    return range(0, len(labels), stride), labels[::stride]
