"""The additive score in blocks of queries, with a gradient that computes each block again.

`e_ts = v . tanh(q_t + k_s)` names a tensor of `B T S U` numbers. Automatic differentiation would
keep it (with its neighbours) for the backward pass: 400 MB for 16 sentences of 64 by 400 steps and
256 units. Here a block of a few queries exists at a time, in the forward and the backward pass.
"""

from keras import ops

from .types import Tensor
from .vjp import with_gradient

# Numbers in one block: about 7 MB in float32. Smaller blocks lose to the loop's overhead, larger
# ones leave the processor's cache (benchmarks, additive attention).
BLOCK_NUMBERS = 1_700_000
# Queries in a block where the sizes are known only when the graph runs.
BLOCK_QUERIES = 4


@with_gradient
def blocked_additive_score(query: Tensor, key: Tensor, score_vector: Tensor) -> tuple:
    """`v . tanh(q_t + k_s)` for `(B, T, U)`, `(B, S, U)` and `(U,)`, as `(B, T, S)`."""
    size = _block_size(query, key)
    scores = (
        _scores(query, key, score_vector)
        if size is None
        else _blocked_scores(query, key, score_vector, size)
    )

    def gradient(upstream: Tensor) -> tuple:
        if size is None:
            return _gradients(query, key, score_vector, upstream)
        return _blocked_gradients(query, key, score_vector, upstream, size)

    return scores, gradient


def additive_query_gradient(
    query: Tensor, key: Tensor, score_vector: Tensor, upstream: Tensor
) -> Tensor:
    """Return the gradient of one query a row, `(B, U)`, from that of its scores `(B, S)`."""
    hidden = ops.tanh(ops.expand_dims(query, 1) + key)
    slope = ops.matmul(ops.expand_dims(upstream, 1), 1 - hidden * hidden)
    return ops.squeeze(slope, 1) * score_vector


def additive_key_gradients(
    query: Tensor, key: Tensor, score_vector: Tensor, upstream: Tensor
) -> tuple:
    """Return the gradients of keys `(B, S, U)` and of the vector from those of all scores."""
    size = _block_size(query, key)
    if size is None:
        return _gradients(query, key, score_vector, upstream)[1:]
    return _blocked_gradients(query, key, score_vector, upstream, size)[1:]


def _block_size(query: Tensor, key: Tensor) -> int | None:
    """Return how many queries make a block, or `None` where one block holds all."""
    batch_size, steps, units = ops.shape(query)
    sizes = (batch_size, ops.shape(key)[1], units)
    if query.shape[1] == 1:
        return None
    if not all(isinstance(size, int) for size in (*sizes, steps)):
        return BLOCK_QUERIES
    row = max(sizes[0] * sizes[1] * sizes[2], 1)
    size = max(BLOCK_NUMBERS // row, 1)
    return None if size >= steps else size


def _hidden(query: Tensor, key: Tensor) -> Tensor:
    return ops.tanh(ops.expand_dims(query, 2) + ops.expand_dims(key, 1))


def _scores(query: Tensor, key: Tensor, score_vector: Tensor) -> Tensor:
    hidden = _hidden(query, key)
    return ops.squeeze(ops.matmul(hidden, ops.expand_dims(score_vector, -1)), -1)


def _gradients(query: Tensor, key: Tensor, score_vector: Tensor, upstream: Tensor) -> tuple:
    hidden = _hidden(query, key)
    vector_gradient = ops.einsum("bts,btsu->u", upstream, hidden)
    inner = ops.expand_dims(upstream, -1) * score_vector * (1 - hidden * hidden)
    return ops.sum(inner, axis=2), ops.sum(inner, axis=1), vector_gradient


def _blocked_scores(query: Tensor, key: Tensor, score_vector: Tensor, size: int) -> Tensor:
    blocks = _to_blocks(query, size)
    scores = ops.map(lambda block: _scores(block, key, score_vector), blocks)
    return _from_blocks(scores, ops.shape(query)[1])


def _blocked_gradients(
    query: Tensor, key: Tensor, score_vector: Tensor, upstream: Tensor, size: int
) -> tuple:
    queries, upstreams = _to_blocks(query, size), _to_blocks(upstream, size)
    # Gradients of key and vector are sums over many blocks: kept in float32.
    key_sum = ops.zeros_like(key, dtype="float32")
    vector_sum = ops.zeros_like(score_vector, dtype="float32")

    def add_block(index: Tensor, query_sum: Tensor, key_sum: Tensor, vector_sum: Tensor) -> tuple:
        gradients = _gradients(queries[index], key, score_vector, upstreams[index])
        query_gradient, key_gradient, vector_gradient = gradients
        query_sum = ops.slice_update(
            query_sum, (index, 0, 0, 0), ops.expand_dims(query_gradient, 0)
        )
        key_sum = key_sum + ops.cast(key_gradient, "float32")
        vector_sum = vector_sum + ops.cast(vector_gradient, "float32")
        return index + 1, query_sum, key_sum, vector_sum

    count = ops.shape(queries)[0]
    _, query_gradient, key_sum, vector_sum = ops.while_loop(
        lambda index, *_: index < count,
        add_block,
        (0, ops.zeros_like(queries), key_sum, vector_sum),
    )
    return (
        _from_blocks(query_gradient, ops.shape(query)[1]),
        ops.cast(key_sum, key.dtype),
        ops.cast(vector_sum, score_vector.dtype),
    )


def _to_blocks(sequence: Tensor, size: int) -> Tensor:
    """Cut `(B, T, D)` to blocks `(N, B, size, D)`; zeros fill the last one."""
    batch_size, steps, features = ops.shape(sequence)
    count = (steps + size - 1) // size
    filling = ops.zeros((batch_size, count * size - steps, features), sequence.dtype)
    sequence = ops.concatenate([sequence, filling], axis=1)
    blocks = ops.reshape(sequence, (batch_size, count, size, features))
    return ops.transpose(blocks, (1, 0, 2, 3))


def _from_blocks(blocks: Tensor, steps: Tensor) -> Tensor:
    """Undo `_to_blocks`."""
    count, batch_size, size, features = ops.shape(blocks)
    sequence = ops.transpose(blocks, (1, 0, 2, 3))
    return ops.reshape(sequence, (batch_size, count * size, features))[:, :steps]
