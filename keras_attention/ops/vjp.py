"""Gradients that are written by hand, and of a user's function in the middle of one.

Keras has no public way to differentiate on all backends: this module alone imports them.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras

from .double import ops
from .types import Tensor


def with_gradient(function: Callable[..., tuple[Tensor, Callable]]) -> Callable[..., Tensor]:
    """Make `function(*tensors) -> (result, gradient)` a differentiable one of its result."""

    def differentiable(*tensors: Tensor) -> Tensor:
        results: list = []

        @ops.custom_gradient
        def run(*tensors: Tensor) -> tuple:
            result, gradient = function(*tensors)
            gradient = _kept_by_graph(result, gradient)
            results.append(result)

            def of_upstream(*args: Tensor, upstream: Tensor = None) -> Tensor:
                return gradient(args[0] if upstream is None else upstream)

            return (results if _is_symbolic(result) else result), of_upstream

        result = run(*map(_of_this_graph, tensors))
        if isinstance(result, list):
            (result,), results[:] = result, [None]
        return result

    return differentiable


def _kept_by_graph(result: Tensor, gradient: Callable) -> Callable:
    """Return a gradient that lives as long as the TensorFlow graph of `result`.

    TensorFlow keeps the gradient functions of all graphs for good, and each keeps what it refers
    to: every training step and every search that was ever traced. So what it gets refers to the
    graph weakly, and the list of results that it gets is emptied. The graph owns the gradient.
    """
    if not _is_symbolic(result):
        return gradient
    name = f"_gradient_of_{id(gradient)}"
    setattr(result.graph, name, gradient)
    graph = weakref.ref(result.graph)
    return lambda upstream: getattr(graph(), name)(upstream)


def _of_this_graph(tensor: Tensor) -> Tensor:
    """Return what stands for `tensor` in the TensorFlow graph that is being built.

    TensorFlow cannot differentiate a loop whose body has a branch if the gradient of that branch
    refers to tensors outside of it.
    """
    if not _is_symbolic(tensor):
        return tensor
    import tensorflow as tf

    graph = tf.compat.v1.get_default_graph()
    return graph.capture(tensor) if hasattr(graph, "capture") else tensor


def _is_symbolic(tensor: Any) -> bool:
    """Whether this is a tensor in a graph of TensorFlow."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return tf.is_symbolic_tensor(tensor)


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
