"""The one scale of colours for weights: from the paper to blue, which everybody can tell apart."""

from collections.abc import Sequence
from typing import Any

import numpy as np

BLUES = ("#ffffff", "#9ecae1", "#4292c6", "#08519c", "#08306b")
"""Of pictures: lightness alone tells weights apart, so colour-blind readers see the same."""
PALE, FULL = np.array([222, 235, 247]), np.array([66, 146, 198])
"""Of HTML, the backgrounds of the least and the greatest weight; black can be read on both."""
TERMINAL = (195, 189, 153, 117, 75, 33)
"""Of 256 colours of terminals, from pale to strong: black can be read on all."""
TIMES_THE_MEAN = 3


def colors_of(colormap: str | None) -> Any:
    """Return a colour map of matplotlib by its name; None for the one from white to dark blue."""
    import matplotlib
    from matplotlib.colors import LinearSegmentedColormap

    if colormap is None:
        return LinearSegmentedColormap.from_list("weights", BLUES)
    return matplotlib.colormaps[colormap]


def full_weight(rows: Sequence[np.ndarray]) -> float:
    """Return the weight of the strongest colour, for rows of weights that are shown together.

    It is the largest weight, but at least three times the mean of a row. So weights that are all
    nearly equal are all pale: if the largest had the full colour, each would look important.
    """
    filled = [np.asarray(row, "float64") for row in rows if np.size(row)]
    even = (min(TIMES_THE_MEAN, row.size) * row.mean() for row in filled)
    return max([*even, *(row.max() for row in filled)], default=0.0) or 1.0


def background(level: float) -> str:
    """Return the CSS of a background for a weight from 0 to 1, with letters that can be read.

    Both colours are fixed, so that it looks the same on a page in the dark.
    """
    red, green, blue = np.round(PALE + level * (FULL - PALE)).astype(int)
    return f"background: rgb({red} {green} {blue}); color: #000"
