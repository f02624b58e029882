"""Pictures of attention: heat maps and shaded tokens, in files and in the terminal."""

from .alignment import alignment_text, plot_alignment
from .figures import display_tokens
from .shaded import ShadedTokens, plot_shaded, shaded_html, shaded_text

__all__ = [
    "ShadedTokens",
    "alignment_text",
    "display_tokens",
    "plot_alignment",
    "plot_shaded",
    "shaded_html",
    "shaded_text",
]
