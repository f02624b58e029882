"""Strategies by name."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import keras

if TYPE_CHECKING:
    import tensorflow as tf

STRATEGIES = ("none", "auto", "mirrored")


def make_strategy(name: str, devices: Sequence[str] = ()) -> "tf.distribute.Strategy":
    """Return the `tf.distribute` strategy called `name`.

    Args:
        name: `none`, one device (TensorFlow's default strategy); `mirrored`, a replica of the
            model on each of `devices`, or on each visible GPU; or `auto`, which is `mirrored`
            where there are several of those and `none` otherwise.
        devices: Names such as `GPU:0` and `GPU:1`; all visible GPUs where none are given.

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
    for device in devices:
        if device not in present or list(devices).count(device) > 1:
            raise ValueError(
                f"Devices are some of {', '.join(present)}, each once. "
                f"Received: {', '.join(devices)}"
            )
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
