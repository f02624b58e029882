"""A small training through the run module, and what it leaves behind."""

import itertools
import os
import signal
from types import SimpleNamespace

import keras
import numpy as np
import tensorflow as tf

from keras_attention.applications.schema.training import TrainingConfig
from keras_attention.applications.training.determinism import seeded
from keras_attention.applications.training.devices import DistributeConfig, model_scope
from keras_attention.applications.training.fit import train
from keras_attention.applications.training.run_folder import Checkpoints, RunFolder, read_metrics

STEPS = 5
LENGTHS = (3, 7, 5, 11, 2)


def batch(step):
    """A batch that depends on its step alone: each token is to be followed by the next number."""
    generator = np.random.default_rng(step)
    ids = generator.integers(1, 13, size=(4, LENGTHS[step % len(LENGTHS)])).astype("int32")
    ids[0, 1:] = 0
    return ids, np.where(ids > 0, 1 + ids % 12, 0).astype("int32")


def batches(start_step):
    def generate():
        step = start_step
        while True:
            yield batch(step)
            step += 1

    signature = (tf.TensorSpec([None, None], tf.int32),) * 2
    return tf.data.Dataset.from_generator(generate, output_signature=signature)


ONE_DEVICE = DistributeConfig()


class CountingModel(keras.Sequential):
    traces, counts_tokens = 0, True

    def compute_loss(self, *arguments, **settings):
        self.traces += 1
        return super().compute_loss(*arguments, **settings)


def make_model():
    model = CountingModel(
        [
            keras.layers.Embedding(13, 6),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(7, "tanh"),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(13),
        ]
    )
    model.build((None, None))
    return model


def make_run(path):
    with RunFolder.prepare(path, "translation") as folder:
        (folder / "config.yaml").write_text("")
    return RunFolder(path)


def terminate_at(count):
    """A method that has the process end by SIGTERM at its so-many-th call."""
    calls = itertools.count(1)

    def method(self, *_, **__):
        if next(calls) == count:
            os.kill(os.getpid(), signal.SIGTERM)

    return method


class Evaluate:
    """The loss on one held-out batch; fails at the `fail_at`-th call, as a kill there would."""

    def __init__(self, model, fail_at=None, values=()):
        self.model = model
        self.calls = 0
        self.fail_at = fail_at
        self.values = values

    def __call__(self):
        self.calls += 1
        if self.calls == self.fail_at:
            raise InterruptedError
        if self.values:
            value = self.values[self.calls - 1]
            return value if isinstance(value, dict) else {"val_loss": value}
        inputs, labels = batch(10**6)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
        return {"val_loss": float(loss(labels, self.model(inputs)))}


def fit(
    run,
    evaluate_options=(),
    batches=batches,
    distribute=ONE_DEVICE,
    callbacks=(),
    judge=None,
    **settings,
):
    settings = {"epochs": 4, "tensorboard": False, "deterministic": False, **settings}
    config = TrainingConfig(**settings)
    whole = SimpleNamespace(training=config, distribute=distribute)
    with seeded(config):
        with model_scope(whole):
            model = make_model()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
        evaluate = Evaluate(model, **dict(evaluate_options))
        more = {"callbacks": callbacks, "judge": judge}
        outcome = train(run, config, model, loss, batches, STEPS, evaluate, **more)
    return outcome, model


def saved(run):
    """All that a run leaves behind but times: variables, state, best weights, metrics."""
    checkpoint, _ = Checkpoints(run.checkpoints).latest()
    timeless = {k: v for k, v in checkpoint.state["callbacks"].items() if k != "time"}
    best = make_model()
    best.load_weights(run.best_weights)
    lines = [
        {k: v for k, v in line.items() if "second" not in k} for line in read_metrics(run.metrics)
    ]
    return checkpoint.step, checkpoint.arrays, timeless, best.get_weights(), lines


def assert_same_runs(one, other):
    (step, arrays, state, best, lines), (step2, arrays2, state2, best2, lines2) = one, other
    assert (step, state, lines) == (step2, state2, lines2)
    for a, b in zip(arrays + best, arrays2 + best2, strict=True):
        np.testing.assert_array_equal(a, b)
