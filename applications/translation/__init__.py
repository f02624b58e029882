"""The translation application."""

from keras_attention.applications.translation.translation import Translation
from keras_attention.applications.translation.translator import Translator

__all__ = ["Translation", "Translator"]
