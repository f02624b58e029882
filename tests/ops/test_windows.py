"""Windows: their places, membership, gathering and spreading, fractional and outside centres."""

import numpy as np
import pytest
from keras import ops

from keras_attention.ops.positions import (
    gather_windows,
    in_window,
    spread_windows,
    window_positions,
)
from tests.contracts.backend import input_gradients, random, to_numpy, weighted_sum

CENTERS = np.float32([[0.0, 3.0, 2.5], [6.25, -1.5, 8.0]])


@pytest.mark.parametrize("half_width", [1, 2, 5])
def test_a_window_holds_every_place_within_half_width(half_width):
    center = ops.convert_to_tensor(CENTERS)
    positions = to_numpy(window_positions(center, half_width))
    inside = to_numpy(in_window(ops.convert_to_tensor(positions), center, half_width))
    assert positions.shape == (2, 3, 2 * half_width + 1)
    for b, t in np.ndindex(CENTERS.shape):
        wanted = [s for s in range(-20, 21) if abs(s - CENTERS[b, t]) <= half_width]
        assert list(positions[b, t][inside[b, t]]) == wanted


def test_integer_centres():
    center = ops.convert_to_tensor(np.int32([[0, 4]]))
    positions = to_numpy(window_positions(center, 1))
    np.testing.assert_array_equal(positions, [[[-1, 0, 1], [3, 4, 5]]])
    inside = in_window(ops.arange(7, dtype="int32"), center, 1)
    np.testing.assert_array_equal(np.flatnonzero(to_numpy(inside)[0, 1]), [3, 4, 5])


def test_large_places_are_exact():
    """float16 cannot tell 2049 from 2048."""
    center = ops.convert_to_tensor(np.int32([[100_001]]))
    np.testing.assert_array_equal(
        to_numpy(window_positions(center, 1)), [[[100_000, 100_001, 100_002]]]
    )


@pytest.mark.parametrize("trailing", [(), (5,), (2, 3)], ids=["rows", "features", "heads"])
def test_gathering_takes_the_rows_and_clips_at_the_ends(trailing):
    memory = random(1, 2, 7, *trailing)
    positions = np.int32([[[-2, 0, 1], [5, 6, 9]], [[3, 4, 5], [6, 7, 8]]])
    gathered = to_numpy(
        gather_windows(ops.convert_to_tensor(memory), ops.convert_to_tensor(positions))
    )
    assert gathered.shape == (2, 2, 3, *trailing)
    for b, t, w in np.ndindex(positions.shape):
        place = min(max(positions[b, t, w], 0), 6)
        np.testing.assert_array_equal(gathered[b, t, w], memory[b, place])


def test_gathering_from_no_sentences_has_the_axes_of_the_windows():
    memory, positions = random(1, 0, 7, 5), np.zeros((0, 2, 3), "int32")
    gathered = to_numpy(
        gather_windows(ops.convert_to_tensor(memory), ops.convert_to_tensor(positions))
    )
    assert gathered.shape == (0, 2, 3, 5)


def test_gathering_adds_the_gradients_of_overlapping_windows():
    memory = random(2, 1, 5, 2)
    positions = np.int32([[[0, 1, 2], [1, 2, 3]]])
    upstream = random(3, 1, 2, 3, 2)
    (gradient,) = input_gradients(
        lambda m: weighted_sum(gather_windows(m, ops.convert_to_tensor(positions)), upstream),
        memory,
    )
    expected = np.zeros_like(memory)
    for t, w in np.ndindex(2, 3):
        expected[0, positions[0, t, w]] += upstream[0, t, w]
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)


def test_spreading_puts_weights_at_their_places_and_zero_elsewhere():
    positions = np.int32([[[-1, 0, 1], [2, 3, 4]], [[5, 6, 7], [9, 10, 11]]])
    weights = 1.0 + np.arange(12, dtype="float32").reshape(2, 2, 3)
    spread = to_numpy(
        spread_windows(
            ops.convert_to_tensor(weights),
            ops.convert_to_tensor(positions),
            ops.arange(7, dtype="int32")[None, None],
        )
    )
    expected = np.zeros((2, 2, 7))
    for b, t, w in np.ndindex(positions.shape):
        if 0 <= positions[b, t, w] < 7:
            expected[b, t, positions[b, t, w]] = weights[b, t, w]
    np.testing.assert_array_equal(spread, expected)
