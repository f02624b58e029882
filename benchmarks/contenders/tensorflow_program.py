"""What every TensorFlow program shares: the compiled forward pass and training step."""

import keras
import numpy as np
import tensorflow as tf

from benchmarks.problems import LEARNING_RATE, Problem, make_inputs, make_weights


class TensorFlowProgram:
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

    def __init__(self, problem: Problem, compiled: bool):
        weights = make_weights(problem)
        self._names, self._variables = [], []
        for name, variable in self.build(problem).items():
            variable.assign(self._turn(name, weights[name]))
            self._names.append(name)
            self._variables.append(variable)
        arrays = make_inputs(problem)
        self._arrays = [tf.constant(arrays[name]) for name in self.arrays]
        self._targets = tf.constant(arrays["targets"])
        self._optimizer = keras.optimizers.SGD(LEARNING_RATE)
        self._optimizer.build(self._variables)
        self._forward = tf.function(self.call, jit_compile=compiled)
        self._train = tf.function(self._step, jit_compile=compiled)

    def _turn(self, name: str, array: np.ndarray) -> np.ndarray:
        return array.T if name in self.transposed else array

    def build(self, problem: Problem) -> dict:
        raise NotImplementedError

    def call(self, inputs, value, mask, states):
        raise NotImplementedError

    def loss(self, outputs, targets):
        return tf.reduce_mean(tf.square(outputs - targets))

    def call_in_training(self, *arrays):
        """`call`, of a program whose layers want to know that a gradient will be asked for."""
        return self.call(*arrays)

    def _step(self, inputs, value, *rest):
        *rest, targets = rest
        weights = [variable.value for variable in self._variables]
        with tf.GradientTape() as tape:
            sources = [{"inputs": inputs, "value": value}[name] for name in self.differentiated]
            tape.watch(sources)
            loss = self.loss(self.call_in_training(inputs, value, *rest), targets)
        # Zeros, since the yardstick of a comparison may not read the memory.
        gradients = tape.gradient(loss, [*weights, *sources], unconnected_gradients="zero")
        self._optimizer.apply(gradients[: len(weights)], self._variables)
        return loss, gradients

    def forward(self) -> np.ndarray:
        return self._forward(*self._arrays).numpy()

    def train(self):
        loss, gradients = self._train(*self._arrays, self._targets)
        names = [*self._names, *self.differentiated]

        def to_numpy():
            pairs = zip(names, gradients, strict=True)
            return {name: self._turn(name, part.numpy()) for name, part in pairs}

        return float(loss), to_numpy
