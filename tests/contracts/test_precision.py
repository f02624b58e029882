"""Mixed precision: the policy's dtypes out, float32 weights, results near the float64 oracle."""

import keras
import numpy as np
import pytest

from tests.contracts.backend import (
    BACKEND,
    at_once,
    random,
    symbols_of,
    tensors_of,
    to_numpy,
)
from tests.contracts.kinds import model_of, trainable_model
from tests.contracts.registry import CASES, FIRST_CASES, STEPPED
from tests.contracts.test_calls import every_case, of_real_queries, weights_of

HALVES = {"mixed_float16": ("float16", 2e-2), "mixed_bfloat16": ("bfloat16", 8e-2)}


@pytest.mark.parametrize("policy", HALVES)
@every_case
def test_results_are_in_the_compute_dtype_and_near_the_oracle(name, policy):
    keras.config.set_dtype_policy(policy)
    dtype, tolerance = HALVES[policy]
    case = CASES[name]
    layer, inputs = case.build(), case.inputs()
    assert all(weight.dtype == "float32" for weight in layer.trainable_weights)
    expected = case.oracle(weights_of(case, layer), inputs)
    model = model_of(case, layer, inputs)

    def forms_of(tensors):
        steps = {"steps": case.run_steps(layer, tensors)} if name in STEPPED else {}
        return {"call": case.call(layer, tensors), "symbolic": model(tensors), **steps}

    for form, results in at_once(forms_of)(tensors_of(inputs)).items():
        for key, value in results.items():
            assert keras.backend.standardize_dtype(value.dtype) == dtype, (form, key)
            real = of_real_queries(case, key, inputs) if form == "steps" else True
            np.testing.assert_allclose(
                np.where(real, to_numpy(value), 0),
                np.where(real, expected[key], 0),
                atol=tolerance,
                rtol=tolerance,
                err_msg=f"{form} {key}",
            )


def doubled(array):
    """Numbers of float64, none of which is one of float32."""
    return np.float64(array) * (np.pi / 3) if array.dtype == np.float32 else array


@pytest.mark.skipif(BACKEND != "tensorflow", reason="Keras takes float64 for float32 there")
@every_case
def test_float64_stays_float64(name):
    """No step rounds to float32 on the way."""
    keras.config.set_dtype_policy("float64")
    case = CASES[name]
    inputs = {key: doubled(array) for key, array in case.inputs().items()}
    if "scores" in inputs:  # attention weights that are given add up to 1
        inputs["scores"] = inputs["scores"] / inputs["scores"].sum(axis=-1, keepdims=True)
    layer = case.build()
    for weight in layer.weights:
        if "seed" not in weight.path:
            weight.assign(doubled(to_numpy(weight)))
    expected = case.oracle(weights_of(case, layer), inputs)

    def forms_of(tensors):
        steps = {"steps": case.run_steps(layer, tensors)} if name in STEPPED else {}
        return {"call": case.call(layer, tensors), **steps}

    for form, results in at_once(forms_of)(tensors_of(inputs)).items():
        for key, value in results.items():
            assert keras.backend.standardize_dtype(value.dtype) == "float64", (form, key)
            real = of_real_queries(case, key, inputs) if form == "steps" else True
            np.testing.assert_allclose(
                np.where(real, to_numpy(value), 0),
                np.where(real, expected[key], 0),
                atol=1e-12,
                rtol=1e-12,
                err_msg=f"{form} {key}",
            )


@pytest.mark.parametrize("policy", HALVES)
@pytest.mark.parametrize("name", sorted(FIRST_CASES))
def test_a_training_step_in_mixed_precision(name, policy):
    """A few steps lower the loss and stay finite.

    `LossScaleOptimizer` comes with `mixed_float16`, and leaves steps out until its scale fits.
    """
    keras.config.set_dtype_policy(policy)
    case = CASES[name]
    layer, inputs = case.build(), case.inputs(6, steps=4, lengths=(5, 4, 1))
    model = trainable_model(case, layer, inputs)
    # Four steps of TensorFlow take less than tracing one; JAX compiles them, or each operation.
    compiled = {"jit_compile": True} if BACKEND == "jax" else {"run_eagerly": True}
    model.compile(keras.optimizers.Adam(0.01), "mse", **compiled)
    target = random(50, *model.compute_output_spec(symbols_of(inputs)).shape)
    losses = [model.train_on_batch(inputs, target) for _ in range(4)]
    assert np.all(np.isfinite(losses))
    assert losses[-1] < losses[0]
    assert all(np.all(np.isfinite(value)) for value in weights_of(case, layer).values())
