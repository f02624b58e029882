"""What differs between backends in the tests: gradients and compiled calls."""

import keras
import numpy as np
from keras import ops

BACKEND = keras.backend.backend()
OPEN = "BTSNW"  # the axes of any size: batch, query and memory steps, sentences, words


def to_numpy(tensor):
    """A NumPy array of a tensor of any backend and float type (bfloat16 included)."""
    if "float16" in keras.backend.standardize_dtype(tensor.dtype):
        tensor = ops.cast(tensor, "float32")
    return ops.convert_to_numpy(tensor)


def open_shape(axes, array):
    """An array's shape with None for every axis of any size, by the letters of its axes."""
    return [None if a in OPEN else n for a, n in zip(axes, array.shape, strict=True)]


def compiled(function, arrays, axes=None):
    """Compiles `function(dict of tensors)` once, with every batch and length left open.

    `axes` names the axes of every array; without it they are (batch, length, ...), or for a matrix
    of numbers (batch, features).

    TensorFlow traces it a single time under a signature without batch or length; JAX compiles it
    for each shape; PyTorch runs it as it is.
    """
    if BACKEND == "tensorflow":
        import tensorflow as tf

        def letters(name, array):
            usual = "BD" if array.ndim == 2 and array.dtype != bool else "BT" + "D" * array.ndim
            return axes[name] if axes else usual[: array.ndim]

        signature = {
            name: tf.TensorSpec(open_shape(letters(name, array), array), array.dtype)
            for name, array in arrays.items()
        }
        return tf.function(function, input_signature=[signature])
    return at_once(function)


def at_once(function):
    """`function(dict of tensors)`, which JAX compiles whole: that is faster than each operation."""
    if BACKEND != "jax":
        return function
    import jax

    def stateless(tensors):
        with keras.StatelessScope():
            return function(tensors)

    return jax.jit(stateless)


def gradients_of(function, *arrays, layer=None):
    """Gradients of the scalar `function(*tensors)`, arrays or None, in one pass.

    Those for each of `layer.trainable_weights` come first, then those for each array.
    """
    variables = [] if layer is None else layer.trainable_weights
    values = [variable.value for variable in variables]
    if not values and not arrays:
        return []
    if BACKEND == "tensorflow":
        import tensorflow as tf

        tensors = [tf.convert_to_tensor(array) for array in arrays]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            value = function(*tensors)
        gradients = tape.gradient(value, [*values, *tensors])
    elif BACKEND == "jax":
        import jax

        def stateless(values, *tensors):
            # The scope keeps what seeds become out of the program.
            with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
                return function(*tensors)

        tensors = [ops.convert_to_tensor(array) for array in arrays]
        gradient = jax.grad(stateless, argnums=tuple(range(1 + len(tensors))))
        of_values, *of_tensors = jax.jit(gradient)(values, *tensors)
        gradients = [*of_values, *of_tensors]
    else:
        import torch

        tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
        gradients = torch.autograd.grad(function(*tensors), [*values, *tensors], allow_unused=True)
    return [None if gradient is None else to_numpy(gradient) for gradient in gradients]


def weight_gradients(layer, loss):
    """Gradients of the scalar `loss()` for each of `layer.trainable_weights`, arrays or None."""
    return gradients_of(loss, layer=layer)


def input_gradients(function, *arrays):
    """Gradients of the scalar `function(*tensors)` for each array, arrays or None."""
    return gradients_of(function, *arrays)


def weighted_sum(tensor, factors):
    """The sum of a tensor's entries, each times its factor: a scalar to differentiate."""
    return ops.sum(ops.multiply(ops.cast(tensor, "float32"), ops.convert_to_tensor(factors)))


def tensors_of(arrays):
    """A dictionary of tensors from a dictionary of arrays."""
    # PyTorch makes float32 of float64, unless it is told otherwise.
    return {name: ops.convert_to_tensor(array, str(array.dtype)) for name, array in arrays.items()}


def symbols_of(arrays):
    """A dictionary of symbols of the shapes and dtypes of a dictionary of arrays."""
    return {
        name: keras.KerasTensor(array.shape, str(array.dtype)) for name, array in arrays.items()
    }


def random(seed, *shape, scale=1.0):
    """Normal float32 numbers of a fixed seed."""
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype("float32")
