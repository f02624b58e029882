"""The heat map of an alignment in characters, for a terminal."""

import math
import unicodedata
from collections.abc import Sequence

from keras_attention.visualization.tokens import alignment_weights, display_tokens

_SHADES = " ░▒▓█"
_LEGEND = "weight: ░ about 1/4, ▒ 1/2, ▓ 3/4, █ 1"
_CELL = 2  # columns of a cell: room for an East Asian character of the heading
_LONGEST_LABEL = 24
_LEFT_TO_RIGHT_MARK = "\N{LEFT-TO-RIGHT MARK}"


def alignment_text(
    attention,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    width: int | None = None,
) -> str:
    """Draw attention weights with shaded blocks: source tokens downwards along the top.

    Args:
        attention: Weights of shape `(T, S)`: a row for each target token. A weight above 1 is drawn
            as 1.
        source_tokens: The `S` source tokens.
        target_tokens: The `T` target tokens.
        width: Columns of the terminal. A longer source is cut into several maps, one under the
            other; `None` never cuts.

    Returns:
        The lines of the picture, joined by line feeds, the last without one.

    Raises:
        ValueError: If the weights do not fit the tokens, or are negative or not finite.

    Example:

    ```python
    from keras_attention.visualization import alignment_text

    print(alignment_text([[0.9, 0.1], [0.3, 0.7]], ["das", "Haus"], ["the", "house"]))
    ```
    """
    weights = alignment_weights(attention, source_tokens, target_tokens)
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


def _one_map(weights, source, target):
    margin = max(map(_columns, target)) + 1
    depth = max(map(len, source))
    lines = []
    for row in range(depth):
        cells = [_cell(name, row - (depth - len(name))) for name in source]
        lines.append(" " * margin + "".join(cells))
    for label, row in zip(target, weights, strict=True):
        # The mark keeps a terminal from turning the row round with a right-to-left label.
        name = " " * (margin - 1 - _columns(label)) + "".join(label) + _LEFT_TO_RIGHT_MARK
        lines.append(name + " " + "".join(_shade(weight) * _CELL for weight in row))
    return "\n".join(line.rstrip() for line in lines)


def _shade(weight):
    return _SHADES[round(min(float(weight), 1.0) * (len(_SHADES) - 1))]


def _cell(name, index):
    cluster = name[index] if index >= 0 else ""
    return cluster + " " * (_CELL - _columns([cluster]))


def _clusters(label):
    """Cut a label into what a terminal draws in one place, marks with their letter."""
    clusters = []
    for character in label:
        if clusters and unicodedata.category(character) in ("Mn", "Me", "Mc", "Cf"):
            clusters[-1] += character
        else:
            clusters.append(character)
    if len(clusters) > _LONGEST_LABEL:
        kept = _LONGEST_LABEL // 2
        clusters = [*clusters[:kept], "…", *clusters[1 - kept :]]
    return clusters


def _columns(clusters):
    wide = sum(unicodedata.east_asian_width(c[0]) in "WF" for c in clusters if c)
    return wide + sum(map(bool, clusters))
