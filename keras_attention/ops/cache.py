"""The cache of keys and values that self-attention reads step by step.

A cache holds tensors `(B, G, L, d)` of `G` heads and `L` steps. Where `K` hypotheses of a search
share a row of the batch, it has `K` positions for each step: `(B, G, L K, d)`.
"""

from numbers import Integral
from typing import Any

import keras
from keras import ops

from .shapes import reshaped, sizes_from
from .types import Tensor


def cache_index(index: Any, length: Any, value: Tensor) -> tuple[Any, Tensor]:
    """Return an index inside a cache of `length` steps, and the value to write there.

    A known index outside of the cache raises a ValueError. For any other, the value becomes NaN, so
    that the output of this step and of later ones is NaN. No other row is affected.
    """
    if isinstance(index, Integral) and isinstance(length, int):
        if not 0 <= int(index) < length:
            raise ValueError(
                f"`index` must lie in the {length} positions of the state; make a state of a "
                f"larger `max_length`. Received: index={index}"
            )
        return index, value
    index = ops.cast(index, "int32")
    nearest = ops.clip(index, 0, length - 1)
    return nearest, ops.where(ops.equal(nearest, index), value, float("nan"))


def write_cache(cache: dict, index: Tensor, entries: dict, copies: int = 1) -> dict:
    """Return caches `(B, G, L K, d)` with entries `(B, G, K, d)` at a step."""
    if keras.backend.backend() != "tensorflow":
        start = (0, 0, index * copies, 0)
        return {name: ops.slice_update(cache[name], start, entries[name]) for name in entries}
    # On TensorFlow `slice_update` compiles once for each shape; a scatter does not.
    batch_size, groups, length = sizes_from(cache["key"], 0)[:3]
    steps = length if copies == 1 else length // copies
    indices = ops.arange(batch_size * groups, dtype="int32") * steps + index
    written = {}
    for name, entry in entries.items():
        size = entry.shape[3]
        rows, entry = (ops.reshape(x, (-1, copies * size)) for x in (cache[name], entry))
        rows = ops.scatter_update(rows, ops.expand_dims(indices, 1), entry)
        written[name] = reshaped(rows, (batch_size, groups, length, size))
    return written
