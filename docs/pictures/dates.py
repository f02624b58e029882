"""The alignment of the first page: the preset that comes with the package reads a date."""

from matplotlib.figure import Figure

from keras_attention.applications.translation import Translator


def dates() -> Figure:
    """Draw what the first page's lines draw."""
    return Translator.from_preset("dates").translate("4 juin 1999").plot()
