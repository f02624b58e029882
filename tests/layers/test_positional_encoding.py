"""Positions: precision at far places, the end of a table, starts, and saving."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import LearnedPositions, PositionalEncoding
from tests.contracts.backend import compiled, random, to_numpy, weight_gradients

HALVES = ["mixed_float16", "mixed_bfloat16"]


def test_scale_multiplies_the_embeddings_and_not_the_positions():
    x = random(1, 2, 5, 9)
    positions = to_numpy(PositionalEncoding()(np.zeros_like(x)))
    scaled = to_numpy(PositionalEncoding(scale=True)(x))
    np.testing.assert_allclose(scaled, 3.0 * x + positions, atol=1e-6)


@pytest.mark.parametrize("policy", HALVES)
def test_far_places_are_computed_in_float32(policy):
    """float16 cannot tell place 2049 from 2048; the result alone is rounded."""
    layer = PositionalEncoding(dtype=policy)
    encoded = layer(np.zeros((1, 2, 12), "float32"), start_index=2048)
    assert keras.backend.standardize_dtype(encoded.dtype) == policy.removeprefix("mixed_")
    exact = to_numpy(PositionalEncoding()(np.zeros((1, 2, 12), "float32"), start_index=2048))
    np.testing.assert_allclose(to_numpy(encoded), exact, atol=4e-3)
    assert np.abs(exact[0, 1] - exact[0, 0]).max() > 0.5


@pytest.mark.parametrize("policy", HALVES)
def test_the_sum_is_rounded_once(policy):
    """A small code beside a large, scaled embedding: rounding in between would drop it."""
    x = np.full((1, 3, 64), 0.3, "float32")
    layer = PositionalEncoding(scale=True, dtype=policy)
    exact = to_numpy(PositionalEncoding(scale=True)(to_numpy(ops.cast(x, layer.compute_dtype))))
    rounded = to_numpy(ops.cast(exact, layer.compute_dtype))
    np.testing.assert_array_equal(to_numpy(layer(x)), rounded)


@pytest.mark.parametrize("make", [PositionalEncoding, lambda: LearnedPositions(11)])
def test_a_start_may_be_a_number_a_scalar_or_one_for_each_example(make):
    layer, x = make(), random(2, 2, 7, 6)
    whole = to_numpy(layer(x))
    zeros = np.zeros_like(x)
    shifted = to_numpy(layer(zeros))
    for start in (3, np.int32(3), ops.convert_to_tensor(3, "int32"), np.int32([3, 3])):
        results = to_numpy(layer(x[:, 3:], start_index=start))
        np.testing.assert_allclose(results, whole[:, 3:], atol=1e-6)
    apart = to_numpy(layer(zeros[:, :3], start_index=np.int32([0, 4])))
    np.testing.assert_allclose(apart[0], shifted[0, :3], atol=1e-6)
    np.testing.assert_allclose(apart[1], shifted[1, 4:], atol=1e-6)
    for position in (5, np.int32([5, 5]), ops.convert_to_tensor(5, "int32")):
        step = layer.step(ops.convert_to_tensor(x[:, 5]), position)
        np.testing.assert_allclose(to_numpy(step), whole[:, 5], atol=1e-6)


def test_positions_count_real_steps():
    """The mask comes with the inputs, and passes through."""
    x = random(3, 1, 5, 6)
    x[0, [0, 1, 3]] = 0.0
    model = keras.Sequential([keras.Input((None, 6)), keras.layers.Masking(), PositionalEncoding()])
    expected = to_numpy(PositionalEncoding()(x[:, [2, 4]]))
    np.testing.assert_allclose(to_numpy(model(x))[:, [2, 4]], expected, atol=1e-6)
    words = keras.layers.Embedding(19, 6, mask_zero=True)(np.int32([[4, 7, 0], [3, 0, 0]]))
    mean = keras.layers.GlobalAveragePooling1D()(PositionalEncoding()(words))
    encoded = to_numpy(PositionalEncoding()(words))
    np.testing.assert_allclose(to_numpy(mean)[0], encoded[0, :2].mean(0), atol=1e-6)
    np.testing.assert_allclose(to_numpy(mean)[1], encoded[1, 0], atol=1e-6)


@pytest.mark.parametrize(("length", "start"), [(6, 0), (5, 1), (1, 5), (2, -1)])
def test_places_past_the_table_are_refused(length, start):
    layer = LearnedPositions(5)
    layer(np.zeros((1, 5, 6), "float32"))
    with pytest.raises(
        ValueError, match=rf"`max_length`, 5;.*Received: {length} steps from position"
    ):
        layer(np.zeros((1, length, 6), "float32"), start_index=start)


def test_a_step_past_the_table_is_refused():
    layer = LearnedPositions(5)
    layer(np.zeros((1, 5, 6), "float32"))
    with pytest.raises(ValueError, match="Received: 1 steps from position 5"):
        layer.step(np.zeros((1, 6), "float32"), 5)


def test_a_model_of_fixed_length_is_refused_when_it_is_made():
    with pytest.raises(ValueError, match="Received: 6 steps from position 0"):
        LearnedPositions(5)(keras.Input((6, 3)))


def test_an_open_length_past_the_table_is_never_another_places_row():
    """TensorFlow traces with the length open: what is past the table is NaN, what is not, right."""
    layer = LearnedPositions(5)
    x = random(4, 2, 5, 6)
    expected = to_numpy(layer(x))
    function = compiled(lambda given: layer(given["inputs"]), {"inputs": x})
    np.testing.assert_allclose(to_numpy(function({"inputs": x})), expected, atol=1e-6)
    longer = np.concatenate([x, x[:, :2]], axis=1)
    if keras.backend.backend() != "tensorflow":
        with pytest.raises(ValueError, match="Received: 7 steps"):
            function({"inputs": longer})
        return
    results = to_numpy(function({"inputs": longer}))
    np.testing.assert_allclose(results[:, :5], expected, atol=1e-6)
    assert np.all(np.isnan(results[:, 5:]))


@pytest.mark.parametrize("start", [[0, 3], [-1, 0]])
def test_an_open_start_past_the_table_is_never_another_places_row(start):
    layer = LearnedPositions(5)
    x = random(5, 2, 3, 6)
    inside = np.array(start)[:, None] + np.arange(3)
    inside = (inside >= 0) & (inside < 5)
    results = to_numpy(layer(x, start_index=ops.convert_to_tensor(np.int32(start))))
    np.testing.assert_array_equal(~np.isnan(results).any(axis=2), inside)


def test_rows_that_are_not_used_have_no_gradient():
    layer = LearnedPositions(5)
    x = random(6, 2, 3, 6)
    layer(x)
    (gradient,) = weight_gradients(layer, lambda: ops.sum(layer(x) ** 2))
    if not isinstance(gradient, np.ndarray):
        gradient = to_numpy(gradient)
    assert np.all(gradient[:3] != 0.0) and np.all(gradient[3:] == 0.0)


@pytest.mark.parametrize("layer", [PositionalEncoding(), LearnedPositions(5)])
def test_shapes_that_do_not_fit_are_refused(layer):
    with pytest.raises(ValueError, match=r"Received: inputs of shape \(2, 6\)"):
        layer(np.zeros((2, 6), "float32"))
    with pytest.raises(ValueError, match=r"Received: x of shape \(2, 1, 6\)"):
        layer.step(np.zeros((2, 1, 6), "float32"), 0)


@pytest.mark.parametrize("size", [4, 7, 10, 2])
@pytest.mark.parametrize("endpoint", [True, False, None])
def test_halves_are_all_sines_and_then_all_cosines(size, endpoint):
    """With the endpoint the longest wavelength is `2 pi w` itself: Marian's and tensor2tensor's."""
    sines, wavelength = (size + 1) // 2, 5000.0
    layer = PositionalEncoding(wavelength, layout="halves", endpoint=endpoint)
    i = np.arange(sines, dtype="float64")
    rates = wavelength ** (-2 * i / size)
    if endpoint is not False:
        rates = wavelength ** (-i / max(1, sines - 1))
    angles = np.arange(3, 14)[:, None] * rates
    wanted = np.concatenate([np.sin(angles), np.cos(angles[:, : size // 2])], axis=1)
    codes = to_numpy(layer(np.zeros((1, 11, size), "float32"), start_index=3))[0]
    np.testing.assert_allclose(codes, wanted, atol=2e-6)
    again = PositionalEncoding.from_config(layer.get_config())
    np.testing.assert_array_equal(to_numpy(again(np.zeros((1, 11, size)), start_index=3))[0], codes)


def test_halves_have_their_known_answers():
    zeros = np.zeros((1, 2, 4), "float32")
    marian = to_numpy(PositionalEncoding(layout="halves")(zeros))[0, 1]
    np.testing.assert_allclose(marian, [0.84147, 0.00010, 0.54030, 1.00000], atol=1e-5)
    hugging_face = to_numpy(PositionalEncoding(layout="halves", endpoint=False)(zeros))[0, 1]
    np.testing.assert_allclose(hugging_face, [0.84147, 0.01000, 0.54030, 0.99995], atol=1e-5)


def test_the_layout_and_the_endpoint_are_two_choices():
    """The same frequencies in both layouts, and both frequencies in each."""
    zeros = np.zeros((1, 5, 6), "float32")
    for endpoint in (True, False):
        halves = to_numpy(PositionalEncoding(layout="halves", endpoint=endpoint)(zeros))
        pairs = to_numpy(PositionalEncoding(endpoint=endpoint)(zeros))
        np.testing.assert_allclose(pairs[..., ::2], halves[..., :3], atol=1e-6)
        np.testing.assert_allclose(pairs[..., 1::2], halves[..., 3:], atol=1e-6)
    with pytest.raises(ValueError, match="`layout` must be one of"):
        PositionalEncoding(layout="quarters")
    with pytest.raises(ValueError, match="`endpoint` must be True or False"):
        PositionalEncoding(endpoint=1)


@pytest.mark.parametrize("policy", HALVES)
def test_halves_are_computed_in_float32(policy):
    layer = PositionalEncoding(layout="halves", dtype=policy)
    exact = to_numpy(
        PositionalEncoding(layout="halves")(np.zeros((1, 2, 12), "float32"), start_index=2048)
    )
    encoded = to_numpy(layer(np.zeros((1, 2, 12), "float32"), start_index=2048))
    np.testing.assert_allclose(encoded, exact, atol=4e-3)
