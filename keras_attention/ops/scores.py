"""Scores of queries against keys: `e_ts`, before masking and normalising.

A query is `(B, T, ...)`. Keys are `(B, S, ...)`, shared by all queries, which gives scores
`(B, T, S)`, or `(B, T, W, ...)`, a window of `W` keys for every query, which gives `(B, T, W)`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from keras import backend, ops

from .shapes import product
from .types import Tensor, at_least_float32
from .vjp import pullback, with_gradient

# Numbers of the hidden layer in one block, 7 MB: smaller blocks are dominated by the overhead of
# the loop, larger ones miss the cache.
BLOCK_NUMBERS = 1_700_000
# Queries in a block where the sizes are known only when the graph runs.
BLOCK_QUERIES = 4


def dot_score(query: Tensor, key: Tensor) -> Tensor:
    """`e_ts = q_t . k_s`; float16 inputs give float32 scores, where large ones are finite."""
    if backend.standardize_dtype(query.dtype) == "float16":
        query, key = ops.cast(query, "float32"), ops.cast(key, "float32")
    if len(key.shape) == 4:
        return ops.squeeze(ops.matmul(key, ops.expand_dims(query, -1)), -1)
    return ops.matmul(query, ops.transpose(key, (0, 2, 1)))


def additive_score(
    query: Tensor,
    key: Tensor,
    score_vector: Tensor,
    coverage: Tensor = None,
    coverage_vector: Tensor = None,
) -> Tensor:
    """`e_ts = v . tanh(q_t + k_s + w_c c_ts)`, for queries `W q` and keys `U k` of `U` units.

    `v` and `w_c` are `(U,)`, and the coverage `c` `(B, T, S)` may be left out. Automatic
    differentiation would keep the hidden layer of `B T S U` numbers. Here a block of a few queries
    exists at a time, and is computed again in the backward pass. `hidden_layers` notes that the
    score has such a layer.
    """
    by_query = [query] if coverage is None else [query, coverage]
    shared = [key, score_vector] if coverage is None else [key, score_vector, coverage_vector]
    if len(key.shape) == 4:
        return _additive_score(by_query, shared)
    return _in_blocks(_additive_score, by_query, shared)


def _additive_score(by_query: Sequence[Tensor], shared: Sequence[Tensor]) -> Tensor:
    query, *coverage = by_query
    key, score_vector, *coverage_vector = shared
    key = key if len(key.shape) == 4 else ops.expand_dims(key, 1)
    hidden = ops.expand_dims(query, 2) + key  # (B, T, S, U)
    if coverage:
        hidden = hidden + ops.expand_dims(coverage[0], 3) * coverage_vector[0]
    # Not `matmul`: Keras 3.12 makes a product of batches of it, in which TensorFlow crashes.
    return ops.squeeze(product(ops.tanh(hidden), ops.expand_dims(score_vector, 1)), -1)


_hidden_layers: ContextVar[list | None] = ContextVar("hidden_layers", default=None)


@contextmanager
def hidden_layers() -> Iterator[list]:
    """Collect the scores, computed inside, that have a hidden layer for each query and key."""
    found: list = []
    token = _hidden_layers.set(found)
    try:
        yield found
    finally:
        _hidden_layers.reset(token)


def _in_blocks(function: Callable, by_query: list, shared: list) -> Tensor:
    """Return `function(by_query, shared)`, computed a block of queries at a time.

    `by_query` are tensors `(B, T, ...)`, `shared` all others. So are the gradients: those of one
    block after the other.
    """

    if (found := _hidden_layers.get()) is not None:
        found.append(function)

    def run(*tensors: Tensor) -> tuple:
        split = list(tensors[: len(by_query)]), list(tensors[len(by_query) :])
        size = _block_size(split[0][0], split[1][0])
        if size is None:
            return function(*split), lambda upstream: _vjp(function, *split, upstream)
        blocks = [_to_blocks(tensor, size) for tensor in split[0]]
        steps = ops.shape(split[0][0])[1]
        return (
            _run_blocks(function, blocks, split[1], steps),
            lambda upstream: _vjp_of_blocks(function, blocks, split[1], upstream, size),
        )

    def plain(*tensors: Tensor) -> Tensor:
        return function(tensors[: len(by_query)], tensors[len(by_query) :])

    return with_gradient(run, plain)(*by_query, *shared)


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


def _run_blocks(function: Callable, blocks: list, shared: list, steps: Tensor) -> Tensor:
    # Not `ops.map`: LiteRT does not know its lists of tensors.
    def add_block(index: Tensor, scores: Tensor) -> tuple:
        block = function([each[index] for each in blocks], shared)
        at = ops.reshape(ops.convert_to_tensor(index, "int32"), (1, 1))
        return index + 1, ops.scatter_update(scores, at, ops.expand_dims(block, 0))

    shape = (*ops.shape(blocks[0])[:3], ops.shape(shared[0])[1])
    first = (0, ops.zeros(shape, blocks[0].dtype))
    count = ops.shape(blocks[0])[0]
    scores = ops.while_loop(lambda index, _: index < count, add_block, first)[1]
    return _from_blocks(scores, steps)


def _vjp(function: Callable, by_query: list, shared: list, upstream: Tensor) -> list:
    def run(*tensors: Tensor) -> Tensor:
        return function(tensors[: len(by_query)], tensors[len(by_query) :])

    return pullback(run, [*by_query, *shared])[1](upstream)


def _vjp_of_blocks(
    function: Callable, blocks: list, shared: list, upstream: Tensor, size: int
) -> list:
    steps = ops.shape(upstream)[1]
    upstreams = _to_blocks(upstream, size)
    count = ops.shape(upstreams)[0]

    def add_block(index: Tensor, d_blocks: list, sums: list) -> tuple:
        at = [each[index] for each in blocks]
        found = _vjp(function, at, shared, upstreams[index])
        d_blocks = [
            ops.slice_update(
                whole, (index, *(0,) * (len(whole.shape) - 1)), ops.expand_dims(one, 0)
            )
            for whole, one in zip(d_blocks, found, strict=False)
        ]
        parts = found[len(blocks) :]
        sums = [total + ops.cast(one, total.dtype) for total, one in zip(sums, parts, strict=True)]
        return index + 1, d_blocks, sums

    # Gradients of shared tensors are sums over many blocks: at least float32.
    sums = [at_least_float32(ops.zeros_like(each)) for each in shared]
    first = (0, [ops.zeros_like(each) for each in blocks], sums)
    _, d_blocks, sums = ops.while_loop(lambda index, *_: index < count, add_block, first)
    sums = [ops.cast(total, each.dtype) for total, each in zip(sums, shared, strict=True)]
    return [*(_from_blocks(each, steps) for each in d_blocks), *sums]


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
