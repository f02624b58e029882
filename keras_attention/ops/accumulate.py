"""Sums of exponentials by their logarithms, which cannot overflow."""

from keras import ops

# Stands for the logarithm of an empty sum: finite, so that no difference of it is NaN.
EMPTY = -1e30


def log_add_exp(first, second):
    """`log(exp(first) + exp(second))`, with the gradient also where both are equal."""
    largest = ops.stop_gradient(ops.maximum(first, second))
    return largest + ops.log(ops.exp(first - largest) + ops.exp(second - largest))


def is_empty(total):
    """Tell where nothing was added to a logarithm that began as `EMPTY`."""
    return total < 0.5 * EMPTY
