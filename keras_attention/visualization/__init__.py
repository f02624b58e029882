"""Pictures of attention: heat maps in files, and in the terminal."""

from keras_attention.visualization.alignment_plot import plot_alignment
from keras_attention.visualization.alignment_text import alignment_text
from keras_attention.visualization.tokens import display_tokens

__all__ = ["alignment_text", "display_tokens", "plot_alignment"]
