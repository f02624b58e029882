"""Gradients against the oracle's slopes, and one compiled training step that moves every weight."""

import keras
import numpy as np
import pytest

from tests.contracts.backend import (
    gradients_of,
    random,
    symbols_of,
    tensors_of,
    weighted_sum,
)
from tests.contracts.kinds import trainable_model, weight_of
from tests.contracts.registry import CASES, FIRST_CASES
from tests.contracts.test_calls import built, every_case, weights_of

STEP = 1e-6
ZERO = 1e-8
"""What differences in float64 leave of a slope of none, as of a bias that all keys share."""


def upstream(results):
    """Random numbers for each result, the same for layer and oracle."""
    return {key: random(60 + len(key), *value.shape) for key, value in sorted(results.items())}


def slope(case, weights, inputs, group, key, direction, factors):
    """Central difference of the oracle's weighted sum along a direction in one array."""

    def total(sign):
        moved = {"weights": dict(weights), "inputs": dict(inputs)}
        moved[group][key] = np.float64(moved[group][key]) + sign * STEP * direction
        results = case.oracle(moved["weights"], moved["inputs"])
        return sum(np.sum(np.float64(factors[name]) * value) for name, value in results.items())

    return (total(1) - total(-1)) / (2 * STEP)


def check(gradient, case, weights, inputs, group, key, factors, rounding):
    """One gradient is finite, and its projections are the oracle's slopes."""
    assert gradient is not None, f"{key} has no gradient"
    assert np.all(np.isfinite(gradient)), key
    assert np.any(gradient != 0.0), f"the gradient of {key} is zero"
    for seed in (71, 72):
        direction = np.float64(random(seed, *gradient.shape))
        expected = slope(case, weights, inputs, group, key, direction, factors)
        scale = np.linalg.norm(gradient)
        if abs(expected) < ZERO and scale < rounding:  # terms that cancel in theory
            continue
        np.testing.assert_allclose(
            np.sum(gradient * direction), expected, rtol=1e-3, atol=1e-4 * scale + 1e-6, err_msg=key
        )


@every_case
def test_gradients_are_the_slopes_of_the_oracle(name):
    case, layer = CASES[name], built(name)
    inputs = case.inputs(5)
    weights = weights_of(case, layer)
    factors = upstream(case.oracle(weights, inputs))
    moving = [key for key, array in inputs.items() if array.dtype == np.float32]

    def loss(*arrays):
        given = tensors_of(inputs) | dict(zip(moving, arrays, strict=True))
        results = case.call(layer, given)
        return sum(weighted_sum(results[key], factors[key]) for key in results)

    gradients = gradients_of(loss, *(inputs[key] for key in moving), layer=layer)
    rounding = np.finfo(np.float32).eps * np.sqrt(sum(np.sum(each**2) for each in gradients))
    of_weights, of_inputs = gradients[: len(case.weights)], gradients[len(case.weights) :]
    paths = {id(weight_of(layer, path)): path for path in case.weights}
    assert len(layer.trainable_weights) == len(case.weights)
    for variable, gradient in zip(layer.trainable_weights, of_weights, strict=True):
        path = paths[id(variable)]
        check(gradient, case, weights, inputs, "weights", path, factors, rounding)
    for key, gradient in zip(moving, of_inputs, strict=True):
        check(gradient, case, weights, inputs, "inputs", key, factors, rounding)


# XLA compiles for seconds: these stand for layers that are computed alike. That every layer
# trains, test_precision.py sees in float16.
@pytest.mark.by_default("inner-cell-gate", "pointer-generator", "multi-head")
@pytest.mark.parametrize("name", sorted(CASES))
def test_one_compiled_training_step_changes_every_weight(name):
    case = CASES[name]
    layer, inputs = case.build(), case.inputs(6)
    model = trainable_model(case, layer, inputs)
    # The first case of each layer stands for its siblings.
    jit = name in FIRST_CASES if keras.backend.backend() == "tensorflow" else "auto"
    model.compile(keras.optimizers.Adam(0.01), loss="mse", jit_compile=jit)
    model.optimizer.build(model.trainable_variables)  # or the step is traced twice
    before = weights_of(case, layer)
    target = random(50, *model.compute_output_spec(symbols_of(inputs)).shape)
    loss = model.train_on_batch(inputs, target)
    assert np.isfinite(loss)
    after = weights_of(case, layer)
    for path, value in before.items():
        assert np.any(after[path] != value), f"{path} has not changed"
        assert np.all(np.isfinite(after[path]))
    assert model.train_on_batch(inputs, target) < loss
