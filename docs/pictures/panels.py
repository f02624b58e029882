"""Panels of weights: a row a query, a column a place of the memory."""

import numpy as np
from matplotlib.figure import Figure

COLORS = "Blues"


def figure(panels: list[tuple[str, np.ndarray]], queries, memory, size) -> Figure:
    """Draw weights `(T, S)` side by side under their titles.

    Args:
        panels: Title and weights of each.
        queries: Labels of the rows.
        memory: Labels of the columns.
        size: Width and height in inches.
    """
    result = Figure(figsize=size, layout="constrained")
    axes = result.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axis, (title, weights) in zip(axes, panels, strict=True):
        image = axis.imshow(weights, cmap=COLORS, vmin=0, vmax=1, aspect="auto")
        axis.set_title(title, fontsize=10)
        axis.set_xticks(range(len(memory)), memory)
        axis.set_xlabel("memory")
    axes[0].set_yticks(range(len(queries)), queries)
    axes[0].set_ylabel("query")
    result.colorbar(image, ax=list(axes), shrink=0.8, label="weight")
    return result
