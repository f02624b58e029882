"""Names for types, and what a number is."""

import sys
from numbers import Real
from typing import Any

Tensor = Any  # of any backend, or an array; `None` where an argument is optional


def is_finite(value: Any) -> bool:
    """Whether this is a finite number. A Boolean is none; an integer may be beyond all floats."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    return is_number and abs(value) <= sys.float_info.max
