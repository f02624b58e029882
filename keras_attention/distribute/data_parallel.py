"""Data parallelism on JAX, through `keras.distribution`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import keras

if TYPE_CHECKING:
    import tensorflow as tf


def make_data_parallel(devices: Sequence[str] = ()) -> keras.distribution.DataParallel:
    """Return the distribution that keeps a copy of the model on each device and cuts batches.

    `keras.distribution.set_distribution` takes it, before a model is built. Means are over the
    whole batch by themselves then, as JAX compiles one program for all devices. Batches must have
    a size that the number of devices divides: see `even_batches`.

    Args:
        devices: Names such as `gpu:0` and `gpu:1`, in capitals or not; all devices of JAX's
            default kind where none are given.

    Raises:
        ValueError: Where the backend is not JAX, or a device is not there or given twice.

    Example:

    ```py
    import keras
    from keras_attention.distribute import even_batches, make_data_parallel

    distribution = make_data_parallel()
    keras.distribution.set_distribution(distribution)
    ...  # build and compile the model here
    model.fit(even_batches(dataset, distribution.device_mesh.devices.size))
    ```
    """
    backend = keras.backend.backend()
    if backend != "jax":
        raise ValueError(
            "The strategy data-parallel is JAX's: set KERAS_BACKEND=jax, or use the strategy "
            f"mirrored. Received: the backend {backend}"
        )
    present = keras.distribution.list_devices()
    chosen = [device.lower() for device in devices] or present
    for device in chosen:
        if device not in present or chosen.count(device) > 1:
            raise ValueError(
                f"Devices are some of {', '.join(present)}, each once. "
                f"Received: {', '.join(devices)}"
            )
    return keras.distribution.DataParallel(devices=chosen)


def even_batches(dataset: "tf.data.Dataset", parts: int) -> "tf.data.Dataset":
    """Fill up every batch with rows of zeros, to a number of rows that `parts` divides.

    Sample weights come in, which leave these rows out of losses: a real row of `n`, in a batch that
    has been filled up to `m`, weighs `m / n` times what it weighed, a row of zeros nothing. So both
    a mean over all rows and a mean over all weights are what they were. (Losses that a layer adds
    by itself know no sample weights.)

    Args:
        dataset: Of batches `(x, y)` or `(x, y, sample_weight)`, nested as `fit` takes them, with
            weights `(B,)`.
        parts: How many devices share a batch.

    Returns:
        The dataset of batches `(x, y, sample_weight)`.

    Example:

    ```python
    import tensorflow as tf
    from keras_attention.distribute import even_batches

    rows = tf.data.Dataset.from_tensor_slices((tf.ones((5, 3)), tf.ones((5, 1))))
    for x, y, weight in even_batches(rows.batch(4), 2):
        print(x.shape, weight.numpy())  # (4, 3) [1. 1. 1. 1.], then (2, 3) [2. 0.]
    ```
    """
    import tensorflow as tf

    def filled(x, y, weight=None):
        rows = tf.shape(tf.nest.flatten(x)[0])[0]
        missing = -rows % parts
        if weight is None:
            weight = tf.ones([rows], "float32")
        weight = weight * tf.cast((rows + missing) / rows, weight.dtype)

        def with_zeros(array):
            return tf.pad(array, [[0, missing]] + [[0, 0]] * (len(array.shape) - 1))

        return tf.nest.map_structure(with_zeros, (x, y, weight))

    return dataset.map(filled).prefetch(tf.data.AUTOTUNE)
