"""The additive score that knows what was read already, and what reading it again costs."""

from keras import ops


@ops.custom_gradient
def coverage_score(query, key, coverage, score_vector, coverage_vector):
    """`e_s = v . tanh(q + k_s + w_c c_s)` of one query a row.

    The hidden layer, `B S U` numbers, is computed again in the backward pass: a loop over `T`
    queries keeps none of the `B T S U` numbers that its steps compute.

    Args:
        query: `W q`, `(B, U)`.
        key: `U k`, `(B, S, U)`.
        coverage: `c`, `(B, S)`.
        score_vector: `v`, `(U,)`.
        coverage_vector: `w_c`, `(U,)`.

    Returns:
        Scores `(B, S)`.
    """
    hidden = coverage_hidden(query, key, coverage, coverage_vector)
    scores = ops.squeeze(ops.matmul(hidden, ops.expand_dims(score_vector, 1)), 2)

    def gradient(*args, upstream=None):
        if upstream is None:
            (upstream,) = args
        by_query, by_key, by_coverage, *by_vectors = coverage_gradients(
            query, key, coverage, score_vector, coverage_vector, upstream
        )
        return by_query, by_key * score_vector, by_coverage, *by_vectors

    return scores, gradient


def coverage_hidden(query, key, coverage, coverage_vector):
    """Return the hidden layer `tanh(q + k_s + w_c c_s)`, `(B, S, U)`."""
    coverage = ops.expand_dims(coverage, 2) * coverage_vector
    return ops.tanh(ops.expand_dims(query, 1) + key + coverage)


def coverage_gradients(query, key, coverage, score_vector, coverage_vector, upstream):
    """Return the gradients of `coverage_score`, in the order of its arguments.

    That of the keys still has to be multiplied by the score vector: once for all steps of a loop.
    """
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


def mean_overlap(scores, target_mask=None):
    """Return `sum_s min(a_ts, c_ts)`, averaged over real steps and then over examples.

    `c_t` is the sum of the weights before step `t`, without those of `t` itself.

    Args:
        scores: Weights `a`, `(B, T, S)`.
        target_mask: Boolean `(B, T)`, True = a real step, or `None` where all are.

    Returns:
        A float32 scalar.
    """
    scores = ops.cast(scores, "float32")
    real = ops.ones_like(scores[:, :, 0]) if target_mask is None else target_mask
    real = ops.cast(real, "float32")
    scores = scores * ops.expand_dims(real, 2)  # what padding reads covers nothing
    before = ops.concatenate([ops.zeros_like(scores[:, :1]), scores[:, :-1]], axis=1)
    overlap = ops.sum(ops.minimum(scores, ops.cumsum(before, axis=1)), axis=2)
    steps = ops.sum(real, axis=1)
    of_examples = ops.sum(overlap, axis=1) / ops.maximum(steps, 1.0)
    examples = ops.sum(ops.cast(steps > 0, "float32"))
    return ops.sum(of_examples) / ops.maximum(examples, 1.0)
