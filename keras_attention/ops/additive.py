"""The additive score in blocks, with a gradient that recomputes."""

from keras import ops


@ops.custom_gradient
def blocked_additive_score(query, key, score_vector):
    """`v . tanh(q_t + k_s)` for `(B, T, U)`, `(B, S, U)` and `(U,)`, as `(B, T, S)`."""
    scores = _forward(query, key, score_vector)

    def gradient(*args, upstream=None):
        if upstream is None:
            (upstream,) = args
        return _backward(query, key, score_vector, upstream)

    return scores, gradient


def _hidden(query, key):
    return ops.tanh(ops.expand_dims(query, 2) + ops.expand_dims(key, 1))


def _forward(query, key, score_vector):
    hidden = _hidden(query, key)
    return ops.squeeze(ops.matmul(hidden, ops.expand_dims(score_vector, -1)), -1)


def _backward(query, key, score_vector, upstream):
    hidden = _hidden(query, key)
    score_gradient = ops.einsum("bts,btsu->u", upstream, hidden)
    inner = ops.expand_dims(upstream, -1) * score_vector * (1 - hidden * hidden)
    return ops.sum(inner, axis=2), ops.sum(inner, axis=1), score_gradient
