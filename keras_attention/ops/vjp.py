"""Gradients of a user's function in the middle of a hand-written backward pass.

Keras offers no public way to differentiate on all backends, so this module asks each backend. It is
the only one under `ops` that imports them.
"""

import keras
from keras import ops


def vjp(function, tensors, upstream):
    """Return the gradients of `sum(function(*tensors) * upstream)`, zeros where there is none.

    Args:
        function: Takes the tensors, and returns one tensor.
        tensors: Floating point tensors.
        upstream: The gradient of the result, of its shape.
    """
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
            gradients = (
                torch.autograd.grad(result, tensors, upstream, allow_unused=True)
                if result.requires_grad
                else [None] * len(tensors)
            )
    return tuple(
        ops.zeros_like(tensor) if gradient is None else ops.convert_to_tensor(gradient)
        for tensor, gradient in zip(tensors, gradients, strict=True)
    )
