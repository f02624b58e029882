"""The mean of the weights at the ends of the last epochs."""

import keras
import numpy as np


class AverageWeights(keras.callbacks.Callback):
    """Puts the mean of the weights at the last epochs' ends into the model, to be judged and kept.

    It comes before the evaluation; its part `back`, which puts the weights of training back, comes
    after the judges and before the checkpoint.

    Args:
        count: epochs at most.
    """

    def __init__(self, count: int):
        super().__init__()
        self.count = count
        self.window: list[list[np.ndarray]] = []
        self.back = keras.callbacks.LambdaCallback(on_epoch_end=self._put_back)

    def on_epoch_end(self, epoch, logs=None):
        own = [np.array(variable.numpy()) for variable in self.model.trainable_variables]
        self.window = [*self.window, own][-self.count :]
        means = [
            np.mean(arrays, axis=0, dtype="float64") for arrays in zip(*self.window, strict=True)
        ]
        self._assign(means)

    def _put_back(self, epoch, logs=None):
        self._assign(self.window[-1])

    def _assign(self, arrays):
        for variable, array in zip(self.model.trainable_variables, arrays, strict=True):
            variable.assign(array.astype(variable.dtype))

    @property
    def arrays(self) -> list[np.ndarray]:
        """What an exact resume needs: the weights at the last epochs' ends, one after another."""
        return [array for weights in self.window for array in weights]

    def restore(self, arrays: list[np.ndarray], model: keras.Model) -> None:
        """Take up `arrays` again."""
        size = len(model.trainable_variables)
        self.window = [arrays[first : first + size] for first in range(0, len(arrays), size)]
