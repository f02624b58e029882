"""Pictures of attention: heat maps and shaded tokens, in files and in the terminal."""

from keras_attention.visualization.alignment import alignment_text, plot_alignment
from keras_attention.visualization.figures import display_tokens
from keras_attention.visualization.shaded import (
    ShadedTokens,
    plot_shaded,
    shaded_html,
    shaded_text,
)

__all__ = [
    "ShadedTokens",
    "alignment_text",
    "display_tokens",
    "plot_alignment",
    "plot_shaded",
    "shaded_html",
    "shaded_text",
]
