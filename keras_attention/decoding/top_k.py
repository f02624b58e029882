"""The k largest of a long row, with one rule for ties on every backend."""

import keras
from keras import ops

# A chunk's maximum stands for it in the first pass. Around 32, measured with 8,000 and 32,000
# words, finding the maxima and looking through the chunks found cost about the same.
CHUNK = 32


def ordered_top_k(x, k: int):
    """Return the `k` largest of the last axis and their places; of equal ones the first wins.

    `ops.top_k` does this on TensorFlow and JAX. PyTorch's leaves open which of several equal values
    it takes, so there a stable sort takes its place.

    Args:
        x: Float tensor `(..., n)`.
        k: Integer, at most `n`.

    Returns:
        `(values, places)`, each `(..., k)`, in descending order.
    """
    if keras.backend.backend() != "torch":
        return ops.top_k(x, k)
    places = ops.argsort(-x, axis=-1)[..., :k]
    return ops.take_along_axis(x, places, axis=-1), ops.cast(places, "int32")


def chunked_top_k(x, k: int):
    """Return what `ordered_top_k` returns, for few out of many: `k` much smaller than `n`.

    The row is cut into chunks. An element among the `k` largest has at most `k - 1` before it, so
    fewer than `k` chunks can have a maximum before its own chunk's: the `k` chunks with the largest
    maxima hold them all (equal values included, since chunks and elements are compared by the same
    rule). One pass for the maxima and a search through `k` chunks is about three times faster on a
    CPU than a heap or a sort over the whole row.

    Args:
        x: Float tensor `(R, n)`, `n` static.
        k: Integer, at most `n`.

    Returns:
        `(values, places)`, each `(R, k)`, in descending order.
    """
    rows, size = ops.shape(x)
    if size <= 2 * k * CHUNK:
        return ordered_top_k(x, k)
    chunks = cut_in_chunks(x, float("-inf"))
    _, count, width = ops.shape(chunks)
    _, best = ordered_top_k(ops.max(chunks, axis=-1), k)
    best = ops.sort(best, axis=-1)  # places ascend again, so that ties still go to the first
    first_chunk = ops.arange(rows, dtype="int32")[:, None] * count
    candidates = ops.take(ops.reshape(chunks, (-1, width)), first_chunk + best, axis=0)
    values, places = ordered_top_k(ops.reshape(candidates, (rows, k * width)), k)
    return values, ops.take_along_axis(best, places // width, axis=1) * width + places % width


def cut_in_chunks(x, filling: float):
    """Return `(R, n)` as `(R, chunks, width)`, the last chunk filled up."""
    rows, size = ops.shape(x)
    # A width that divides the size saves padding, a copy of it all.
    width = next((width for width in range(CHUNK, 2 * CHUNK) if size % width == 0), CHUNK)
    count = -(-size // width)
    if count * width != size:
        x = ops.pad(x, [[0, 0], [0, count * width - size]], constant_values=filling)
    return ops.reshape(x, (rows, count, width))
