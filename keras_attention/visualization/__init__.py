"""Pictures of attention: heat maps and shaded tokens, in files and in the terminal."""

from keras_attention.visualization.alignment_plot import plot_alignment
from keras_attention.visualization.alignment_text import alignment_text
from keras_attention.visualization.shaded_plot import plot_shaded
from keras_attention.visualization.shaded_text import shaded_html, shaded_text
from keras_attention.visualization.shading import ShadedTokens
from keras_attention.visualization.tokens import display_tokens

__all__ = [
    "ShadedTokens",
    "alignment_text",
    "display_tokens",
    "plot_alignment",
    "plot_shaded",
    "shaded_html",
    "shaded_text",
]
