"""What every picture of matplotlib needs here: the size of its texts, and its file."""

import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def extents(texts: Iterable, figure: "Figure") -> list:
    """The box of each text, in inches."""
    renderer = figure.canvas.get_renderer()
    to_inches = figure.dpi_scale_trans.inverted()
    return [text.get_window_extent(renderer).transformed(to_inches) for text in texts]


def checked_path(path: str | os.PathLike, overwrite: bool) -> Path:
    """Return the path of a picture, or raise what says why it cannot be written there."""
    from matplotlib.backend_bases import FigureCanvasBase

    path = Path(path)
    formats = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in formats:
        raise ValueError(
            f"The suffix of `path` must be one of {', '.join(sorted(formats))}. "
            f"Received: path={str(path)!r}"
        )
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists already; overwrite=True replaces it.")
    return path


def write_figure(figure: "Figure", path: Path, overwrite: bool) -> None:
    """Write a picture to a checked path."""
    # First in memory: a picture that fails half-way leaves the file as it was.
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:].lower(), dpi=figure.dpi)
    with open(path, "wb" if overwrite else "xb") as file:
        file.write(content.getvalue())
