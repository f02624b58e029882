"""Where a NaN came from."""

import functools

import keras

MARK = "KERAS_ATTENTION_BAD_VALUE:"


def check_layers(model: keras.Model) -> None:
    """Make training end where something is NaN or infinite that a layer is given or gives.

    What goes into and comes out of every layer inside `model` passes TensorFlow's
    `check_numerics`, forward and, as gradient, backward. Nothing sees the bad value of another
    place before that was checked, so the first error is where it began; `bad_place` reads it.
    """
    for layer in _layers_inside(model):
        layer.call = _checked(layer)


def bad_place(error: Exception) -> str | None:
    """Return what an error of a checked model says was bad: `the output of layer encoder/gru`."""
    text = str(error)
    _, found, rest = text.partition(MARK)
    if not found:
        return None
    what = rest.split(";")[0].strip()
    return f"the gradient at {what}" if "detected in gradient" in text else what


def _checked(layer):
    import tensorflow as tf

    call = layer.call

    def check(side, value):
        if not (tf.is_tensor(value) and value.dtype.is_floating):
            return value
        # A layer without variables has no path.
        message = f"{MARK} the {side} of layer {layer.path or layer.name};"
        checked = tf.debugging.check_numerics(value, message)
        if getattr(value, "_keras_mask", None) is not None:
            checked._keras_mask = value._keras_mask
        return checked

    def checked_all(side, values):
        return tf.nest.map_structure(functools.partial(check, side), values)

    @functools.wraps(call)
    def checked_call(*arguments, **settings):
        arguments = checked_all("input", arguments)
        return checked_all("output", call(*arguments, **settings))

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
