"""The ways in which a search is run on the backend at hand."""

import contextlib

import keras

BACKEND = keras.backend.backend()
MODES = {
    "tensorflow": ("eager", "tf.function", "xla"),
    "jax": ("eager", "jit"),
    "torch": ("eager",),
}[BACKEND]


def open_signature(state):
    """Specs of a state whose batch, memory and other sizes are all open."""
    import tensorflow as tf

    return keras.tree.map_structure(lambda x: tf.TensorSpec([None] * len(x.shape), x.dtype), state)


def prepare(search, mode, state=None):
    """Return `search(state)` as it runs in a mode; with a state, TensorFlow's signature is open."""
    if mode == "eager":
        return search
    if mode == "jit":
        import jax

        return jax.jit(search)
    import tensorflow as tf

    signature = None if state is None else [open_signature(state)]
    return tf.function(search, input_signature=signature, jit_compile=mode == "xla")


def in_python():
    """Run loops in Python, so that a step can count its calls: JAX compiles them even eagerly."""
    if BACKEND == "jax":
        import jax

        return jax.disable_jit()
    return contextlib.nullcontext()
