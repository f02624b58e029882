"""Which layer a NaN came from."""

import functools

import keras

BAD_LAYER = "is not finite: layer "


def name_bad_layers(model: keras.Model) -> None:
    """Make training end where a layer's output, or the gradient of it, is NaN or infinite.

    The output of every layer inside `model` goes through TensorFlow's `check_numerics`, so that no
    layer sees the bad value of another: the first error is where it began. In the backward pass
    the same holds in the other direction. The error carries `BAD_LAYER` and the layer's path; see
    `bad_layer`.
    """
    for layer in _layers_inside(model):
        layer.call = _checked(layer)


def bad_layer(error: Exception) -> str | None:
    """Return the path of the layer that an error of TensorFlow names, if it names one."""
    _, found, rest = str(error).partition(BAD_LAYER)
    return rest.split(" ;")[0].strip() if found else None


def _checked(layer):
    import tensorflow as tf

    call = layer.call

    def check(value):
        if not (tf.is_tensor(value) and value.dtype.is_floating):
            return value
        mask = getattr(value, "_keras_mask", None)
        checked = tf.debugging.check_numerics(value, f"{BAD_LAYER}{layer.path} ;")
        if mask is not None:
            checked._keras_mask = mask
        return checked

    @functools.wraps(call)
    def checked_call(*arguments, **settings):
        return tf.nest.map_structure(check, call(*arguments, **settings))

    return checked_call


def _layers_inside(model):
    """Return the layers of `model` at every depth, each once."""
    found, waiting = [], [model]
    while waiting:
        for layer in waiting.pop()._layers:
            if layer not in found:
                found.append(layer)
                waiting.append(layer)
    return found
