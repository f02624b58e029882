"""All heads of a layer of attention, side by side in one picture."""

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
    """Draw the attention of every head of a layer on one sheet, up to four heads to a row.

    Args:
        attention: Weights of shape `(H, T, S)`: of each head, counted from 0, a row for each target
            token.
        source_tokens: The `S` source tokens; of self-attention the tokens themselves.
        target_tokens: The `T` target tokens.
        path, title, overwrite, colormap, dpi: As in
            [`plot_alignment`][keras_attention.visualization.plot_alignment].
        maximum: The weight of the darkest colour, the same for all heads. By default 1, or the
            largest weight if that is more.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ValueError: If the weights have no heads, do not fit the tokens, or are negative or not
            finite, `maximum` is not positive, or the path's suffix is no format of matplotlib.
        FileExistsError: If the file exists and `overwrite` is False.

    Example:

    ```python
    import numpy as np
    from keras_attention import MultiHeadAttention
    from keras_attention.visualization import plot_heads

    words = ["the", "dog", "runs"]
    layer = MultiHeadAttention(num_heads=4, key_dim=2)
    states = np.random.normal(size=(1, 3, 8)).astype("float32")
    _, weights = layer(states, states, return_attention_scores=True)
    figure = plot_heads(np.array(weights[0]), words, words, title="Four heads")
    ```
    """
    heads = np.asarray(attention, dtype="float64")
    if heads.ndim != 3 or not len(heads):
        raise ValueError(
            "`attention` must be the weights of heads, of shape (H, T, S). "
            f"Received: attention of shape {heads.shape}"
        )
    for head in heads:
        check_weights(head, source_tokens, target_tokens)
    maximum = check_maximum(maximum, heads)
    source, target = labels_of(source_tokens), labels_of(target_tokens)
    title = shape_right_to_left(title or "")

    def draw(families: list[str]) -> "Figure":
        return _draw(heads, source, target, title, families, maximum, colormap, dpi)

    return make_figure(draw, [*source, *target, title], path, overwrite)


def _draw(
    heads: np.ndarray,
    source: list[str],
    target: list[str],
    title: str,
    families: list[str],
    maximum: float,
    colormap: str,
    dpi: int,
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
    # Where cells are smaller than letters, only every so many tokens can have a label.
    strides = [
        math.ceil((_FONT + 1) * len(tokens) / (inches * _POINTS))
        for tokens, inches in ((source, width), (target, height))
    ]
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for number, panel in enumerate(panels):
        if number >= len(heads):
            panel.set_visible(False)
            continue
        image = panel.imshow(heads[number], cmap=colormap, vmin=0, vmax=maximum, aspect="auto")
        panel.set_xlabel(f"head {number}", fontsize=8)
        columns = source[:: strides[0]] if number < across else []
        rows = target[:: strides[1]] if number % across == 0 else []
        places = range(0, len(source), strides[0])[: len(columns)]
        panel.set_xticks(places, columns, rotation=90, fontsize=_FONT, **style)
        places = range(0, len(target), strides[1])[: len(rows)]
        panel.set_yticks(places, rows, fontsize=_FONT, **style)
        panel.tick_params(length=2, width=0.5, pad=2, top=True, bottom=False)
        panel.tick_params(labeltop=True, labelbottom=False)
        panel.spines[:].set_linewidth(0.5)
    bar = figure.colorbar(image, ax=list(panels), shrink=0.6)
    bar.set_label("attention weight", fontsize=8)
    bar.ax.tick_params(labelsize=_FONT)
    if title:
        figure.suptitle(title, fontsize=11, **style)
    return figure
