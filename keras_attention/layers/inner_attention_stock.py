"""Keras' own GRU over inputs that are weighed already, so that cuDNN can serve it."""

import keras
from keras import ops


def stock_gru(cell, inputs, first, mask, use_cudnn):
    """Run `keras.layers.GRU` with the weights of a cell.

    cuDNN knows no mask but one of padding at the end, and no row without a step. Masked steps are
    therefore sorted behind the real ones and run unmasked; each step is then given the state after
    the last real step up to it.

    Args:
        cell: A built `keras.layers.GRUCell`.
        inputs: `(B, T, D)`.
        first: The state before the first step, `(B, U)`.
        mask: Boolean `(B, T)`, or `None`.
        use_cudnn: `"auto"` or `True`, as in `keras.layers.GRU`.

    Returns:
        The states `(B, T, U)`.
    """
    gru = keras.layers.GRU(
        cell.units,
        use_bias=cell.use_bias,
        reset_after=cell.reset_after,
        return_sequences=True,
        use_cudnn=use_cudnn,
        dtype=cell.dtype_policy,
    )
    # A plain cell: were the loop not cuDNN's, it would call the cell itself.
    for name in ("kernel", "recurrent_kernel", "bias"):
        setattr(gru.cell, name, getattr(cell, name))
    gru.cell.built = True
    if mask is None:
        return gru.inner_loop(inputs, [first], mask=None)[1]
    mask = ops.cast(mask, "int32")
    # Unique keys, so that a sort that is not stable keeps the order too.
    steps = ops.arange(ops.shape(mask)[1], dtype="int32")
    order = ops.argsort(steps + (1 - mask) * ops.shape(mask)[1], axis=1)
    inputs = ops.take_along_axis(inputs, ops.expand_dims(order, 2), axis=1)
    states = gru.inner_loop(inputs, [first], mask=None)[1]
    states = ops.concatenate([ops.expand_dims(first, 1), states], axis=1)
    done = ops.expand_dims(ops.cumsum(mask, axis=1), 2)
    return ops.take_along_axis(states, done, axis=1)
