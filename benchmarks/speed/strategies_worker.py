"""A process of `strategies`: the real command, or the input pipeline without training.

`REPLICAS train ...` runs the command, whose lines in metrics.jsonl then also count traces;
`REPLICAS feed RUN STEPS` prints how many tokens a second a run's training data come with.
"""

import json
import sys
import time

import keras
import numpy as np
import tensorflow as tf

from keras_attention.applications.base.train import config_of
from keras_attention.applications.command import main
from keras_attention.applications.training.run_folder import MetricsLog
from keras_attention.applications.translation import Translator


def train(arguments: list[str]) -> int:
    """Run the command; count how often the loss is traced."""
    traces = []
    compute_loss, append = keras.Model.compute_loss, MetricsLog.append

    def counting(self, *arguments, **settings):
        traces.append(None)
        return compute_loss(self, *arguments, **settings)

    keras.Model.compute_loss = counting
    MetricsLog.append = lambda self, line: append(self, {**line, "traces": len(traces)})
    return main(arguments)


def feed(path: str, steps: int) -> float:
    """Return tokens a second of `steps` batches, after as many that are not counted."""
    task, config = Translator.from_preset(path), config_of(Translator, path)
    section = config.training
    encoded = task.encode(Translator.read(config, "train"))
    batches = task.make_batches(encoded, seed=section.seed, **task.batch_options(section))
    dataset = iter(batches.to_dataset(0))
    for _ in range(steps):
        next(dataset)
    start, tokens = time.monotonic(), 0
    for _ in range(steps):
        tokens += np.count_nonzero(next(dataset)[1])
    return tokens / (time.monotonic() - start)


if __name__ == "__main__":
    replicas, verb, *more = sys.argv[1:]
    if verb == "feed":
        print(json.dumps({"tokens_per_second": feed(more[0], int(more[1]))}))
        sys.exit(0)
    if not any("multi-worker" in argument for argument in more):
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * int(replicas),
        )
    sys.exit(train([verb, *more]))
