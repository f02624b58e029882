"""Scores of queries against keys: `e_ts`, before masking and normalising.

A query is `(B, T, ...)`. Keys are `(B, S, ...)`, shared by all queries, which gives scores
`(B, T, S)`, or `(B, T, W, ...)`, a window of `W` keys for every query, which gives `(B, T, W)`.
"""

from keras import backend, ops

from .shapes import product
from .types import Tensor, at_least_float32
from .vjp import with_gradient

# Numbers in one block, 7 MB: smaller ones lose to the loop, larger ones leave the cache.
BLOCK_NUMBERS = 1_700_000
# Queries in a block where the sizes are known only when the graph runs.
BLOCK_QUERIES = 4


def dot_score(query: Tensor, key: Tensor) -> Tensor:
    """`e_ts = q_t . k_s`; of float16 in float32, where large ones are finite."""
    if backend.standardize_dtype(query.dtype) == "float16":
        query, key = ops.cast(query, "float32"), ops.cast(key, "float32")
    if len(key.shape) == 4:
        return ops.squeeze(ops.matmul(key, ops.expand_dims(query, -1)), -1)
    return ops.matmul(query, ops.transpose(key, (0, 2, 1)))


def additive_score(query: Tensor, key: Tensor, score_vector: Tensor) -> Tensor:
    """`e_ts = v . tanh(q_t + k_s)`, for queries `W q` and keys `U k` of `U` units and `v (U,)`.

    Automatic differentiation would keep a tensor of `B T S U` numbers. Here a block of a few
    queries exists at a time, and is computed again in the backward pass.
    """
    if len(key.shape) == 4:
        return _scores_at_once(query, key, score_vector)
    return blocked_additive_score(query, key, score_vector)


def blocked_additive_score(query: Tensor, key: Tensor, score_vector: Tensor) -> Tensor:
    """`v . tanh(q_t + k_s)` for `(B, T, U)`, `(B, S, U)` and `(U,)`, as `(B, T, S)`."""
    return with_gradient(_blocked_scores, _scores_at_once)(query, key, score_vector)


def _blocked_scores(query: Tensor, key: Tensor, score_vector: Tensor) -> tuple:
    size = _block_size(query, key)
    if size is None:
        scores = _scores_at_once(query, key, score_vector)
    else:
        queries = _to_blocks(query, size)

        # Not `ops.map`: LiteRT does not know its lists of tensors.
        def add_block(index: Tensor, scores: Tensor) -> tuple:
            block = _scores_at_once(queries[index], key, score_vector)
            at = ops.reshape(ops.convert_to_tensor(index, "int32"), (1, 1))
            return index + 1, ops.scatter_update(scores, at, ops.expand_dims(block, 0))

        shape = (*ops.shape(queries)[:3], ops.shape(key)[1])
        first = (0, ops.zeros(shape, query.dtype))
        count = ops.shape(queries)[0]
        blocks = ops.while_loop(lambda index, _: index < count, add_block, first)[1]
        scores = _from_blocks(blocks, ops.shape(query)[1])
    return scores, lambda upstream: additive_gradients(query, key, score_vector, upstream)


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
    key = key if len(key.shape) == 4 else ops.expand_dims(key, 1)
    return ops.tanh(ops.expand_dims(query, 2) + key)


def _scores_at_once(query: Tensor, key: Tensor, score_vector: Tensor) -> Tensor:
    # Not `matmul`: Keras 3.12 makes a product of batches of it, in which TensorFlow crashes.
    return ops.squeeze(product(_hidden(query, key), ops.expand_dims(score_vector, 1)), -1)


def _gradients_at_once(query: Tensor, key: Tensor, score_vector: Tensor, upstream: Tensor) -> tuple:
    hidden = _hidden(query, key)
    vector_gradient = ops.einsum("bts,btsu->u", upstream, hidden)
    inner = ops.expand_dims(upstream, -1) * score_vector * (1 - hidden * hidden)
    return ops.sum(inner, axis=2), ops.sum(inner, axis=1), vector_gradient


def additive_gradients(query: Tensor, key: Tensor, score_vector: Tensor, upstream: Tensor) -> tuple:
    """Return the gradients of queries, keys and vector from that of the scores `(B, T, S)`."""
    size = _block_size(query, key)
    if size is None:
        return _gradients_at_once(query, key, score_vector, upstream)
    queries, upstreams = _to_blocks(query, size), _to_blocks(upstream, size)
    # Gradients of key and vector are sums over many blocks: at least float32.
    key_sum = at_least_float32(ops.zeros_like(key))
    vector_sum = at_least_float32(ops.zeros_like(score_vector))

    def add_block(index: Tensor, query_sum: Tensor, key_sum: Tensor, vector_sum: Tensor) -> tuple:
        by_query, *others = _gradients_at_once(queries[index], key, score_vector, upstreams[index])
        by_key, by_vector = map(at_least_float32, others)
        of_block = ops.expand_dims(by_query, 0)
        query_sum = ops.slice_update(query_sum, (index, 0, 0, 0), of_block)
        return index + 1, query_sum, key_sum + by_key, vector_sum + by_vector

    count, first = ops.shape(queries)[0], (0, ops.zeros_like(queries), key_sum, vector_sum)
    results = ops.while_loop(lambda index, *_: index < count, add_block, first)
    query_gradient = _from_blocks(results[1], ops.shape(query)[1])
    return query_gradient, ops.cast(results[2], key.dtype), ops.cast(results[3], score_vector.dtype)


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


def coverage_score(
    query: Tensor, key: Tensor, coverage: Tensor, score_vector: Tensor, coverage_vector: Tensor
) -> Tensor:
    """`e_s = v . tanh(q + k_s + w_c c_s)` of one query a row, `(B, S)`; a loop keeps no `tanh`."""
    score = with_gradient(_coverage_score, lambda *tensors: _coverage_score(*tensors)[0])
    return score(query, key, coverage, score_vector, coverage_vector)


def _coverage_score(
    query: Tensor, key: Tensor, coverage: Tensor, score_vector: Tensor, coverage_vector: Tensor
) -> tuple:
    hidden = coverage_hidden(query, key, coverage, coverage_vector)
    scores = ops.squeeze(product(hidden, ops.expand_dims(score_vector, 1)), 2)

    def gradient(upstream: Tensor) -> tuple:
        by_query, by_key, by_coverage, *by_vectors = coverage_gradients(
            query, key, coverage, score_vector, coverage_vector, upstream
        )
        return by_query, by_key * score_vector, by_coverage, *by_vectors

    return scores, gradient


def coverage_hidden(
    query: Tensor, key: Tensor, coverage: Tensor, coverage_vector: Tensor
) -> Tensor:
    """Return the hidden layer `tanh(q + k_s + w_c c_s)`, `(B, S, U)`."""
    coverage = ops.expand_dims(coverage, 2) * coverage_vector
    return ops.tanh(ops.expand_dims(query, 1) + key + coverage)


def coverage_gradients(
    query: Tensor,
    key: Tensor,
    coverage: Tensor,
    score_vector: Tensor,
    coverage_vector: Tensor,
    upstream: Tensor,
) -> tuple:
    """Return the gradients of `coverage_score`, the keys' still without the score vector."""
    hidden = coverage_hidden(query, key, coverage, coverage_vector)
    by_hidden = ops.sum(ops.matmul(ops.expand_dims(upstream, 1), hidden), axis=(0, 1))
    weighted = ops.expand_dims(upstream, 2) * (1 - hidden * hidden)
    by_vectors = ops.expand_dims(score_vector * coverage_vector, 1)
    # The sums over places, plain and weighted by the coverage, in one product.
    both = ops.stack([ops.ones_like(coverage), coverage], axis=1)
    sums = ops.matmul(both, weighted) * score_vector
    return (
        sums[:, 0],
        weighted,
        ops.squeeze(ops.matmul(weighted, by_vectors), 2),
        by_hidden,
        ops.sum(sums[:, 1], axis=0),
    )
