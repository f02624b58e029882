"""Sinusoids, rotations and biases by distance, against oracles and known answers."""

import numpy as np
import pytest
from keras import ops

from keras_attention.ops.positions import (
    alibi_slopes,
    relative_buckets,
    rotate,
    sinusoids,
    step_positions,
)
from tests.contracts.backend import input_gradients, random, to_numpy, weighted_sum

WAVELENGTH = 10_000.0


def sinusoid(position, size, wavelength):
    """One row, feature by feature, in float64."""
    row = np.zeros(size)
    for feature in range(size):
        angle = position / wavelength ** ((feature - feature % 2) / size)
        row[feature] = np.cos(angle) if feature % 2 else np.sin(angle)
    return row


def rotated(x, position, wavelength):
    """One vector, pair by pair, as a product of complex numbers."""
    half = len(x) // 2
    result = np.zeros(len(x))
    for i in range(half):
        turn = np.exp(1j * position * wavelength ** (-2 * i / len(x)))
        pair = complex(x[i], x[i + half]) * turn
        result[i], result[i + half] = pair.real, pair.imag
    return result


def bucket(relative, num_buckets, max_distance, bidirectional):
    """One distance, in whole numbers: no logarithm that could round at a border."""
    first = 0
    if bidirectional:
        num_buckets //= 2
        first = num_buckets if relative > 0 else 0
        distance = abs(relative)
    else:
        distance = max(-relative, 0)
    exact = num_buckets // 2
    if distance < exact:
        return first + distance
    steps = num_buckets - exact
    # exact * (max_distance / exact)^(j / steps) <= distance, both sides to the power of steps
    reached = [
        j for j in range(steps) if max_distance**j * exact**steps <= distance**steps * exact**j
    ]
    return first + exact + max(reached)


def test_known_rows_of_width_six():
    rows = to_numpy(sinusoids(np.arange(4), 6))
    np.testing.assert_allclose(rows[0], [0, 1, 0, 1, 0, 1], atol=1e-7)
    known = [0.14112, -0.98999, 0.13879, 0.99032, 0.00646, 0.99998]
    np.testing.assert_allclose(rows[3], known, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 7, 12])
@pytest.mark.parametrize("wavelength", [WAVELENGTH, 50.0])
def test_sinusoids_agree_with_the_oracle(size, wavelength):
    positions = np.int32([[0, 1, 2, 19], [-3, 4, 503, 2049]])
    encoded = sinusoids(ops.convert_to_tensor(positions), size, wavelength)
    assert tuple(encoded.shape) == (2, 4, size) and to_numpy(encoded).dtype == np.float32
    for place in np.ndindex(positions.shape):
        expected = sinusoid(positions[place], size, wavelength)
        np.testing.assert_allclose(to_numpy(encoded)[place], expected, atol=3e-4)


def test_positions_start_anywhere():
    np.testing.assert_array_equal(to_numpy(step_positions(3)), [0, 1, 2])
    np.testing.assert_array_equal(to_numpy(step_positions(3, 5)), [5, 6, 7])
    np.testing.assert_array_equal(to_numpy(step_positions(2, ops.convert_to_tensor(5))), [5, 6])
    starts = ops.convert_to_tensor(np.int32([5, 0]))
    np.testing.assert_array_equal(to_numpy(step_positions(3, starts)), [[5, 6, 7], [0, 1, 2]])


@pytest.mark.parametrize("wavelength", [WAVELENGTH, 50.0])
def test_rotations_agree_with_the_oracle(wavelength):
    x, positions = random(1, 2, 3, 5, 14), np.int32([0, 1, 7, 31, 2])
    turned = to_numpy(rotate(ops.convert_to_tensor(x), positions, wavelength))
    apart = to_numpy(
        rotate(ops.convert_to_tensor(x.swapaxes(1, 2)), positions[:, None], wavelength)
    )
    for b, h, t in np.ndindex(x.shape[:3]):
        expected = rotated(np.float64(x[b, h, t]), positions[t], wavelength)
        np.testing.assert_allclose(turned[b, h, t], expected, atol=2e-5)
        np.testing.assert_allclose(apart[b, t, h], expected, atol=2e-5)


def test_a_product_of_rotations_knows_the_difference_of_their_positions_alone():
    query, key = (ops.convert_to_tensor(random(seed, 1, 14)) for seed in (2, 3))

    def product(query_place, key_place):
        turned = rotate(query, [query_place]) * rotate(key, [key_place])
        return float(to_numpy(ops.sum(turned)))

    assert product(3, 8) == pytest.approx(product(103, 108), abs=1e-4)
    assert abs(product(3, 8) - product(3, 9)) > 1e-2
    assert product(5, 5) == pytest.approx(float(to_numpy(ops.sum(query * key))), abs=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rotations_keep_the_dtype_and_far_positions_apart(dtype):
    x = random(4, 2, 14)
    turned = rotate(ops.cast(x, dtype), np.int32([2048, 2049]))
    assert dtype in str(turned.dtype)
    rounded = np.float64(to_numpy(ops.cast(x, dtype)))
    expected = [rotated(rounded[t], 2048 + t, WAVELENGTH) for t in range(2)]
    np.testing.assert_allclose(to_numpy(turned), expected, atol=2e-2)


def test_rotations_have_a_gradient():
    x, factors = random(5, 3, 14), random(6, 3, 14)
    positions = np.int32([4, 0, 9])
    (gradient,) = input_gradients(lambda t: weighted_sum(rotate(t, positions), factors), x)
    # A rotation's transpose turns back.
    expected = [rotated(np.float64(factors[t]), -positions[t], WAVELENGTH) for t in range(3)]
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


def test_an_odd_number_of_features_cannot_be_turned():
    with pytest.raises(ValueError, match=r"even. Received: size=7, x of shape \(3, 7\)"):
        rotate(ops.zeros((3, 7)), np.arange(3))


def test_slopes_of_powers_of_two():
    np.testing.assert_allclose(to_numpy(alibi_slopes(8)), [2.0**-h for h in range(1, 9)])
    np.testing.assert_allclose(to_numpy(alibi_slopes(4)), [2.0**-h for h in (2, 4, 6, 8)])
    np.testing.assert_allclose(to_numpy(alibi_slopes(1)), [2.0**-8])


@pytest.mark.parametrize(
    ("num_heads", "exponents"),
    [
        (3, [4, 8, 2]),
        (6, [2, 4, 6, 8, 1, 3]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_slopes_of_other_numbers_of_heads(num_heads, exponents):
    expected = [2.0**-exponent for exponent in exponents]
    np.testing.assert_allclose(to_numpy(alibi_slopes(num_heads)), expected, rtol=1e-6)


def test_no_heads_have_no_slopes():
    with pytest.raises(ValueError, match="Received: num_heads=0"):
        alibi_slopes(0)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 20), (12, 61), (4, 2)])
def test_buckets_agree_with_the_oracle(num_buckets, max_distance, bidirectional):
    if not bidirectional:
        max_distance += 1  # twice as many distances have a bucket each
    relative = np.arange(-2 * max_distance - 1, 2 * max_distance + 2, dtype="int32")
    arguments = num_buckets, max_distance, bidirectional
    given = to_numpy(relative_buckets(ops.convert_to_tensor(relative[None]), *arguments))
    expected = [bucket(int(r), *arguments) for r in relative]
    np.testing.assert_array_equal(given[0], expected)
    assert given.dtype == np.int32 and given.min() == 0
    assert given.max() == num_buckets - 1


def test_known_buckets():
    """Of 32, for distances up to 128: 8 exact ones a side, then borders at 8 * 2^(j / 2)."""
    relative = np.int32([0, -1, -7, -8, -11, -12, -15, -16, -63, -64, -128, -999, 1, 7, 16, 999])
    buckets = [0, 1, 7, 8, 8, 9, 9, 10, 13, 14, 15, 15, 17, 23, 26, 31]
    np.testing.assert_array_equal(to_numpy(relative_buckets(relative)), buckets)


@pytest.mark.parametrize(
    "arguments", [(7, 128, True), (2, 128, True), (1, 128, False), (32, 8, True), (32, 16, False)]
)
def test_buckets_that_cannot_be_made_are_refused(arguments):
    with pytest.raises(ValueError, match="Received: num_buckets="):
        relative_buckets(np.int32([0]), *arguments)
