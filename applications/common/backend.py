"""The Keras backend that a command needs."""

import keras

from keras_attention.applications.common.errors import UserError


def require_tensorflow(action: str) -> None:
    """Refuse to go on with another backend than TensorFlow.

    Args:
        action: what needs it.

    Raises:
        UserError: if Keras runs on another backend.
    """
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise UserError(
            f"{action} needs TensorFlow in this version, and Keras runs on {backend}: set "
            "KERAS_BACKEND=tensorflow."
        )
