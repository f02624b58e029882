"""The ways in which a search is run on the backend at hand."""

import contextlib

import keras

BACKEND = keras.backend.backend()
MODES = {
    "tensorflow": ("eager", "tf.function", "xla"),
    "jax": ("eager", "jit"),
    "torch": ("eager",),
}[BACKEND]
# Where the mode is not the point: JAX compiles the loop either way, and faster as a whole.
USUAL = "jit" if BACKEND == "jax" else "eager"


def open_signature(state, known):
    """Specs of a state in which every size is open but those that equal `known`."""
    import tensorflow as tf

    return keras.tree.map_structure(
        lambda x: tf.TensorSpec([n if n == known else None for n in x.shape], x.dtype), state
    )


def prepare(search, mode, state=None, known=None):
    """Return `search(state)` as it runs in a mode.

    Given a state, TensorFlow's signature leaves all of its sizes open but those that equal `known`.
    """
    if mode == "eager":
        return search
    if mode == "jit":
        import jax

        return jax.jit(search)
    import tensorflow as tf

    signature = None if state is None else [open_signature(state, known)]
    return tf.function(search, input_signature=signature, jit_compile=mode == "xla")


def in_python():
    """Run loops in Python, so that a step can count its calls: JAX compiles them even eagerly."""
    if BACKEND == "jax":
        import jax

        return jax.disable_jit()
    return contextlib.nullcontext()
