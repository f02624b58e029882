"""Heat maps of alignments, one or all heads: by matplotlib, and in characters for a terminal."""

import functools
import math
import os
import textwrap
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .colors import colors_of
from .figures import display_tokens, extents, make_figure, new_figure, shape_right_to_left

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LONGEST_LABEL = 24

# Of pictures, lengths in inches.
_LARGEST_CELL, _SMALLEST_CELL = 0.45, 0.2
_COMFORTABLE_SIDE, _LARGEST_SIDE = 7.0, 30.0
_MARGIN, _GAP = 0.12, 0.08
_BAR_WIDTH, _BAR_HEIGHT = 0.14, 4.0
_POINTS = 72
# Of a head among others: the sides of its map, and the room and points of its labels.
_PANEL, _HEAD_LABELS, _HEAD_FONT = (1.2, 4.0), 1.0, 7

# Of terminals.
_SHADES = " ░▒▓█"
_LEGEND = "weight: ░ about 1/4, ▒ 1/2, ▓ 3/4, █ 1"
_CELL = 2  # columns of a cell: room for an East Asian character of the heading
_LEFT_TO_RIGHT_MARK = "\N{LEFT-TO-RIGHT MARK}"
Labels = tuple[list[str], list[str]]  # of the source, and of the target
AXIS_LABELS = ("input", "output")


def plot_alignment(
    attention: Any,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    path: str | os.PathLike | None = None,
    *,
    title: str | None = None,
    overwrite: bool = False,
    maximum: float | None = None,
    colormap: str | None = None,
    dpi: int = 150,
    axis_labels: tuple[str, str] = AXIS_LABELS,
) -> "Figure":
    """Draw attention weights as a heat map: the source along the top, the target down the side.

    The `matplotlib.figure.Figure` grows with the sentence and needs no display. Labels are by
    [`display_tokens`][keras_attention.visualization.display_tokens]; a warning names missing fonts.

    Args:
        attention: Weights of shape `(T, S)`: a row for each target token.
        source_tokens, target_tokens: The `S` and the `T` tokens.
        path: File to write, if any; its suffix says the format (`.png`, `.svg`, `.pdf`, ...).
        title: Line above the picture.
        overwrite: Whether an existing file is replaced.
        maximum: The weight of the darkest colour. Default: 1, or the largest weight if that is
            more, so that pictures of different sentences compare.
        colormap: Name of a colour map of matplotlib, the colour of zero first. Default: from white
            to dark blue.
        dpi: Pixels to the inch in formats made of pixels.
        axis_labels: What the source and the target are called on the axes; `""` for nothing.

    Raises:
        ValueError: If the weights do not fit the tokens or are negative or not finite, or if the
            path's suffix is no format of matplotlib.
        FileExistsError: If the file exists and `overwrite` is False.

    Reference:
        Bahdanau et al. 2015, figure 3.

    Example:

    >>> attention = [[0.9, 0.1, 0.0], [0.1, 0.2, 0.7], [0.0, 0.8, 0.2]]
    >>> figure = plot_alignment(attention, ["das", "rote", "Haus"], ["the", "house", "red"])
    """
    weights = check_weights(attention, source_tokens, target_tokens)
    maximum = check_maximum(maximum, max(1.0, float(weights.max())))
    shown = {"cmap": colors_of(colormap), "vmin": 0, "vmax": maximum, "aspect": "auto"}
    source, target = labels_of(source_tokens), labels_of(target_tokens)
    title = shape_right_to_left(title or "")
    draw = functools.partial(_draw, weights, (source, target), title, shown, dpi, axis_labels)
    return make_figure(draw, [*source, *target, title, *axis_labels], path, overwrite)


def plot_heads(
    attention: Any,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    path: str | os.PathLike | None = None,
    *,
    title: str | None = None,
    overwrite: bool = False,
    maximum: float | None = None,
    colormap: str | None = None,
    dpi: int = 150,
    axis_labels: tuple[str, str] = AXIS_LABELS,
) -> "Figure":
    """Draw all heads of a layer in one `matplotlib.figure.Figure`, up to four to a row.

    Args:
        attention: Weights of shape `(H, T, S)`: of each head a row for each target token.
        source_tokens, target_tokens, path, title, overwrite, maximum, colormap, dpi, axis_labels:
            As in [`plot_alignment`][keras_attention.visualization.plot_alignment]. In
            self-attention source and target tokens are the same.

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
    shown = {"cmap": colors_of(colormap), "vmin": 0, "vmax": maximum, "aspect": "auto"}
    source, target = labels_of(source_tokens), labels_of(target_tokens)
    title = shape_right_to_left(title or "")
    draw = functools.partial(_draw_heads, heads, (source, target), title, shown, dpi, axis_labels)
    return make_figure(draw, [*source, *target, title, *axis_labels], path, overwrite)


def alignment_text(
    attention: Any,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    width: int | None = None,
) -> str:
    """Draw attention weights as lines of shaded blocks: source tokens downwards along the top.

    Args:
        attention, source_tokens, target_tokens: As in `plot_alignment`. A weight above 1 counts
            as 1.
        width: Columns of the terminal: a longer source is cut into several maps. `None` never cuts.

    Raises:
        ValueError: If the weights do not fit the tokens, or are negative or not finite.

    Example:

    >>> picture = alignment_text([[0.9, 0.1], [0.3, 0.7]], ["das", "Haus"], ["the", "house"])
    """
    weights = check_weights(attention, source_tokens, target_tokens)
    source = [_clusters(label) for label in display_tokens(source_tokens)]
    target = [_clusters(label) for label in display_tokens(target_tokens)]
    margin = max(map(_columns, target)) + 1
    columns = len(source)
    if width is not None:
        columns = max(1, (width - margin) // _CELL)
        columns = math.ceil(len(source) / math.ceil(len(source) / columns))  # maps of like width
    maps = [
        _one_map(weights[:, start : start + columns], source[start : start + columns], target)
        for start in range(0, len(source), columns)
    ]
    return "\n\n".join([*maps, _LEGEND])


def check_weights(
    attention: Any, source_tokens: Sequence[str], target_tokens: Sequence[str]
) -> np.ndarray:
    """Return the weights as a float array (T, S), or raise a ValueError that says what is wrong."""
    weights = np.asarray(attention, dtype="float64")
    expected = (len(target_tokens), len(source_tokens))
    if weights.shape != expected:
        raise ValueError(
            "`attention` must have a row for each target token and a column for each source token, "
            f"the shape {expected}. Received: attention of shape {weights.shape}"
        )
    if 0 in expected:
        raise ValueError(
            "An alignment needs at least one source and one target token. "
            f"Received: {expected[1]} source and {expected[0]} target tokens."
        )
    check_values("attention", weights)
    return weights


def check_values(name: str, weights: np.ndarray) -> None:
    """Raise a ValueError unless what is to be drawn is finite and not negative."""
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(
            f"`{name}` must be finite and not negative. "
            f"Received: values from {weights.min()} to {weights.max()}"
        )


def check_maximum(maximum: float | None, default: float) -> float:
    """Return the weight of the darkest colour, or raise a ValueError where it is not positive."""
    if maximum is None:
        return default
    if not maximum > 0:
        raise ValueError(f"`maximum` must be greater than 0. Received: maximum={maximum}")
    return maximum


def labels_of(tokens: Sequence[str]) -> list[str]:
    """Return the labels of tokens as matplotlib draws them, long ones cut."""
    return [shape_right_to_left("".join(_clusters(label))) for label in display_tokens(tokens)]


def _draw(
    weights: np.ndarray,
    labels: Labels,
    title: str,
    shown: dict,
    dpi: int,
    axis_labels: tuple[str, str],
    families: list[str],
) -> "Figure":
    steps, memory = weights.shape
    cell = np.clip(_COMFORTABLE_SIDE / max(steps, memory), _SMALLEST_CELL, _LARGEST_CELL)
    cell = min(cell, _LARGEST_SIDE / max(steps, memory))
    width, height = memory * cell, steps * cell
    bar_height = min(height, _BAR_HEIGHT)
    # The map fills the figure, until the labels are there and it is known what room they need.
    figure = new_figure(figsize=(width, height), dpi=dpi)
    axes = figure.add_axes((0, 0, 1, 1))
    image = axes.imshow(weights, **shown)
    size = float(np.clip(cell * _POINTS * 0.6, 5, 11))
    _label_axes(axes, labels, cell, {"family": families, "fontsize": size, "parse_math": False})
    _name_axes(axes, axis_labels, families)
    place = (width + _GAP, height - bar_height, _BAR_WIDTH, bar_height)
    bar = figure.add_axes(np.array(place) / (width, height, width, height))
    figure.colorbar(image, cax=bar, ticks=np.linspace(0, shown["vmax"], 3 if steps > 2 else 2))
    bar.tick_params(labelsize=8, length=2, width=0.5)
    bar.set_ylabel("attention weight" if height > 1.2 else "", fontsize=8)
    for part in (axes, bar):
        part.spines[:].set_linewidth(0.5)
    _make_room(figure, title, families)
    return figure


def _label_axes(axes: Any, labels: Labels, cell: float, style: dict[str, Any]) -> None:
    for each, set_ticks in zip(labels, (axes.set_xticks, axes.set_yticks), strict=True):
        set_ticks(*_ticks(each, cell * len(each), style["fontsize"]), **style)
        set_ticks(np.arange(1, len(each)) - 0.5, minor=True)
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.tick_params(which="major", length=2, width=0.5, pad=2)
    shown = axes.get_xticklabels()
    widest = max(label.width for label in extents(shown, axes.figure))
    if widest > 0.9 * cell * len(labels[0]) / len(shown):
        rotation = 45 if cell >= 0.25 else 90
        for label in shown:
            label.set(rotation=rotation, rotation_mode="anchor", ha="left")
            label.set_va("bottom" if rotation == 45 else "center")
    axes.tick_params(which="minor", length=0)
    axes.grid(which="minor", color="0.85", linewidth=0.4)


def _name_axes(axes: Any, axis_labels: tuple[str, str], families: list[str]) -> None:
    style: dict[str, Any] = {"family": families, "fontsize": 10, "parse_math": False}
    axes.xaxis.set_label_position("top")
    axes.set_xlabel(axis_labels[0], **style)
    axes.set_ylabel(axis_labels[1], **style)


def _make_room(figure: "Figure", title: str, families: list[str]) -> None:
    """Widen the figure by what the labels need around the map, and write the title above them."""
    inches = np.tile(figure.get_size_inches(), 2)
    box = figure.get_tightbbox()
    width = box.width + 2 * _MARGIN
    height = box.height + 2 * _MARGIN
    if title:
        style: dict[str, Any] = {"family": families, "fontsize": 11, "parse_math": False}
        text = figure.text(0.5, 1, title, ha="center", va="top", **style)
        (extent,) = extents([text], figure)
        if extent.width > box.width:
            text.set_text(textwrap.fill(title, max(12, int(len(title) * box.width / extent.width))))
            (extent,) = extents([text], figure)
        height += extent.height + _MARGIN
        text.set_y(1 - _MARGIN / height)
    shift = (_MARGIN - box.x0, _MARGIN - box.y0, 0, 0)
    places = [axes.get_position().bounds * inches + shift for axes in figure.axes]
    figure.set_size_inches(width, height)
    for axes, place in zip(figure.axes, places, strict=True):
        axes.set_position(place / (width, height, width, height))


def _one_map(weights: np.ndarray, source: list[list[str]], target: list[list[str]]) -> str:
    margin = max(map(_columns, target)) + 1
    depth = max(map(len, source))
    heading = [[""] * (depth - len(name)) + name for name in source]
    lines = []
    for line in zip(*heading, strict=True):
        cells = [cluster + " " * (_CELL - _columns([cluster])) for cluster in line]
        lines.append(" " * margin + "".join(cells))
    for label, row in zip(target, weights, strict=True):
        # The mark keeps a terminal from turning the row round with a right-to-left label.
        name = " " * (margin - 1 - _columns(label)) + "".join(label) + _LEFT_TO_RIGHT_MARK
        levels = np.round(np.minimum(row, 1.0) * (len(_SHADES) - 1)).astype(int)
        lines.append(name + " " + "".join(_SHADES[level] * _CELL for level in levels))
    return "\n".join(line.rstrip() for line in lines)


def _clusters(label: str) -> list[str]:
    """Cut a label into what a terminal draws in one place, marks with their letter."""
    clusters: list[str] = []
    for character in label:
        if clusters and unicodedata.category(character) in ("Mn", "Me", "Mc", "Cf"):
            clusters[-1] += character
        else:
            clusters.append(character)
    if len(clusters) > _LONGEST_LABEL:
        kept = _LONGEST_LABEL // 2
        clusters = [*clusters[:kept], "…", *clusters[1 - kept :]]
    return clusters


def _columns(clusters: list[str]) -> int:
    wide = sum(unicodedata.east_asian_width(c[0]) in "WF" for c in clusters if c)
    return wide + sum(map(bool, clusters))


def _draw_heads(
    heads: np.ndarray,
    labels: Labels,
    title: str,
    shown: dict,
    dpi: int,
    axis_labels: tuple[str, str],
    families: list[str],
) -> "Figure":
    source, target = labels
    down = math.ceil(len(heads) / 4)
    across = math.ceil(len(heads) / down)
    width, height = (float(np.clip(_SMALLEST_CELL * len(tokens), *_PANEL)) for tokens in labels)
    size = (
        across * width + 2 * _HEAD_LABELS,
        down * (height + 0.35) + _HEAD_LABELS + (0.4 if title else 0),
    )
    figure = new_figure(figsize=size, dpi=dpi, layout="constrained")
    style: dict[str, Any] = {"family": families, "parse_math": False}
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for number, panel in enumerate(panels):
        if number >= len(heads):
            panel.set_visible(False)
            continue
        image = panel.imshow(heads[number], **shown)
        panel.set_xlabel(f"head {number}", fontsize=8)
        if number < across:
            panel.set_title(axis_labels[0], fontsize=9, **style)
        columns = _ticks(source if number < across else [], width, _HEAD_FONT)
        rows = _ticks(target if number % across == 0 else [], height, _HEAD_FONT)
        panel.set_xticks(*columns, rotation=90, fontsize=_HEAD_FONT, **style)
        panel.set_yticks(*rows, fontsize=_HEAD_FONT, **style)
        panel.tick_params(length=2, width=0.5, pad=2, top=True, bottom=False)
        panel.tick_params(labeltop=True, labelbottom=False)
        panel.spines[:].set_linewidth(0.5)
    figure.supylabel(axis_labels[1], fontsize=9, **style)
    bar = figure.colorbar(image, ax=list(panels), shrink=0.6)
    bar.set_label("attention weight", fontsize=8)
    bar.ax.tick_params(labelsize=_HEAD_FONT)
    if title:
        figure.suptitle(title, fontsize=11, **style)
    return figure


def _ticks(labels: list[str], inches: float, fontsize: float) -> tuple[range, list[str]]:
    """Return positions and labels: of every so many tokens where cells are smaller than letters."""
    stride = max(1, math.ceil((fontsize + 1) * len(labels) / (inches * _POINTS)))
    return range(0, len(labels), stride), labels[::stride]
