"""The same seed, the same weights: seeds and deterministic operations while a training lasts.

TensorFlow's switch for deterministic operations holds for the whole process, and Keras compiles
nothing with XLA while it is on. A public function turns it on, none turns it off: so this module,
and no other, imports a private one.
"""

import contextlib
from collections.abc import Iterator

import keras

from ..schema.training import TrainingConfig


@contextlib.contextmanager
def seeded(config: TrainingConfig) -> Iterator[None]:
    """Seed everything; inside, operations are deterministic if the configuration asks for it.

    Build the model inside: the initial weights come from the seed.
    """
    keras.utils.set_random_seed(config.seed)
    if not config.deterministic or keras.backend.backend() != "tensorflow":
        yield
        return
    import tensorflow as tf

    # TensorFlow's public switch cannot be read, nor turned off again.
    from tensorflow.python.framework import config as switches

    before = switches.is_op_determinism_enabled()
    tf.config.experimental.enable_op_determinism()
    try:
        yield
    finally:
        if not before:
            switches.disable_op_determinism()
