"""The figure of every picture; imported inside functions, as it imports matplotlib."""

import io
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


class ShownFigure(Figure):
    """A figure that needs no display and that a notebook shows, with pyplot imported or not."""

    def __init__(self, *args: Any, **settings: Any):
        super().__init__(*args, **settings)
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()
