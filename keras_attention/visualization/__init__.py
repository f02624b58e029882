"""Pictures of attention: heat maps and shaded tokens, for files, notebooks and terminals."""

from .alignment import AXIS_LABELS, alignment_text, plot_alignment, plot_heads
from .figures import display_tokens, make_figure, new_figure
from .film import AttentionImages
from .shaded import ShadedTokens, plot_shaded, shaded_html, shaded_text

__all__ = [
    "AXIS_LABELS",
    "AttentionImages",
    "ShadedTokens",
    "alignment_text",
    "display_tokens",
    "make_figure",
    "new_figure",
    "plot_alignment",
    "plot_heads",
    "plot_shaded",
    "shaded_html",
    "shaded_text",
]
