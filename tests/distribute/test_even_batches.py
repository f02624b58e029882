"""Batches that every number of devices divides, with the same means."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attention.distribute import even_batches, make_data_parallel


@pytest.mark.parametrize("parts", [1, 2, 5])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_of_zeros_come_in_and_no_mean_changes(parts, weighted):
    random = np.random.default_rng(parts)
    x = {"ids": random.integers(1, 9, (7, 3)).astype("int32")}
    y = random.normal(size=(7, 2)).astype("float32")
    weight = random.uniform(0.5, 2.0, 7).astype("float32")
    rows = (x, y, weight) if weighted else (x, y)
    found = list(even_batches(tf.data.Dataset.from_tensor_slices(rows).batch(4), parts))
    assert len(found) == 2
    for (ids, values, weights), rows in zip(found, (slice(0, 4), slice(4, 7)), strict=True):
        real = len(y[rows])
        size = -(-real // parts) * parts
        assert ids["ids"].shape == (size, 3) and ids["ids"].dtype == "int32"
        np.testing.assert_array_equal(ids["ids"][:real], x["ids"][rows])
        np.testing.assert_array_equal(values[:real], y[rows])
        assert not np.any(ids["ids"][real:]) and not np.any(values[real:])
        assert not np.any(weights[real:])
        own = weight[rows] if weighted else None
        for reduction in ("sum_over_batch_size", "mean_with_sample_weight"):
            loss = keras.losses.MeanSquaredError(reduction=reduction)
            expected = loss(y[rows], 0.5 * y[rows] + 1.0, own)
            padded = loss(values, 0.5 * values + 1.0, weights)
            np.testing.assert_allclose(padded, expected, rtol=1e-6)


def test_data_parallelism_is_refused_elsewhere_than_on_jax():
    with pytest.raises(ValueError, match="is JAX's: set KERAS_BACKEND=jax.* Received: the backend"):
        make_data_parallel()
