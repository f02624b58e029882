"""Layers of other libraries as layers of this package, with the weights that they have learned."""

from .addons import from_attention_wrapper
from .keras_layers import from_keras
from .pytorch import from_pytorch, load_pytorch

__all__ = ["from_attention_wrapper", "from_keras", "from_pytorch", "load_pytorch"]
