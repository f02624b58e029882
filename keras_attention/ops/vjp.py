"""Gradients that are written by hand, and of a user's function in the middle of one.

Keras offers no public way to differentiate on all backends, so this module asks each backend. It is
the only one under `ops` that imports them.
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


def vjp(function: Callable[..., Tensor], tensors: Sequence[Tensor], upstream: Tensor) -> tuple:
    """Return the gradients of `sum(function(*tensors) * upstream)`, zeros where there is none."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.vjp(function, *tensors)[1](upstream)
    if backend == "tensorflow":
        import tensorflow as tf

        # A copy each: gradients count from here, not from where the tensors come from.
        tensors = [tf.identity(tensor) for tensor in tensors]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            result = function(*tensors)
        gradients = tape.gradient(result, tensors, output_gradients=upstream)
    else:
        import torch

        with torch.enable_grad():
            tensors = [tensor.detach().requires_grad_() for tensor in tensors]
            result = function(*tensors)
            gradients = [None] * len(tensors)
            if result.requires_grad:
                gradients = torch.autograd.grad(result, tensors, upstream, allow_unused=True)
    return tuple(
        ops.zeros_like(tensor) if gradient is None else ops.convert_to_tensor(gradient)
        for tensor, gradient in zip(tensors, gradients, strict=True)
    )
