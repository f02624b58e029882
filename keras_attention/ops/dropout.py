"""What dropout multiplies with."""

import math
from typing import Any

from keras import ops, random

from .types import Tensor

LARGEST_OF = {"float16": 65504.0}


def scale_of_kept(rate: float, dtype: str) -> float:
    """Return `1 / (1 - rate)`, or the largest number of a dtype, whose infinity times 0 is NaN."""
    return min(1.0 / (1.0 - rate), LARGEST_OF.get(dtype, math.inf))


def dropout_factors(shape: tuple, rate: float, seed: Any, dtype: str) -> Tensor:
    """Return factors in a dtype: 0 with the probability `rate`, else `1 / (1 - rate)`.

    The random numbers are float32 in any case. A half precision has few numbers in [0, 1), and
    rounds the rate to one of them.
    """
    numbers = random.uniform(shape, dtype="float32", seed=seed)
    return ops.cast(numbers >= rate, dtype) * scale_of_kept(rate, dtype)
