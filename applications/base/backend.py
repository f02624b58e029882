"""Checks of the Keras backend, and functions compiled for it."""

import os
import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import tree

from keras_attention.decoding import SearchOptions

from ..errors import UserError

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


def compiled(function: Callable, model: keras.Model, *ranks: Any) -> Callable:
    """Compile a function of int32 arrays: on TensorFlow once, on JAX once for each shape.

    On PyTorch, which traces nothing, it is the function itself. The function calls `model`, whose
    weights may change between calls; `ranks` are the numbers of axes of its arguments, nested as
    they are. It changes no variable: what differs from call to call, such as a seed, is an
    argument, so that threads may call it at once.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        def spec(rank):
            return tf.TensorSpec([None] * rank, tf.int32)

        signature = tf.nest.map_structure(spec, list(ranks))
        # The code is of tensor operations only: AutoGraph would find nothing to convert.
        return tf.function(function, input_signature=signature, autograph=False)
    return _compiled_by_jax(function, model) if backend == "jax" else function


class CompiledFunctions:
    """Functions that read a network, each compiled once, by its key.

    They go where the network has other variables: a graph would read those that LoRA froze, or that
    quantization replaced.
    """

    def __init__(self) -> None:
        self._functions: dict[Any, Callable] = {}
        self._variables: tuple[int, ...] = ()
        self._lock = threading.Lock()
        self._process = os.getpid()

    def __contains__(self, key: Any) -> bool:
        return key in self._functions

    def __len__(self) -> int:
        return len(self._functions)

    def clear(self) -> None:
        """Forget all, so that the next call compiles."""
        self._functions.clear()

    def check_process(self) -> None:
        """Refuse to run in a process that was forked since the task was made.

        TensorFlow's and JAX's threads are not in it, and a call would wait for them for ever.
        """
        if self._process != os.getpid() and keras.backend.backend() != "torch":
            raise RuntimeError(
                "The model was made before this process was forked, and "
                f"{NAMES[keras.backend.backend()]} does not work across a fork: load the model in "
                "each worker (with gunicorn, leave `--preload` out, or load in `post_fork`). "
                f"Received: process {os.getpid()}, a model of process {self._process}"
            )

    def ready(self, key: Any, function: Callable, model: keras.Model, *ranks: Any) -> Callable:
        """Return the function of a key as `compiled` makes it; threads may ask at once."""
        self.check_process()
        variables = tuple(map(id, model.variables))
        with self._lock:
            if variables != self._variables:
                self.clear()
                self._variables = variables
            if key not in self._functions:
                self._functions[key] = compiled(function, model, *ranks)
            return self._functions[key]


def _compiled_by_jax(function, model):
    import jax

    @jax.jit
    def run(values, arguments):
        # As arguments: weights that a traced function closes over would stay as they are now.
        with keras.StatelessScope(list(zip(model.variables, values, strict=True))):
            return function(*arguments)

    def call(*arguments):
        arguments = tree.map_structure(np.asarray, arguments)  # which may be TensorFlow's
        return run([variable.value for variable in model.variables], arguments)

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


def words_of_seed(seed: int) -> np.ndarray:
    """Return the two words of 32 bits of a seed, as int32 `(2,)`."""
    return np.array([seed % 2**32, seed // 2**32 % 2**32], "uint32").view("int32")


def seeds_in_graph(options: SearchOptions, texts: Any) -> Any:
    """Return the seed of each of `texts (B,)` inside the graph of an exported search, `(B, 2)`.

    Without a seed among the options, each call and each text draws anew: by an operation without
    a state that two requests could share, whatever `keras.utils.set_random_seed` has set.
    """
    import tensorflow as tf

    if not options.sample:
        return None
    rows = tf.shape(texts)[0]
    if options.seed is not None:
        return tf.tile([words_of_seed(options.seed)], [rows, 1])
    ends = tf.constant([tf.int32.min, tf.int32.max])
    return tf.raw_ops.RandomUniformInt(shape=[rows, 2], minval=ends[0], maxval=ends[1])


def service_of(serve: Any, network: keras.Model, *kept: Any) -> Any:
    """Return a `tf.Module` that holds a `tf.function` and all that the function reads."""
    import tensorflow as tf

    module = tf.Module()
    module.serve = serve
    # The variables alone: the Keras model around them does not belong in the SavedModel.
    module.kept = [*kept, *(variable.value for variable in network.weights)]
    return module
