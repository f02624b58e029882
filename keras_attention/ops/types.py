"""Names for types, what a number is, and the precision of sums."""

import math
from numbers import Real
from typing import Any

from keras import backend, ops

Tensor = Any  # of any backend, or an array; `None` where an argument is optional


def is_finite(value: Any) -> bool:
    """Whether this is a finite number. A Boolean is none; an integer may be beyond all floats."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_float(tensor: Tensor) -> bool:
    """Whether a tensor holds floating point numbers."""
    return backend.is_float_dtype(backend.standardize_dtype(tensor.dtype))


def accumulator_dtype(*dtypes: Any) -> str:
    """Return the dtype of sums, softmaxes and positions: float64 if one is given, else float32.

    This is the package's one rule for "at least float32". It is Keras' promotion of dtypes, which
    takes float64 for float32 on JAX and PyTorch.
    """
    return backend.result_type(*map(backend.standardize_dtype, dtypes), "float32")


def at_least_float32(tensor: Tensor) -> Tensor:
    """Return a tensor in float32, or in float64 if it has that dtype and Keras knows it."""
    return ops.cast(tensor, accumulator_dtype(tensor.dtype))
