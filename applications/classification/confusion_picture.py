"""The confusion matrix as a picture, drawn with matplotlib's objects and no global state."""

from pathlib import Path

import numpy as np

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import replacing
from keras_attention.applications.common.pictures import check_picture

MOST_LABELS_WITH_COUNTS = 20


def draw_confusion(report: dict, output: Path | str):
    """Draw the confusion matrix of a report of `evaluate`: a row for each right label.

    Shades are parts of the row, so that rare labels are seen as well as frequent ones; up to 20
    labels the counts are written.

    Args:
        report: of `evaluate`, of a run with one label a text.
        output: a new .png, .svg or .pdf.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        UserError: where the report has no confusion matrix or the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    check_picture(output)
    if "confusion" not in report:
        raise UserError("a confusion matrix is of runs with one label a text (data.labels one).")
    counts = np.array(report["confusion"])
    names = report["label_names"]
    parts = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = 1.8 + 0.55 * min(len(names), 30)
    figure = Figure(figsize=(side + 1, side), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(parts, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", parse_math=False)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_xlabel("predicted")
    axes.set_ylabel("right")
    if len(names) <= MOST_LABELS_WITH_COUNTS:
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if parts[row, column] > 0.5 else "black"
            axes.text(column, row, f"{count:,}", ha="center", va="center", color=colour)
    figure.colorbar(image, ax=axes, shrink=0.8, label="part of the row")
    with replacing(Path(output)) as temporary:
        figure.savefig(temporary, format=Path(output).suffix[1:].lower())
    return figure
