"""Types, the precision of sums, and checks of values.

A check returns its argument in the type that a configuration stores.
"""

import math
from collections.abc import Iterable
from numbers import Integral, Real
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


def check_integer(name: str, value: Any, minimum: float = 1) -> int:
    """Return an integer of at least `minimum`. A Boolean is not an integer."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
        kinds = {-math.inf: "an integer", 0: "a non-negative integer", 1: "a positive integer"}
        kind = kinds.get(minimum, f"an integer of at least {minimum}")
        raise ValueError(f"`{name}` must be {kind}. Received: {name}={value!r}")
    return int(value)


def check_number(
    name: str, value: Any, minimum: float = 0.0, above: bool = False, maximum: float = math.inf
) -> float:
    """Return a finite number from `minimum` to `maximum`; with `above`, not `minimum` itself."""
    is_low = not is_finite(value) or value < minimum or (above and value == minimum)
    if is_low or value > maximum:
        bound = f"above {minimum:g}" if above else f"of at least {minimum:g}"
        bound += "" if maximum == math.inf else f" and at most {maximum:g}"
        raise ValueError(f"`{name}` must be a finite number {bound}. Received: {name}={value!r}")
    return value if isinstance(value, (int, float)) else float(value)


def check_rate(name: str, value: Any) -> float:
    """Return a dropout rate, a number in [0, 1)."""
    if not is_finite(value) or not 0 <= value < 1:
        raise ValueError(f"`{name}` must be a number in [0, 1). Received: {name}={value!r}")
    return value if isinstance(value, (int, float)) else float(value)


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> Any:
    """Return a value that is one of the choices."""
    choices = tuple(choices)
    if not any(value is choice or value == choice for choice in choices):
        raise ValueError(f"`{name}` must be one of {choices}. Received: {name}={value!r}")
    return value


def check_flag(name: str, value: Any) -> bool:
    """Return a Boolean."""
    if not isinstance(value, bool):
        raise ValueError(f"`{name}` must be True or False. Received: {name}={value!r}")
    return value


def check_seed(value: Any) -> int | None:
    """Return a seed, an integer or `None`."""
    return None if value is None else check_integer("seed", value, minimum=-math.inf)
