"""One worker of a training: `worker.py OUTPUT [plain]`, with TF_CONFIG in the environment."""

import json
import sys

import keras
import numpy as np

from keras_attention.distribute import find_cluster, multi_worker_strategy
from tests.distribute.same_training import train


def plain(strategy):
    """Train as Keras does by itself."""
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
    model.fit(np.ones((8, 3)), np.ones((8, 1)), verbose=0)


if __name__ == "__main__":
    output, *options = sys.argv[1:]
    worker_strategy = multi_worker_strategy(find_cluster(), timeout=60)
    if "plain" in options:
        plain(worker_strategy)
    else:
        model, log, evaluated = train(worker_strategy)
        arrays = [
            np.asarray(variable) for variable in [*model.variables, *model.optimizer.variables]
        ]
        np.savez(output, *arrays, log=json.dumps([*log, evaluated]))
