"""Parts of a training on their own: the mean of weights, and the scaled loss."""

import keras
import numpy as np
import pytest

from keras_attention.applications.training.callbacks import AverageWeights
from keras_attention.applications.training.fit import with_scaled_loss


def test_the_mean_of_the_last_epochs_is_judged_and_training_goes_on_with_its_own():
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.Dense(2)(inputs))
    epochs = np.random.default_rng(4).exponential(size=(6, 3, 2))  # a mean is no median
    average = AverageWeights(3)
    average.set_model(model)
    average.back.set_model(model)
    for epoch, kernel in enumerate(epochs):
        if epoch == 4:  # as after a resume, with what a checkpoint holds
            arrays, average = average.arrays, AverageWeights(3)
            average.set_model(model)
            average.back.set_model(model)
            average.restore(arrays, model)
        model.layers[-1].set_weights([kernel, epoch * np.ones(2)])
        average.on_epoch_end(epoch)
        first = max(0, epoch - 2)
        mean, bias = model.layers[-1].get_weights()
        np.testing.assert_allclose(mean, epochs[first : epoch + 1].mean(axis=0), rtol=1e-6)
        np.testing.assert_allclose(bias, np.arange(first, epoch + 1).mean(), rtol=1e-6)
        average.back.on_epoch_end(epoch, None)
        np.testing.assert_array_equal(model.layers[-1].get_weights()[0], np.float32(kernel))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16", "float32"])
def test_the_loss_is_scaled_in_mixed_float16_alone(policy):
    network = keras.Sequential([keras.layers.Dense(2)])
    network.dtype_policy = keras.dtype_policies.get(policy)
    scaling = keras.optimizers.LossScaleOptimizer
    for given in ("adam", keras.optimizers.SGD()):
        optimizer = with_scaled_loss(given, network)
        assert isinstance(optimizer, scaling) == (policy == "mixed_float16")
    own = scaling(keras.optimizers.SGD())
    assert with_scaled_loss(own, network) is own
    assert with_scaled_loss(None, network) is None
