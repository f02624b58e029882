"""Names for types, and what a number is."""

import math
from numbers import Real
from typing import Any

Tensor = Any  # of any backend, or an array; `None` where an argument is optional


def is_finite(value: Any) -> bool:
    """Whether this is a finite number. A Boolean is none; an integer may be beyond all floats."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
