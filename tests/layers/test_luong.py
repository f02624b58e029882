"""Luong's four scores beyond the contract: parity with Keras, identities, location's length."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import LuongAttention
from tests.contracts.backend import random, to_numpy
from tests.contracts.kinds import randomise
from tests.layers.test_bahdanau import attend

B, T, S, D, V, U = 3, 5, 7, 11, 13, 17


def test_dot_is_keras_dot_attention():
    query, value, key = random(1, B, T, D), random(2, B, S, V), random(3, B, S, D)
    mask = np.arange(S) < np.array([7, 3, 5])[:, None]
    context, scores = attend(LuongAttention(), query, value, key=key, value_mask=mask)
    expected, expected_scores = keras.layers.Attention()(
        [query, value, key], mask=[None, ops.convert_to_tensor(mask)], return_attention_scores=True
    )
    np.testing.assert_allclose(scores, to_numpy(expected_scores), atol=1e-5)
    np.testing.assert_allclose(context, to_numpy(expected), atol=1e-5)


def test_general_with_the_identity_is_dot():
    query, value = random(4, B, T, D), random(5, B, S, D)
    general = LuongAttention("general")
    attend(general, query, value)
    general.score_kernel.assign(np.eye(D))
    for ours, dot in zip(
        attend(general, query, value), attend(LuongAttention("dot"), query, value), strict=True
    ):
        np.testing.assert_allclose(ours, dot, atol=1e-5)


def test_general_multiplies_the_query_from_the_left():
    """q W k and not k W q: with D = Dq both would run."""
    query, value = random(6, 1, 1, D), random(7, 1, 2, D)
    layer = LuongAttention("general")
    attend(layer, query, value)
    kernel = random(8, D, D)
    layer.score_kernel.assign(kernel)
    energies = [query[0, 0] @ kernel @ value[0, s] for s in range(2)]
    expected = 1 / (1 + np.exp(energies[1] - energies[0]))
    np.testing.assert_allclose(attend(layer, query, value)[1][0, 0, 0], expected, rtol=1e-3)


def test_concat_multiplies_the_joined_pair_with_one_matrix():
    query, value = random(9, B, T, D), random(10, B, S, V)
    layer = LuongAttention("concat", units=U)
    attend(layer, query, value)
    randomise(layer)
    joined = np.concatenate([to_numpy(layer.query_kernel.value), to_numpy(layer.key_kernel.value)])
    vector = to_numpy(layer.score_vector.value)
    scores = attend(layer, query, value)[1]
    for b, t in np.ndindex(B, T):
        pairs = np.array([np.concatenate([query[b, t], value[b, s]]) for s in range(S)])
        energies = np.tanh(pairs @ joined) @ vector
        expected = np.exp(energies) / np.exp(energies).sum()
        np.testing.assert_allclose(scores[b, t], expected, rtol=1e-4)


@pytest.mark.parametrize("score", ["dot", "general", "concat"])
def test_a_masked_position_in_the_middle_is_as_if_it_were_not_there(score):
    layer = LuongAttention(score, units=U if score == "concat" else None)
    query, value = random(11, B, T, D), random(12, B, S, D)
    mask = np.array([False, True, True, False, True, True, False])
    context, scores = attend(layer, query, value, value_mask=np.repeat(mask[None], B, axis=0))
    shorter, shorter_scores = attend(layer, query, value[:, mask])
    np.testing.assert_allclose(context, shorter, atol=1e-5)
    np.testing.assert_allclose(scores[:, :, mask], shorter_scores, atol=1e-5)


@pytest.fixture
def location():
    """A location score for five places, and its kernel."""
    layer = LuongAttention("location", max_length=5)
    layer.build((None, None, D), (None, None, V))
    randomise(layer)
    return layer, to_numpy(layer.location_kernel.value)


@pytest.mark.parametrize("length", [1, 3, 5])
def test_location_is_normalised_over_the_places_of_the_memory(location, length):
    """Not over features, which is always uniform, and not over all of max_length."""
    layer, kernel = location
    query = random(13, B, T, D)
    scores = attend(layer, query, random(14, B, length, V))[1]
    energies = np.exp((query @ kernel)[:, :, :length])
    np.testing.assert_allclose(scores, energies / energies.sum(-1, keepdims=True), rtol=1e-4)
    assert length == 1 or np.ptp(scores, axis=-1).max() > 0.05


def test_location_does_not_look_at_the_memory(location):
    layer, _ = location
    query = random(15, B, T, D)
    first = attend(layer, query, random(16, B, 4, V))[1]
    np.testing.assert_array_equal(first, attend(layer, query, random(17, B, 4, V))[1])


def test_words_past_max_length_get_weight_zero(location):
    layer, kernel = location
    query, value = random(18, B, T, D), random(19, B, 9, V)
    context, scores = attend(layer, query, value)
    assert np.all(scores[:, :, 5:] == 0.0)
    within, within_scores = attend(layer, query, value[:, :5])
    np.testing.assert_allclose(scores[:, :, :5], within_scores, atol=1e-6)
    np.testing.assert_allclose(context, within, atol=1e-5)


def test_location_counts_real_words_from_the_first(location):
    """Padding before the words and between them takes no place of the kernel."""
    layer, _ = location
    query, value = random(20, B, T, D), random(21, B, 11, V)
    real = np.array([3, 4, 6, 7, 8, 10])  # one word more than `max_length`
    mask = np.isin(np.arange(11), real)[None].repeat(B, axis=0)
    context, scores = attend(layer, query, value, value_mask=mask)
    within, within_scores = attend(layer, query, value[:, real])
    np.testing.assert_allclose(context, within, atol=1e-5)
    np.testing.assert_allclose(scores[:, :, real], within_scores, atol=1e-6)
    assert np.all(scores[:, :, ~mask[0]] == 0.0) and np.all(scores[:, :, 10] == 0.0)


def test_an_initializer_may_be_a_function():
    """As everywhere in Keras."""
    layer = LuongAttention(
        "general", kernel_initializer=lambda shape, dtype=None: ops.full(shape, 0.5, dtype)
    )
    layer.build((None, None, D), (None, None, V))
    np.testing.assert_array_equal(to_numpy(layer.score_kernel.value), np.full((D, V), 0.5))


def test_weights_of_one_shape_start_unequal():
    layer = LuongAttention("concat", units=U)
    layer.build((None, None, D), (None, None, D))
    assert np.any(to_numpy(layer.query_kernel.value) != to_numpy(layer.key_kernel.value))


def test_an_initializer_keeps_its_gain():
    layer = LuongAttention("general", kernel_initializer=keras.initializers.Identity(2.5))
    layer.build((None, None, 3), (None, None, 3))
    np.testing.assert_array_equal(ops.convert_to_numpy(layer.score_kernel), 2.5 * np.eye(3))


def test_general_starts_with_nearly_equal_weights_and_with_another_initializer_does_not():
    query, value = random(21, B, T, D), random(22, B, S, D)
    _, scores = attend(LuongAttention("general"), query, value)
    assert np.max(scores) < 2 / S
    _, scores = attend(LuongAttention("general", kernel_initializer="orthogonal"), query, value)
    assert np.max(scores) > 5 / S
