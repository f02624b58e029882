"""Custom gradients that can be differentiated again, and VJPs of user functions inside them.

Keras has no public way to differentiate on all backends: this module alone imports them.
"""

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
from keras import ops, tree

from .types import Tensor

# Not a context variable: replicas run in threads of their own.
_automatic = {"depth": 0}


@contextlib.contextmanager
def automatic_derivatives() -> Iterator[None]:
    """Leave every derivative to the backend, of any order and in forward mode.

    Layers and losses of this package write out their first gradients, which saves time and memory;
    second derivatives work without this, but for those of additive scores that XLA takes with open
    lengths. Forward mode on JAX (`jax.jvp`, `jax.jacfwd`,
    `jax.hessian`) and PyTorch does not take a gradient that is written out. Inside of this context
    no layer has one. What is compiled keeps what it was traced with.

    Example:

    >>> import keras
    >>> from keras_attention import BahdanauAttention, automatic_derivatives
    >>> layer = BahdanauAttention(units=4)
    >>> with automatic_derivatives():
    ...     context = layer(keras.random.normal((2, 3, 8)), keras.random.normal((2, 5, 8)))
    >>> tuple(context.shape)
    (2, 3, 8)
    """
    _automatic["depth"] += 1
    try:
        yield
    finally:
        _automatic["depth"] -= 1


def is_automatic() -> bool:
    """Whether `automatic_derivatives` is on."""
    return _automatic["depth"] > 0


def with_gradient(function: Callable, plain: Callable) -> Callable:
    """Make a function of tensors that has the gradient of `function`, and others of `plain`.

    `function(*tensors)` returns the result, a tensor or a list, and the function from its gradient
    to those of all tensors. `plain(*tensors)` returns the same result by operations that the
    backend can differentiate any number of times: where more than a first gradient is wanted.
    """

    def run(*tensors: Tensor) -> tuple:
        result, gradient = function(*tensors)

        def again(tensors: Sequence[Tensor], *upstreams: Tensor) -> list:
            upstream = list(upstreams) if isinstance(result, list) else upstreams[0]
            return _differentiable(gradient, plain, tensors, upstream)

        return result, again

    def differentiable(*tensors: Tensor) -> Tensor:
        return plain(*tensors) if is_automatic() else custom_gradient(run, tensors)

    return differentiable


def _differentiable(
    gradient: Callable, plain: Callable, tensors: Sequence[Tensor], upstream: Tensor
) -> list:
    """Return `gradient(upstream)`, whose own derivatives are those of the VJP of `plain`."""
    saved = []
    if keras.backend.backend() == "jax":
        # JAX lets a custom gradient close over nothing that may be differentiated.
        import jax

        gradient, saved = jax.closure_convert(gradient, upstream)
    upstreams = tree.flatten(upstream)
    count = len(upstreams)

    def split(inputs: Sequence[Tensor]) -> tuple:
        given = list(inputs[:count]) if isinstance(upstream, list) else inputs[0]
        return given, inputs[count : count + len(tensors)], inputs[count + len(tensors) :]

    def vjp(*inputs: Tensor) -> list:
        given, tensors, _ = split(inputs)
        return list(pullback(plain, tensors)[1](given))

    def run(*inputs: Tensor) -> tuple:
        given, _, saved = split(inputs)
        found = gradient(given, *saved)
        found = list(found) if isinstance(found, (list, tuple)) else [found]

        def second(inputs: Sequence[Tensor], *upstreams: Tensor) -> list:
            # Saved tensors are functions of the inputs: no gradient flows through them.
            rest = [ops.zeros_like(tensor) for tensor in split(inputs)[2]]
            moving = inputs[: len(inputs) - len(rest)]
            return [*pullback(vjp, moving)[1](list(upstreams)), *rest]

        return found, second

    return custom_gradient(run, [*upstreams, *tensors, *saved])


def custom_gradient(function: Callable, tensors: Sequence[Tensor]) -> Any:
    """Return the result of `function(*tensors) -> (result, gradient)`, a tensor or a list.

    `gradient(tensors, *upstreams)` returns the gradients of all tensors. The backend differentiates
    it where that is asked for.
    """
    backend = keras.backend.backend()
    if backend == "torch":
        is_list = []

        def run_on_torch(*tensors: Tensor) -> tuple:
            result, gradient = function(*tensors)
            is_list.append(isinstance(result, list))
            return tuple(tree.flatten(result)), gradient

        found = _torch_function().apply(run_on_torch, *tensors)
        return list(found) if is_list[0] else found[0]
    if backend == "jax":
        import jax

        @jax.custom_gradient
        def run_on_jax(*tensors: Tensor) -> tuple:
            result, gradient = function(*tensors)
            return result, lambda upstream: tuple(gradient(tensors, *tree.flatten(upstream)))

        return run_on_jax(*map(ops.convert_to_tensor, tensors))
    import tensorflow as tf

    results = []
    is_list = []

    @tf.custom_gradient
    def run(*tensors: Tensor) -> tuple:
        result, gradient = function(*tensors)
        is_list.append(isinstance(result, list))
        results.extend(tree.flatten(result))
        gradient = _saved_in_graph(results[0], functools.partial(gradient, tensors))
        return results if is_in_graph(results[0]) else list(results), gradient

    found = list(run(*map(_in_this_graph, tensors)))
    results[:] = [None] * len(results)
    return found if is_list[0] else found[0]


@functools.cache
def _torch_function() -> Any:
    """Return PyTorch's form of a function with a gradient of its own."""
    import torch

    class Custom(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, function: Callable, *tensors: Tensor) -> tuple:
            results, ctx.gradient = function(*tensors)
            ctx.save_for_backward(*tensors)
            return tuple(results)

        @staticmethod
        def backward(ctx: Any, *upstreams: Tensor) -> tuple:
            return (None, *ctx.gradient(ctx.saved_tensors, *upstreams))

    return Custom


def _saved_in_graph(result: Tensor, gradient: Callable) -> Callable:
    """Return a gradient that lives as long as the TensorFlow graph of `result`.

    TensorFlow keeps the gradient functions of all graphs for good, and each keeps what it refers
    to: every training step and every search that was ever traced. So what it gets refers to the
    graph weakly, and the list of results that it gets is emptied. The graph owns the gradient.
    """
    if not is_in_graph(result):
        return gradient
    name = f"_gradient_of_{id(gradient)}"
    setattr(result.graph, name, gradient)
    graph = weakref.ref(result.graph)
    return lambda *upstreams: getattr(graph(), name)(*upstreams)


def _in_this_graph(tensor: Tensor) -> Tensor:
    """Return the symbol of `tensor` in the TensorFlow graph that is being built.

    TensorFlow cannot differentiate a loop whose body has a branch if the gradient of that branch
    refers to tensors outside of it. A variable of several replicas is read here: Keras takes it for
    a tensor.
    """
    import tensorflow as tf

    tensor = tf.convert_to_tensor(tensor)
    if not is_in_graph(tensor):
        return tensor
    graph = tf.compat.v1.get_default_graph()
    return graph.capture(tensor) if hasattr(graph, "capture") else tensor


def is_in_graph(tensor: Any) -> bool:
    """Whether this is a tensor in a graph of TensorFlow."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return tf.is_symbolic_tensor(tensor)


def unwatched(tensors: Sequence[Tensor]) -> list:
    """Return the same tensors of a TensorFlow graph, by a way that no tape can follow.

    A branch between tensors that two tapes watch becomes a function with a native gradient, and
    with it all that stands in the branch, also where a custom gradient surrounds the branch.
    """
    import tensorflow as tf

    kinds = {2: tf.int16, 4: tf.int32, 8: tf.int64}
    return [
        tf.bitcast(tf.bitcast(tensor, kinds[tensor.dtype.size]), tensor.dtype)
        if tensor.dtype.is_floating
        else tensor
        for tensor in tensors
    ]


def pullback(function: Callable, tensors: Sequence[Tensor]) -> tuple:
    """Return `function(*tensors)`, and the function from its gradient to those of all tensors.

    The result is a tensor or a list of them, and so is its gradient. Call the function once.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.vjp(function, *tensors)
    if backend == "tensorflow":
        import tensorflow as tf

        # A copy each: gradients count from here, not from where the tensors come from.
        tensors = [tf.identity(tensor) for tensor in tensors]
        moving = [tensor for tensor in tensors if tensor.dtype.is_floating]
        # Not a persistent tape: TensorFlow would keep the values of a loop for a second derivative,
        # which XLA cannot compile where it does not know the number of steps.
        with tf.GradientTape() as tape:
            tape.watch(moving)
            result = function(*tensors)

        def gradients(upstream: Tensor) -> list:
            pairs = zip(tree.flatten(result), tree.flatten(upstream), strict=True)
            reached = [pair for pair in pairs if pair[0].dtype.is_floating]
            targets = [[target for target, _ in reached], [given for _, given in reached]]
            found = tape.gradient(targets[0], moving, targets[1], unconnected_gradients="zero")
            return [
                found.pop(0) if tensor.dtype.is_floating else tf.zeros_like(tensor)
                for tensor in tensors
            ]

        return result, gradients
    import torch

    is_inner = torch.is_grad_enabled()  # the derivative will be differentiated again
    with torch.enable_grad():
        copies = [tensor.view_as(tensor) if is_inner else tensor.detach() for tensor in tensors]
        tensors = [copy if copy.requires_grad else copy.requires_grad_() for copy in copies]
        result = function(*tensors)

    def torch_gradients(upstream: Tensor) -> list:
        pairs = zip(tree.flatten(result), tree.flatten(upstream), strict=True)
        reached = [pair for pair in pairs if pair[0].requires_grad]
        if not reached:
            return [ops.zeros_like(tensor) for tensor in tensors]
        results, upstreams = zip(*reached, strict=True)
        found = torch.autograd.grad(
            results,
            tensors,
            upstreams,
            allow_unused=True,
            retain_graph=True,
            create_graph=torch.is_grad_enabled(),
        )
        pairs = zip(tensors, found, strict=True)
        return [ops.zeros_like(tensor) if one is None else one for tensor, one in pairs]

    if is_inner:
        return result, torch_gradients
    return tree.map_structure(lambda one: one.detach(), result), torch_gradients


class VariableRecorder(keras.StatelessScope):
    """A scope that records which variables are read in it."""

    def __init__(self) -> None:
        super().__init__()
        self.read: dict[int, Tensor] = {}

    def get_current_value(self, variable: Tensor) -> Tensor:
        self.read[id(variable)] = variable
        value = super().get_current_value(variable)
        if value is None and self.original_scope is not None:
            # While JAX trains, the scope around this one alone holds the values.
            value = self.original_scope.get_current_value(variable)
        return value


def variables_read(function: Callable) -> tuple[list, bool]:
    """Call a function; return the variables that it reads, and whether it assigns any.

    A custom gradient reaches only the arguments of its function, so the variables become arguments.
    A function that draws random numbers assigns the state of its seed.
    """
    with VariableRecorder() as recorder:
        function()
    return list(recorder.read.values()), bool(recorder.state_mapping)
