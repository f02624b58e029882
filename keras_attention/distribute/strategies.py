"""Strategies by name, and batches cut for their devices: on `tf.distribute`, and on JAX."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import keras

if TYPE_CHECKING:
    import tensorflow as tf

STRATEGIES = ("none", "auto", "mirrored")


def make_strategy(name: str, devices: Sequence[str] = ()) -> "tf.distribute.Strategy":
    """Return the `tf.distribute` strategy called `name`.

    Args:
        name: `none`, one device (TensorFlow's default strategy); `mirrored`, a replica of the
            model on each device; or `auto`, which mirrors where there are several devices.
        devices: Names such as `GPU:0` and `GPU:1`. Default: all visible GPUs.

    Raises:
        ValueError: Where the backend is not TensorFlow, the name is unknown, or a device is not
            there or given twice.

    Example:

    ```python
    from keras_attention.distribute import make_strategy

    strategy = make_strategy("auto")
    with strategy.scope():
        ...  # build and compile the model here
    ```
    """
    if name not in STRATEGIES:
        raise ValueError(f"A strategy is one of {', '.join(STRATEGIES)}. Received: {name!r}")
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise ValueError(
            "Strategies are TensorFlow's: set KERAS_BACKEND=tensorflow, or use keras.distribution. "
            f"Received: strategy {name!r} on the backend {backend}"
        )
    import tensorflow as tf

    present = [device.name.removeprefix("/device:") for device in tf.config.list_logical_devices()]
    _check_devices(devices, present, devices)
    chosen = list(devices) or [device for device in present if device.startswith("GPU:")]
    if name == "none" or (name == "auto" and len(chosen) < 2):
        return tf.distribute.get_strategy()
    if not chosen:
        raise ValueError(
            "The strategy mirrored needs GPUs, and none is visible: name devices, such as CPU:0, "
            f"or use the strategy none. Received: a machine with {', '.join(present)}"
        )
    if all(device.startswith("GPU:") for device in chosen):
        return tf.distribute.MirroredStrategy(chosen)
    # The collective operations that are the default connect one set of devices in a process.
    return tf.distribute.MirroredStrategy(chosen, tf.distribute.ReductionToOneDevice())


def make_data_parallel(devices: Sequence[str] = ()) -> keras.distribution.DataParallel:
    """Return the distribution that keeps a copy of the model on each device and cuts batches.

    Give it to `keras.distribution.set_distribution` before a model is built. JAX compiles one
    program for all devices, so means are over the whole batch. The number of devices must divide
    the size of a batch: see `even_batches`.

    Args:
        devices: Names such as `gpu:0`, in capitals or not. Default: all of JAX's default kind.

    Raises:
        ValueError: Where the backend is not JAX, or a device is not there or given twice.

    Example:

    ```python
    import keras
    from keras_attention.distribute import make_data_parallel

    if keras.backend.backend() == "jax":
        distribution = make_data_parallel()
        devices = distribution.device_mesh.devices.size
        # Before a model is built: keras.distribution.set_distribution(distribution)
        # To train it: model.fit(even_batches(dataset, devices))
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
    _check_devices(chosen, present, devices)
    return keras.distribution.DataParallel(devices=chosen)


def even_batches(dataset: "tf.data.Dataset", parts: int) -> "tf.data.Dataset":
    """Fill up every batch with rows of zeros, to a number of rows that `parts` divides.

    Sample weights leave these rows out of losses: each of the `n` real rows, in a batch filled up
    to `m`, weighs `m / n` times as much, so that means over rows and over weights stay the same.
    (Losses that a layer adds by itself know no sample weights.)

    Args:
        dataset: Of batches `(x, y)` or `(x, y, sample_weight)`, nested as `fit` takes them, with
            weights `(B,)`; the result always has weights.
        parts: How many devices share a batch.

    Example:

    >>> import tensorflow as tf
    >>> rows = tf.data.Dataset.from_tensor_slices((tf.ones((5, 3)), tf.ones((5, 1))))
    >>> [weight.numpy().tolist() for _, _, weight in even_batches(rows.batch(4), 2)]
    [[1.0, 1.0, 1.0, 1.0], [2.0, 0.0]]
    """
    import tensorflow as tf

    def filled(x: Any, y: Any, weight: "tf.Tensor | None" = None) -> tuple:
        rows = tf.shape(tf.nest.flatten(x)[0])[0]
        missing = -rows % parts
        if weight is None:
            weight = tf.ones([rows], "float32")
        weight = weight * tf.cast((rows + missing) / rows, weight.dtype)

        def with_zeros(array: "tf.Tensor") -> "tf.Tensor":
            return tf.pad(array, [[0, missing]] + [[0, 0]] * (len(array.shape) - 1))

        return tf.nest.map_structure(with_zeros, (x, y, weight))

    return dataset.map(filled).prefetch(tf.data.AUTOTUNE)


def replica_batches(
    strategy: "tf.distribute.Strategy", make_dataset: Callable[[], "tf.data.Dataset"]
) -> "tf.distribute.DistributedDataset":
    """Cut every batch of a dataset into one part for each replica, in order.

    Replica `r` of `n` gets rows `⌊r B / n⌋` to `⌊(r + 1) B / n⌋` of a batch of `B`. (By itself
    `tf.distribute` shards a dataset of unknown batch size over workers by whole batches.)

    Args:
        strategy: The strategy that the model was made under.
        make_dataset: Returns the dataset of whole batches, the same on each worker.

    Returns:
        A distributed dataset, which `fit` takes.

    Example:

    >>> import tensorflow as tf
    >>> make_dataset = lambda: tf.data.Dataset.range(10).batch(4)
    >>> [len(batch) for batch in replica_batches(make_strategy("none"), make_dataset)]
    [4, 4, 2]
    """
    import tensorflow as tf

    replicas = strategy.num_replicas_in_sync

    def of_worker(context: "tf.distribute.InputContext") -> "tf.data.Dataset":
        here = replicas // context.num_input_pipelines
        first = context.input_pipeline_id * here

        def parts(*batch: Any) -> "tf.data.Dataset":
            batch = batch[0] if len(batch) == 1 else batch

            def part(replica: "tf.Tensor") -> Any:
                rows = tf.shape(tf.nest.flatten(batch)[0], out_type=tf.int64)[0]
                start, stop = replica * rows // replicas, (replica + 1) * rows // replicas
                return tf.nest.map_structure(lambda array: array[start:stop], batch)

            return tf.data.Dataset.range(first, first + here).map(part)

        return make_dataset().flat_map(parts).prefetch(2 * here)

    return strategy.distribute_datasets_from_function(of_worker)


def _check_devices(chosen: Sequence[str], present: Sequence[str], given: Sequence[str]) -> None:
    if set(chosen) - set(present) or len(set(chosen)) < len(chosen):
        raise ValueError(
            f"Devices are some of {', '.join(present)}, each once. Received: {', '.join(given)}"
        )
