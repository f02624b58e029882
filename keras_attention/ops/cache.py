"""The cache of a sequence's keys or values, which grows by a place a step."""

import keras
from keras import ops

from .types import Tensor


def write_place(cache: Tensor, index: Tensor, entry: Tensor) -> Tensor:
    """Return a cache `(B, G, L, d)` with an entry `(B, G, 1, d)` at place `index`.

    On TensorFlow `keras.ops.slice_update` is a program of XLA's of its own, compiled for each shape
    and run over a copy; a scatter is written in place where nobody else holds the cache.
    """
    if keras.backend.backend() != "tensorflow":
        return ops.slice_update(cache, (0, 0, index, 0), entry)
    batch_size, groups, length, size = ops.shape(cache)
    count = batch_size * groups
    places = ops.arange(count, dtype="int32") * length + index
    rows = ops.scatter_update(
        ops.reshape(cache, (count * length, size)),
        ops.expand_dims(places, 1),
        ops.reshape(entry, (count, size)),
    )
    return ops.reshape(rows, (batch_size, groups, length, size))
