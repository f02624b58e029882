"""Additive attention beyond the contract: parity with Keras, masks with holes, dropout."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import BahdanauAttention
from tests.contracts.backend import random, to_numpy

B, T, S, D, V, U = 3, 5, 7, 11, 13, 17


def attend(layer, query, value, **options):
    """Contexts and scores as arrays."""
    results = layer(
        ops.convert_to_tensor(query),
        ops.convert_to_tensor(value),
        **{k: ops.convert_to_tensor(v) if v is not True else v for k, v in options.items()},
        return_attention_scores=True,
    )
    return tuple(to_numpy(result) for result in results)


def test_with_identity_projections_it_is_keras_additive_attention():
    """Keras' layer has no projections: W = U = I and v its scale give the same."""
    ours, keras_layer = BahdanauAttention(D), keras.layers.AdditiveAttention()
    query, value = random(1, B, T, D), random(2, B, S, D)
    mask = np.arange(S) < np.array([7, 3, 5])[:, None]
    attend(ours, query, value)
    keras_layer([query, value])
    ours.query_kernel.assign(np.eye(D))
    ours.key_kernel.assign(np.eye(D))
    ours.score_vector.assign(random(3, D))
    keras_layer.scale.assign(ours.score_vector)
    context, scores = attend(ours, query, value, value_mask=mask)
    expected, expected_scores = keras_layer(
        [query, value], mask=[None, ops.convert_to_tensor(mask)], return_attention_scores=True
    )
    np.testing.assert_allclose(scores, to_numpy(expected_scores), atol=1e-5)
    np.testing.assert_allclose(context, to_numpy(expected), atol=1e-5)


def test_a_zero_score_vector_attends_to_all_alike():
    """The paper's own start; so a test that does not randomise it proves nothing."""
    layer = BahdanauAttention(U, score_initializer="zeros")
    value = random(4, B, S, V)
    mask = np.arange(S) < np.array([7, 3, 1])[:, None]
    context, scores = attend(layer, random(5, B, T, D), value, value_mask=mask)
    expected = np.repeat((mask / mask.sum(axis=1, keepdims=True))[:, None], T, axis=1)
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    np.testing.assert_allclose(context[1, 2], value[1, :3].mean(axis=0), atol=1e-5)


def test_a_masked_position_in_the_middle_is_as_if_it_were_not_there():
    layer = BahdanauAttention(U, use_bias=True)
    query, value = random(6, B, T, D), random(7, B, S, V)
    mask = np.array([True, False, True, True, False, True, False])
    context, scores = attend(layer, query, value, value_mask=np.repeat(mask[None], B, axis=0))
    shorter, shorter_scores = attend(layer, query, value[:, mask])
    np.testing.assert_allclose(context, shorter, atol=1e-5)
    np.testing.assert_allclose(scores[:, :, mask], shorter_scores, atol=1e-6)
    assert np.all(scores[:, :, ~mask] == 0.0)


def test_a_masked_query_reads_nothing():
    layer = BahdanauAttention(U)
    mask = np.arange(T) < np.array([5, 2, 0])[:, None]
    context, scores = attend(layer, random(8, B, T, D), random(9, B, S, V), query_mask=mask)
    np.testing.assert_allclose(scores.sum(axis=2), mask.astype("float32"), atol=1e-5)
    assert np.all(scores[~mask] == 0.0) and np.all(context[~mask] == 0.0)


def test_projections_of_one_shape_start_unequal():
    """One initializer for both must not give W = U, which would score q + k and no more."""
    layer = BahdanauAttention(U)
    layer.build((None, None, D), (None, None, D))
    assert np.any(to_numpy(layer.query_kernel.value) != to_numpy(layer.key_kernel.value))


def test_bias_exists_only_where_it_is_asked_for():
    plain, biased = BahdanauAttention(U), BahdanauAttention(U, use_bias=True)
    for layer in (plain, biased):
        layer.build((None, None, D), (None, None, V))
    assert len(plain.weights) == 3 and len(biased.weights) == 4
    assert tuple(biased.bias.shape) == (U,)


def test_dropout_drops_memory_positions_in_training_only():
    rate = 0.5
    layer = BahdanauAttention(U, dropout=rate, seed=3)
    value = np.repeat(np.eye(S, dtype="float32")[None], 200, axis=0)  # the context is the weights
    query = random(10, 200, T, D)
    quiet, scores = attend(layer, query, value)
    np.testing.assert_allclose(quiet, scores, atol=1e-6)
    dropped, dropped_scores = attend(layer, query, value, training=True)
    np.testing.assert_allclose(dropped_scores, scores, atol=1e-6)  # those before dropout
    kept = dropped != 0.0
    np.testing.assert_allclose(dropped[kept], (scores / (1 - rate))[kept], rtol=1e-4)
    assert 0.4 < np.mean(kept) < 0.6
    assert np.all(kept == kept[:, :1])  # the same positions for every query of an example
    assert np.any(kept != kept[:1])  # others for other examples


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_saturated_scores_stay_finite_in_half_precision(policy):
    keras.config.set_dtype_policy(policy)
    layer = BahdanauAttention(U)
    query, value = 200.0 * random(11, B, T, D), 200.0 * random(12, B, S, V)
    attend(layer, query, value)
    layer.score_vector.assign(np.full(U, 1000.0))
    context, scores = attend(layer, query, value)
    assert np.all(np.isfinite(context))
    np.testing.assert_allclose(scores.sum(axis=2), 1.0, atol=1e-2)
