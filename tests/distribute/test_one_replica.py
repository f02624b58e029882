"""Training that leaves no graph behind on TensorFlow, and is the same."""

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attention.distribute import ReleasesGraphs


class Small(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def call(self, x):
        return self.dense(x)


class Released(ReleasesGraphs, Small):
    pass


def operations():
    """Return how many operations there are in graphs that something holds."""
    gc.collect()
    graphs = [each for each in gc.get_objects() if issubclass(type(each), tf.Graph)]
    return sum(len(each.get_operations()) for each in graphs)


def trained(cls, optimizer):
    """Return the weights after a training."""
    keras.utils.set_random_seed(1)
    model = cls()
    model.compile(optimizer(), "mse", jit_compile=False)
    x = np.random.default_rng(1).normal(size=(8, 4))
    model.fit(x, x[:, :3], batch_size=4, epochs=3, verbose=0)
    return model.get_weights()


OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.1, global_clipnorm=1.0),
    "accumulation": lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
    "mean weights": lambda: keras.optimizers.AdamW(0.1, use_ema=True, ema_overwrite_frequency=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_is_the_same_and_leaves_nothing_behind(name):
    optimizer = OPTIMIZERS[name]
    expected = trained(Small, optimizer)
    trained(Released, optimizer)
    before = operations()
    found = trained(Released, optimizer)
    assert operations() <= before  # graphs of earlier tests may go in between
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_training_with_a_scaled_loss_is_the_same():
    def scaled():
        return keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.1))

    for one, other in zip(trained(Released, scaled), trained(Small, scaled), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_step_in_a_cross_replica_context_is_that_of_keras():
    steps = []

    class Step:
        optimizer = None

        def train_step(self, data):
            steps.append(data)

    model = type("Model", (ReleasesGraphs, Step), {})()
    context = tf.distribute.get_replica_context()
    context.merge_call(lambda strategy: model.train_step("data"))
    assert steps == ["data"]


def test_under_a_strategy_keras_adds_up():
    strategy = tf.distribute.OneDeviceStrategy("cpu:0")
    with strategy.scope():
        found = trained(Released, OPTIMIZERS["adam"])
    for one, other in zip(found, trained(Small, OPTIMIZERS["adam"]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
