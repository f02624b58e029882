"""The pointer-generator: the extended vocabulary, repeated and padded words, extremes."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import PointerGenerator
from keras_attention.layers.attention.pointer_generator import copy_distribution
from keras_attention.losses import MaskedNegativeLogLikelihood, masked_negative_log_likelihood
from tests.contracts.backend import (
    gradients_of,
    random,
    to_numpy,
)
from tests.contracts.entries.summarization import VOCABULARY, mixture
from tests.contracts.kinds import randomise
from tests.contracts.oracles_summarization import pointer_generator

B, T, S, EXTRA = 3, 5, 7, 4
V = VOCABULARY


@pytest.fixture
def parts():
    """A layer with random weights, and arrays whose source holds unknown and repeated words."""
    arrays = mixture(0, B, T, (S, 4, 1))
    arrays["source_ids"] = np.random.default_rng(1).integers(V - 2, V + EXTRA, (B, S))
    layer = PointerGenerator()
    del arrays["mask"]  # all steps are real here
    layer(**arrays, extra_size=EXTRA)
    return randomise(layer), arrays


def weights_of(layer):
    """The weights in float64 by name."""
    names = ("context_vector", "state_vector", "input_vector", "bias")
    return {name: np.float64(to_numpy(getattr(layer, name))) for name in names}


def test_it_agrees_with_the_oracle_over_the_extended_vocabulary(parts):
    layer, arrays = parts
    expected = pointer_generator(weights_of(layer), EXTRA, arrays)
    log_p, p_gen = layer(**arrays, extra_size=EXTRA, return_p_gen=True)
    np.testing.assert_allclose(to_numpy(log_p), expected["outputs"], atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(to_numpy(p_gen), expected["p_gen"], atol=1e-5)
    np.testing.assert_allclose(np.exp(to_numpy(log_p)).sum(axis=2), 1.0, atol=1e-5)
    at_step = {k: x if k == "source_ids" else x[:, 2] for k, x in arrays.items()}
    stepped = layer.step(**at_step, extra_size=EXTRA)
    np.testing.assert_allclose(to_numpy(stepped), expected["outputs"][:, 2], atol=1e-4, rtol=1e-4)


def test_a_repeated_word_gets_all_its_weights():
    scores = ops.convert_to_tensor([[[0.1, 0.2, 0.3, 0.4]]], dtype="float32")
    result = to_numpy(copy_distribution(scores, ops.convert_to_tensor([[2, 0, 2, 2]]), 4))
    np.testing.assert_allclose(result, [[[0.2, 0.0, 0.8, 0.0]]], rtol=1e-6)


def test_places_out_of_the_extended_vocabulary_are_never_copied():
    scores = ops.convert_to_tensor([[[0.1, 0.2, 0.3, 0.4]]], dtype="float32")
    result = to_numpy(copy_distribution(scores, ops.convert_to_tensor([[-1, 4, 1, 9]]), 4))
    np.testing.assert_allclose(result, [[[0.0, 0.3, 0.0, 0.0]]], rtol=1e-6)


def test_the_likelihood_of_targets_is_the_mixture_at_the_targets(parts):
    layer, arrays = parts
    targets = np.random.default_rng(2).integers(0, V + EXTRA, (B, T))
    log_p = to_numpy(layer(**arrays, extra_size=EXTRA))
    expected = np.take_along_axis(log_p, targets[:, :, None], axis=2)[:, :, 0]
    result = layer.log_likelihood(targets, **arrays)
    np.testing.assert_allclose(to_numpy(result), expected, atol=1e-4)
    assert np.any(targets >= V) and np.any(expected > -60)  # copied words among them


def test_both_ways_give_the_same_gradients(parts):
    layer, arrays = parts
    targets = arrays["source_ids"][:, :T]
    moving = ("logits", "scores", "context", "state", "inputs")

    def full(*tensors):
        log_p = layer(**{**arrays, **dict(zip(moving, tensors, strict=True))}, extra_size=EXTRA)
        return ops.sum(masked_negative_log_likelihood(targets, log_p, None))

    def direct(*tensors):
        given = {**arrays, **dict(zip(moving, tensors, strict=True))}
        return -ops.sum(layer.log_likelihood(targets, **given))

    inputs = [arrays[name] for name in moving]
    own, expected = (gradients_of(each, *inputs, layer=layer) for each in (full, direct))
    for ours, theirs in zip(own, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=1e-3)
        assert np.any(ours != 0.0)


@pytest.mark.parametrize("gate", [100.0, -100.0])
def test_a_saturated_gate_and_a_zero_probability_stay_finite(parts, gate):
    layer, arrays = parts
    layer.bias.assign(gate)
    arrays = {**arrays, "logits": 1e4 * arrays["logits"]}
    log_p = to_numpy(layer(**arrays, extra_size=EXTRA))
    assert np.all(np.isfinite(log_p))
    np.testing.assert_allclose(log_p.min(), np.log(1e-30), rtol=1e-3)  # never the log of 0
    targets = np.full((B, T), V + EXTRA - 1)

    def loss(logits, scores):
        given = {**arrays, "logits": logits, "scores": scores}
        return -ops.sum(layer.log_likelihood(targets, **given)) - ops.sum(
            layer(**given, extra_size=EXTRA)
        )

    gradients = gradients_of(loss, arrays["logits"], arrays["scores"], layer=layer)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


def test_it_computes_in_float32_under_half_precision(parts):
    _, arrays = parts
    keras.config.set_dtype_policy("mixed_float16")
    layer = PointerGenerator(dtype="float32")
    log_p = layer(**arrays, extra_size=EXTRA)
    assert keras.backend.standardize_dtype(log_p.dtype) == "float32"
    half = PointerGenerator()
    assert keras.backend.standardize_dtype(half(**arrays).dtype) == "float16"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source_ids": np.zeros((B, S + 1), "int32")}, "as many memory steps"),
        ({"extra_size": -1}, "extra_size=-1"),
        ({"extra_size": 2.5}, "extra_size=2.5"),
        ({"context": random(3, B, T + 1, 13)}, "as many steps"),
    ],
    ids=["ids", "negative", "half", "steps"],
)
def test_what_does_not_fit_is_refused(parts, change, message):
    layer, arrays = parts
    with pytest.raises(ValueError, match=message):
        layer(**{**arrays, "extra_size": EXTRA, **change})


def test_the_loss_of_log_probabilities():
    log_p = np.log(np.array([[[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]], [[0.1, 0.8, 0.1]] * 2]))
    target = np.array([[1, 2], [1, 0]])  # the last one is padding
    values = to_numpy(masked_negative_log_likelihood(target, log_p))
    expected = -np.log([[0.25, 0.6], [0.8, 1.0]])
    np.testing.assert_allclose(values, expected, atol=1e-6)
    loss = MaskedNegativeLogLikelihood()
    np.testing.assert_allclose(to_numpy(loss(target, log_p)), expected.sum() / 3, rtol=1e-5)
    np.testing.assert_allclose(
        to_numpy(MaskedNegativeLogLikelihood(reduction="sum")(target, log_p)), expected.sum(), 1e-5
    )
    weight = np.array([2.0, 1.0])
    weighted = (2 * expected[0].sum() + expected[1].sum()) / 5
    np.testing.assert_allclose(to_numpy(loss(target, log_p, weight)), weighted, rtol=1e-5)
    every = MaskedNegativeLogLikelihood(ignore_index=None)
    expected[1, 1] = -np.log(0.1)
    np.testing.assert_allclose(to_numpy(every(target, log_p)), expected.mean(), rtol=1e-5)
    assert to_numpy(loss(np.zeros_like(target), log_p)) == 0.0


def test_the_loss_reloads_and_refuses():
    loss = MaskedNegativeLogLikelihood(ignore_index=3, reduction="sum", name="cost")
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert type(again) is MaskedNegativeLogLikelihood
    assert again.get_config() == loss.get_config()
    with pytest.raises(ValueError, match="Received: reduction='mean'"):
        MaskedNegativeLogLikelihood(reduction="mean")
    with pytest.raises(ValueError, match="Received: target of shape"):
        masked_negative_log_likelihood(np.zeros((2, 3)), np.zeros((2, 4, 5)))
