"""Keeps the messages of TensorFlow's start-up from standard error."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

LEVEL = "3"
"""Of TensorFlow's log: only what ends the process is written."""


def quiet() -> None:
    """Import Keras and its backend without the messages that TensorFlow writes as it starts.

    TensorFlow tells of its build, of libraries and of devices that it does not find, some ten lines
    that a notebook shows on a red ground. Call this before the first import of Keras or
    `keras_attention`; afterwards it changes only what TensorFlow logs from then on. Where an import
    fails, everything that was held back is shown. Python's warnings and exceptions stay as they
    are. The environment variable `TF_CPP_MIN_LOG_LEVEL`, where it is set, keeps its value.

    Example:

    ```python
    from keras_attention_command import quiet

    quiet()

    import keras_attention
    ```
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", LEVEL)
    with held_back_unless_error():
        import keras

        if keras.backend.backend() == "tensorflow":
            import tensorflow
            import tensorflow_text  # noqa: F401  (it has a log of its own)

            tensorflow.config.list_physical_devices()  # asks the drivers


@contextmanager
def held_back_unless_error() -> Iterator[None]:
    """Keep what is written to standard error back, and show it if the block fails.

    Some lines of TensorFlow's start-up are written by C++ code that no setting silences.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        except Exception:
            log.seek(0)
            os.write(kept, log.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
