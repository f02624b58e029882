"""Attention whose memory is a matrix for each head: linear attention and the gated delta rule.

Whole sequences are computed in chunks: inside of a chunk by products of matrices over its pairs of
steps, and between chunks by the matrix. Shapes: `B` batch, `T` steps, `H` heads of sizes `d` (keys)
and `dv` (values), `N` chunks of `C` steps. All are computed in at least float32: sums over
thousands of steps lose what is added last in half precision.
"""

from keras import ops

from .loops import scan_sequences
from .shapes import is_symbol, maximum, size_of
from .types import Tensor, at_least_float32


def linear_attention(
    query: Tensor, key: Tensor, value: Tensor, causal: bool = False, chunk_size: int = 64
) -> Tensor:
    """Return `q_t . sum_s k_s v_s / q_t . sum_s k_s` of every head, `(B, T, H, dv)`.

    A query whose products with all keys add up to 0 has a context of zeros.

    Args:
        query: Features of the queries `(B, T, H, d)`.
        key: Features of the keys `(B, S, H, d)`.
        value: Values `(B, S, H, dv)`.
        causal: Whether the sums end at `s = t`.
        chunk_size: Number of steps of a chunk of causal attention.
    """
    if not causal:
        sums = sums_of(key, value)
        return read_sums(query, sums)
    steps = size_of(query, 1)
    size, count = _chunks_of(maximum(steps, size_of(key, 1)), chunk_size)
    query, key, value = (_to_chunks(x, size, count) for x in (query, key, with_ones(value)))
    pairs = ops.matmul(query, ops.swapaxes(key, -1, -2))
    context = ops.matmul(_lower(pairs), value)
    if not _is_known(count, 1):
        sums = ops.cumsum(ops.matmul(ops.swapaxes(key, -1, -2), value), axis=0)
        before = ops.concatenate([ops.zeros_like(sums[:1]), sums[:-1]], axis=0)
        context = context + ops.matmul(query, before)
    return _normalized(_from_chunks(context, steps))


def sums_of(key: Tensor, value: Tensor) -> Tensor:
    """Return `sum_s k_s [v_s; 1]`, `(B, H, d, dv + 1)`, of `(B, S, H, d)` and `(B, S, H, dv)`."""
    key, value = ops.transpose(at_least_float32(key), (0, 2, 3, 1)), with_ones(value)
    return ops.matmul(key, ops.transpose(value, (0, 2, 1, 3)))


def read_sums(query: Tensor, sums: Tensor) -> Tensor:
    """Return the contexts `(B, T, H, dv)` of queries `(B, T, H, d)` that read the same sums."""
    query = ops.transpose(at_least_float32(query), (0, 2, 1, 3))
    return _normalized(ops.transpose(ops.matmul(query, sums), (0, 2, 1, 3)))


def with_ones(value: Tensor) -> Tensor:
    """Return values with a last feature of 1, whose weighted sum is the sum of the weights."""
    value = at_least_float32(value)
    return ops.concatenate([value, ops.ones_like(value[..., :1])], axis=-1)


def _normalized(context: Tensor) -> Tensor:
    """Divide by the last feature; zeros where it is 0."""
    total = context[..., -1:]
    return context[..., :-1] / ops.where(ops.equal(total, 0), ops.ones_like(total), total)


def gated_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    chunk_size: int = 64,
) -> Tensor:
    """Return `S_t q_t` of every head, `(B, T, H, dv)`, from `S_0 = 0`.

    `S_t = a_t S_{t-1} (I - b_t k_t k_t') + b_t v_t k_t'`, as `delta_rule_step` computes it.

    With `g_i` the product of the decays from the first step of a chunk to step `i`, the `C` updates
    of a chunk are one (Yang et al. 2025, section 3.3, the WY representation): the values that they
    write are `u_i - w_i S`, where `[U, W] = (I + L)^-1 [b v, b g k]` and `L` has the entries
    `b_i (g_i / g_j) k_i . k_j` below its diagonal. `chunk_size=1` is the recurrent form.

    Args:
        query: Queries `(B, T, H, d)`.
        key: Keys `(B, T, H, d)`, of length 1.
        value: Values `(B, T, H, dv)`.
        log_decay: Logarithms of the decays `a`, `(B, T, H)`.
        beta: Strengths of writing `b`, `(B, T, H)`.
        chunk_size: Number of steps of a chunk.
    """
    steps = size_of(query, 1)
    size, count = _chunks_of(steps, chunk_size)
    log_decay, beta = ops.expand_dims(log_decay, -1), ops.expand_dims(beta, -1)
    tensors = (query, key, value, log_decay, beta)
    query, key, value, log_decay, beta = (_to_chunks(x, size, count) for x in tensors)
    since_start = ops.cumsum(log_decay, axis=-2)
    between = since_start - ops.swapaxes(since_start, -1, -2)
    decays = _lower(ops.exp(_lower(between)))  # above the diagonal, an exponential may overflow
    transposed = ops.swapaxes(key, -1, -2)
    lower = _lower(beta * decays * ops.matmul(key, transposed), diagonal=-1)
    written = beta * ops.concatenate([value, key * ops.exp(since_start)], axis=-1)
    written = ops.solve_triangular(lower + ops.eye(size, dtype=lower.dtype), written, lower=True)
    until_end = ops.exp(since_start[..., -1:, :] - since_start)
    sequences = [
        query * ops.exp(since_start),
        decays * ops.matmul(query, transposed),
        written,
        ops.swapaxes(key * until_end, -1, -2),
        ops.exp(since_start[..., -1:, :]),
    ]
    value_dim = value.shape[-1]

    def step(states: list, at: list) -> tuple:
        (state,) = states
        query, pairs, written, key, decay = at
        new = written[..., :value_dim] - ops.matmul(written[..., value_dim:], state)
        context = ops.matmul(query, state) + ops.matmul(pairs, new)
        return [context], [decay * state + ops.matmul(key, new)]

    state = ops.zeros((*ops.shape(key)[1:3], key.shape[-1], value_dim), key.dtype)
    (context,), _ = scan_sequences(step, [state], sequences)
    return _from_chunks(context, steps)


def delta_rule_step(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the context `(B, H, dv)` of one step, and the state `(B, H, d, dv)` after it.

    Args are those of `gated_delta_rule` without the axis of steps, and the transposed state `S'`.
    """
    query, key, value, log_decay, beta = (
        at_least_float32(x) for x in (query, key, value, log_decay, beta)
    )
    state = state * ops.exp(log_decay)[..., None, None]
    known = ops.squeeze(ops.matmul(ops.expand_dims(key, -2), state), -2)
    new = beta[..., None] * (value - known)
    state = state + ops.expand_dims(key, -1) * ops.expand_dims(new, -2)
    return ops.squeeze(ops.matmul(ops.expand_dims(query, -2), state), -2), state


def _chunks_of(steps: Tensor, chunk_size: int) -> tuple:
    """Return the size of the chunks, an integer, and their number."""
    if isinstance(steps, int):
        size = max(1, min(chunk_size, steps))
        return size, max(1, -(-steps // size))
    count = (steps + chunk_size - 1) // chunk_size
    return chunk_size, count if is_symbol(count) else ops.maximum(count, 1)


def _is_known(number: Tensor, value: int) -> bool:
    """Return whether it is known that a number has this value."""
    return isinstance(number, int) and number == value


def _to_chunks(tensor: Tensor, size: int, count: Tensor) -> Tensor:
    """Return `(B, T, H, d)`, padded with zeros, in chunks: `(N, B, H, C, d)`."""
    tensor = at_least_float32(tensor)
    batch_size, (heads, features) = size_of(tensor, 0), tensor.shape[2:]
    missing = count * size - size_of(tensor, 1)
    if not _is_known(missing, 0):
        zeros = ops.zeros((batch_size, missing, heads, features), tensor.dtype)
        tensor = ops.concatenate([tensor, zeros], axis=1)
    chunks = ops.reshape(tensor, (batch_size, count, size, heads, features))
    return ops.transpose(chunks, (1, 0, 3, 2, 4))


def _from_chunks(chunks: Tensor, steps: Tensor) -> Tensor:
    """Return chunks `(N, B, H, C, d)` as `(B, T, H, d)`, without the padding."""
    count, batch_size = size_of(chunks, 0), size_of(chunks, 1)
    heads, size, features = chunks.shape[2:]
    tensor = ops.transpose(chunks, (1, 0, 3, 2, 4))
    return ops.reshape(tensor, (batch_size, count * size, heads, features))[:, :steps]


def _lower(pairs: Tensor, diagonal: int = 0) -> Tensor:
    """Return the pairs `(..., C, C)` of each step with steps up to itself; zeros for the others."""
    steps = ops.arange(pairs.shape[-1], dtype="int32")
    allowed = ops.expand_dims(steps, 1) + diagonal >= steps
    return ops.where(allowed, pairs, ops.zeros_like(pairs))
