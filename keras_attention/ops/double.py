"""`keras.ops`, with float64 where Keras rounds it to float32.

Keras' own promotion of dtypes knows float64 on TensorFlow alone. On JAX and PyTorch a few functions
that ask it round float64 to float32. `ops` is `keras.ops` with these functions mended; the files
of this package that compute take it in place of Keras'.
"""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import keras

from .types import Tensor

ops: Any = SimpleNamespace(**{name: getattr(keras.ops, name) for name in dir(keras.ops)})


def _mended(name: str, in_double: Callable) -> Callable:
    """Return Keras' function of a name, which calls another one for tensors of float64."""
    of_keras = getattr(keras.ops, name)

    def function(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        is_double = any(
            keras.ops.is_tensor(each) and keras.backend.standardize_dtype(each.dtype) == "float64"
            for each in (x, *args)
        )
        return (in_double if is_double else of_keras)(x, *args, **kwargs)

    return function


def _mean(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    total = keras.ops.sum(x, axis=axis, keepdims=keepdims)
    return total / (math.prod(x.shape) / max(math.prod(total.shape), 1))


def _of_torch() -> dict[str, Callable]:
    where = keras.ops.where

    def divide_no_nan(x: Tensor, y: Tensor) -> Tensor:
        is_zero = y == 0
        return where(is_zero, keras.ops.zeros_like(x), x / where(is_zero, 1.0, y))

    return {
        "matmul": lambda x, y: x @ y,
        "mean": _mean,
        "maximum": lambda x, y: where(x > y, x, y),
        "minimum": lambda x, y: where(x < y, x, y),
        "cumsum": lambda x, axis: x.cumsum(axis),
        "ceil": lambda x: x.ceil(),
        "divide_no_nan": divide_no_nan,
    }


def _of_jax() -> dict[str, Callable]:
    import jax.numpy as jnp

    names = ("tanh", "sin", "cos", "ceil")
    return {"mean": _mean, **{name: getattr(jnp, name) for name in names}}


_OF_BACKEND = {"torch": _of_torch, "jax": _of_jax}
for _name, _function in _OF_BACKEND.get(keras.backend.backend(), dict)().items():
    setattr(ops, _name, _mended(_name, _function))
