"""The alignment of the first page: the preset that comes with the package reads a date."""

from matplotlib.figure import Figure

from keras_attention.applications.translation import Translator


def dates() -> Figure:
    """Draw what the first page's lines draw, to be read small: large letters, no scale."""
    figure = Translator.from_preset("dates").translate("4 juin 1999").plot()
    axes, scale = figure.axes
    scale.remove()
    axes.tick_params(labelsize=20)
    axes.set_position((0.12, 0.02, 0.86, 0.9))
    return figure
