"""Pictures of the pages; `python -m docs.pictures FOLDER` writes them to look at."""

from docs.pictures.drawing import draw_all

__all__ = ["draw_all"]
