"""Compiled functions, training steps and the base class of programs that are made of Keras layers.

TensorFlow and JAX each have their own.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from benchmarks.speed.problems import LEARNING_RATE, Problem, make_inputs, make_weights


def compiled(function: Callable, variables: Sequence[Any], uses_xla: bool) -> Callable:
    """Return a function of arrays that reads `variables`, compiled; on JAX it is always by XLA."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=uses_xla)
    import jax

    @jax.jit
    def run(values, *arrays):
        # As arguments: XLA would fold what the function closes over.
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            return function(*arrays)

    return lambda *arrays: jax.block_until_ready(run([v.value for v in variables], *arrays))


def training_step(
    loss: Callable, variables: Sequence[Any], uses_xla: bool, updates: bool = True
) -> Callable:
    """Return a compiled step of SGD; it gives the loss and the gradients.

    `loss(sources, *arrays)` reads `variables`. The gradients are those of the variables, and then
    of the `sources`, a list. Without `updates` the variables stay. On JAX each step draws the same
    dropouts.
    """
    if keras.backend.backend() == "tensorflow":
        return _of_tensorflow(loss, variables, uses_xla, updates)
    import jax

    def loss_of(values, sources, arrays):
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            return loss(sources, *arrays)

    @jax.jit
    def run(values, sources, *arrays):
        found, (weights, others) = jax.value_and_grad(loss_of, (0, 1))(values, sources, arrays)
        after = [x - LEARNING_RATE * g for x, g in zip(values, weights, strict=True)]
        return found, [*weights, *others], after if updates else values

    def step(sources, *arrays):
        values = [variable.value for variable in variables]
        found, gradients, values = jax.block_until_ready(run(values, sources, *arrays))
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        return found, gradients

    return step


def _of_tensorflow(loss, variables, uses_xla, updates):
    import tensorflow as tf

    optimizer = keras.optimizers.SGD(LEARNING_RATE)
    optimizer.build(variables)

    @tf.function(jit_compile=uses_xla)
    def step(sources, *arrays):
        read = [*(variable.value for variable in variables), *sources]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            found = loss(sources, *arrays)
        # Zeros, since the yardstick of a comparison may not read the memory.
        gradients = tape.gradient(found, read, unconnected_gradients="zero")
        if updates:
            optimizer.apply(gradients[: len(variables)], variables)
        return found, gradients

    return step


def to_numpy(result: Any) -> np.ndarray:
    """Return a float32 array, also of an embedding's gradient, which TensorFlow keeps by rows."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        result = tf.convert_to_tensor(result)
    return ops.convert_to_numpy(ops.cast(result, "float32"))


class KerasProgram:
    """A subclass gives `build(problem)` and `call(inputs, value, mask, states)`.

    One whose outputs are losses names further arrays in `arrays`, and gives its own `loss`.

    `build` makes the layers, built, and returns the variable of each shared weight by name.
    Weights named in `transposed` are held the other way round; beside the weights', the gradients
    of the inputs in `differentiated` are taken. Arrays are arguments of the
    compiled functions, so that none is folded into the graph.
    """

    arrays: tuple[str, ...] = ("inputs", "value", "mask", "states")
    transposed: frozenset[str] = frozenset()
    differentiated: tuple[str, ...] = ("inputs", "value")

    def __init__(self, problem: Problem, uses_xla: bool):
        weights = make_weights(problem)
        self._names, variables = [], []
        for name, variable in self.build(problem).items():
            variable.assign(self._turn(name, weights[name]))
            self._names.append(name)
            variables.append(variable)
        arrays = make_inputs(problem)
        self._arrays = [ops.convert_to_tensor(arrays[name]) for name in self.arrays]
        self._targets = ops.convert_to_tensor(arrays["targets"])
        self._forward = compiled(self.call, variables, uses_xla)
        self._train = training_step(self._loss_of, variables, uses_xla)

    def _turn(self, name: str, array: np.ndarray) -> np.ndarray:
        return array.T if name in self.transposed else array

    def build(self, problem: Problem) -> dict:
        raise NotImplementedError

    def call(self, inputs, value, mask, states):
        raise NotImplementedError

    def loss(self, outputs, targets):
        return ops.mean(ops.square(outputs - targets))

    def call_in_training(self, *arrays):
        """`call`, of a program whose layers want to know that a gradient will be asked for."""
        return self.call(*arrays)

    def _loss_of(self, sources, *arrays):
        *arrays, targets = arrays
        given = dict(zip(self.differentiated, sources, strict=True))
        named = zip(self.arrays, arrays, strict=True)
        return self.loss(
            self.call_in_training(*(given.get(name, array) for name, array in named)), targets
        )

    def forward(self) -> Any:
        # Not as NumPy's: the copy from a GPU would take longer than the pass.
        return self._forward(*self._arrays)

    def train(self):
        sources = self._arrays[: len(self.differentiated)]
        loss, gradients = self._train(sources, *self._arrays, self._targets)
        names = [*self._names, *self.differentiated]

        def all_to_numpy():
            pairs = zip(names, gradients, strict=True)
            return {name: self._turn(name, to_numpy(part)) for name, part in pairs}

        return float(loss), all_to_numpy
