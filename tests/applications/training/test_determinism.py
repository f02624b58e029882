"""A seed gives the same weights, and TensorFlow's switch for that is given back."""

import contextlib
import json
import warnings

import keras
import numpy as np
import pytest

from keras_attention.applications.schema.training import TrainingConfig
from keras_attention.applications.training.determinism import seeded
from tests.applications.small_training import assert_same_runs, fit, make_run, saved


def test_a_seed_gives_the_same_weights_and_another_others(tmp_path):
    runs = [make_run(tmp_path / name) for name in ("a", "b", "c")]
    for run, seed in zip(runs, (3, 3, 4), strict=True):
        fit(run, epochs=1, seed=seed)
    one, same, other = (saved(run) for run in runs)
    assert_same_runs(one, same)
    assert not np.array_equal(one[1][0], other[1][0])
    assert json.dumps(one[4]) == json.dumps(same[4])


def compiles_with_xla():
    """Whether Keras gives a model XLA: under deterministic operations it warns and does not."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.compile("sgd", "mse", jit_compile=True)
    return not caught and model.jit_compile


@pytest.mark.parametrize("fails", [False, True])
def test_operations_are_deterministic_in_a_training_and_as_before_behind_it(tmp_path, fails):
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            seen.append(compiles_with_xla())
            if fails:
                raise InterruptedError

    with pytest.raises(InterruptedError) if fails else contextlib.nullcontext():
        fit(make_run(tmp_path / "run"), epochs=1, deterministic=True, callbacks=[Watch()])
    assert seen == [False] and compiles_with_xla()


def test_a_training_inside_another_leaves_the_switch_on():
    with seeded(TrainingConfig(deterministic=True)):
        with seeded(TrainingConfig(deterministic=True)):
            pass
        assert not compiles_with_xla()
