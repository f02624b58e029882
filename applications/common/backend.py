"""Checks of the Keras backend, and functions compiled for it."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import tree

from keras_attention.decoding import SearchOptions

from .errors import UserError

NAMES = {"tensorflow": "TensorFlow", "jax": "JAX"}


def require_backend(action: str, *accepted: str) -> None:
    """Refuse to go on with another backend than one of `accepted`: TensorFlow, if none is named."""
    accepted = accepted or ("tensorflow",)
    backend = keras.backend.backend()
    if backend not in accepted:
        needed = " or ".join(NAMES[name] for name in accepted)
        raise UserError(
            f"{action} needs {needed} in this version, and Keras runs on {backend}: set "
            f"KERAS_BACKEND={accepted[0]}."
        )


def compiled(
    function: Callable, model: keras.Model, *ranks: Any, changing: Sequence[keras.Variable] = ()
) -> Callable:
    """Compile a function of int32 arrays: on TensorFlow once, on JAX once for each shape.

    On PyTorch, which traces nothing, it is the function itself. The function calls `model`, whose
    weights may change between calls; `ranks` are the numbers of axes of its arguments, nested as
    they are, and `changing` variables beside the model's that a call changes, such as the state of
    a seed generator.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        def spec(rank):
            return tf.TensorSpec([None] * rank, tf.int32)

        signature = tf.nest.map_structure(spec, list(ranks))
        # The code is of tensor operations only: AutoGraph would find nothing to convert.
        return tf.function(function, input_signature=signature, autograph=False)
    return _compiled_by_jax(function, model, changing) if backend == "jax" else function


class CompiledFunctions:
    """Functions that read a network, each compiled once, by its key.

    They go where the network has other variables: a graph would read those that LoRA froze, or that
    quantization replaced.
    """

    def __init__(self) -> None:
        self._functions: dict[Any, Callable] = {}
        self._variables: tuple[int, ...] = ()

    def __contains__(self, key: Any) -> bool:
        return key in self._functions

    def __len__(self) -> int:
        return len(self._functions)

    def clear(self) -> None:
        """Forget all, so that the next call compiles."""
        self._functions.clear()

    def ready(
        self, key: Any, function: Callable, model: keras.Model, *ranks: Any, changing: Any = ()
    ) -> Callable:
        """Return the function of a key as `compiled` makes it."""
        variables = tuple(map(id, model.variables))
        if variables != self._variables:
            self.clear()
            self._variables = variables
        if key not in self._functions:
            self._functions[key] = compiled(function, model, *ranks, changing=changing)
        return self._functions[key]


def _compiled_by_jax(function, model, changing):
    import jax

    @jax.jit
    def run(values, arguments):
        # As arguments: weights that a traced function closes over would stay as they are now.
        with keras.StatelessScope(list(zip(variables(), values, strict=True))) as scope:
            results = function(*arguments)
        return results, [scope.get_current_value(variable) for variable in changing]

    def variables():
        return [*model.variables, *changing]

    def call(*arguments):
        arguments = tree.map_structure(np.asarray, arguments)  # which may be TensorFlow's
        results, values = run([variable.value for variable in variables()], arguments)
        for variable, value in zip(changing, values, strict=True):
            variable.assign(value)
        return results

    return call


def of_at_most(letters: int, **columns: Any) -> list[Any]:
    """Return tensors of strings, in a graph that fails where a string has more letters.

    The names of the columns are those of the signature, for the message.
    """
    import tensorflow as tf

    def checked(name, strings):
        longest = tf.reduce_max(tf.strings.length(strings, unit="UTF8_CHAR"))
        said = f"`{name}` should have at most {letters} letters a text (`max_letters` of `export`)."
        check = tf.debugging.Assert(longest <= letters, [f"{said} Received:", longest])
        with tf.control_dependencies([check]):  # before any work is done for it
            return tf.identity(strings)

    return [checked(name, strings) for name, strings in columns.items()]


def seed_of_service(options: SearchOptions) -> keras.random.SeedGenerator | None:
    """Return what an exported search draws from anew at each call; None where nothing is drawn, or
    the options' seed draws the same each time. The module has to keep its state."""
    return keras.random.SeedGenerator() if options.sample and options.seed is None else None


def service_of(serve: Any, network: keras.Model, *kept: Any, seed: Any = None) -> Any:
    """Return a `tf.Module` that holds a `tf.function` and all that the function reads."""
    import tensorflow as tf

    module = tf.Module()
    module.serve = serve
    # The variables alone: the Keras model around them does not belong in the SavedModel.
    variables = network.weights if seed is None else [*network.weights, seed.state]
    module.kept = [*kept, *(variable.value for variable in variables)]
    return module
