"""Names for types."""

from typing import Any

Tensor = Any  # of any backend, or an array; `None` where an argument is optional
