"""Gradients that are written by hand, and of a user's function in the middle of one.

Keras has no public way to differentiate on all backends: this module alone imports them.
"""

from collections.abc import Callable, Sequence

import keras
from keras import ops

from .types import Tensor


def with_gradient(function: Callable[..., tuple[Tensor, Callable]]) -> Callable[..., Tensor]:
    """Make `function(*tensors) -> (result, gradient)` a differentiable one of its result."""

    @ops.custom_gradient
    def differentiable(*tensors: Tensor) -> tuple:
        result, gradient = function(*tensors)

        def of_upstream(*args: Tensor, upstream: Tensor = None) -> Tensor:
            return gradient(args[0] if upstream is None else upstream)

        return result, of_upstream

    return differentiable


def pullback(function: Callable[..., Tensor], tensors: Sequence[Tensor]) -> tuple:
    """Return `function(*tensors)`, and the function from its gradient to those of all tensors."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.vjp(function, *tensors)
    if backend == "tensorflow":
        import tensorflow as tf

        # A copy each: gradients count from here, not from where the tensors come from.
        tensors = [tf.identity(tensor) for tensor in tensors]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            result = function(*tensors)

        def gradients(upstream: Tensor) -> list:
            return tape.gradient(result, tensors, upstream, unconnected_gradients="zero")

        return result, gradients
    import torch

    with torch.enable_grad():
        tensors = [tensor.detach().requires_grad_() for tensor in tensors]
        result = function(*tensors)

    def gradients_of_torch(upstream: Tensor) -> list:
        if not result.requires_grad:
            return [ops.zeros_like(tensor) for tensor in tensors]
        found = torch.autograd.grad(result, tensors, upstream, allow_unused=True)
        pairs = zip(tensors, found, strict=True)
        return [ops.zeros_like(tensor) if one is None else one for tensor, one in pairs]

    return result.detach(), gradients_of_torch
