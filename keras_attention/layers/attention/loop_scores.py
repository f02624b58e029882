"""Scores with a gradient of their own, for the decoder's fast loop."""

from typing import Any

from keras import ops

from ...ops.scores import additive_gradients, dot_score
from ...ops.shapes import product


class LoopScore:
    """The score of one query a row, with a gradient of its own, for the decoder's fast loop.

    A mechanism returns one from `loop_score`. A subclass writes `score`, `query_gradient` and
    `memory_gradients`; one that depends on the mechanism's state also `keep` and `keep_gradients`.

    Args:
        query_kernel: Kernel `(Dq, U)` that queries are multiplied with, in the compute dtype.
            Default: the score reads the queries themselves.
        **weights: Other tensors that the score reads, in the compute dtype; each gets a gradient.

    Example:

    ```python
    from keras_attention.layers import BahdanauAttention, LoopScore

    attention = BahdanauAttention(units=4)
    attention.build((2, 5, 8), (2, 7, 12))
    assert isinstance(attention.loop_score(), LoopScore)
    ```
    """

    summed: tuple[str, ...] = ()
    """Names, `"key"` or of weights, whose gradients `query_gradient` gives and the loop sums up."""

    def __init__(self, query_kernel: Any = None, **weights: Any):
        self.query_kernel = query_kernel
        self.weights = weights

    def score(self, query, key, state, weights):
        """Return the scores `(B, S)` of queries `(B, U)`, multiplied with their kernel."""
        raise NotImplementedError(f"{type(self).__name__} must write `score`.")

    def query_gradient(self, upstream, query, key, state, weights):
        """Return the gradients of query `(B, U)` and state, and a dictionary of those `summed`."""
        raise NotImplementedError(f"{type(self).__name__} must write `query_gradient`.")

    def memory_gradients(self, upstream, query, key, weights, sums):
        """Return the gradients of `"key"` and of every weight, a dictionary: once, after the loop.

        From those of all scores `(B, T, S)`, all queries `(B, T, U)`, and the sums by `summed`.
        """
        raise NotImplementedError(f"{type(self).__name__} must write `memory_gradients`.")

    def keep(self, state, attention):
        """Return the state after a query whose attention weights are `(B, S)`."""
        return state

    def keep_gradients(self, upstream, state, attention):
        """Return the gradients of the two arguments of `keep`; 0 where there is none."""
        return upstream, 0


class DotScore(LoopScore):
    """`e_s = q . k_s`. Its argument is the `query_kernel` of `LoopScore`, or `None`.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import DotScore

    query, key = np.ones((2, 5), "float32"), np.ones((2, 7, 5), "float32")
    assert np.all(DotScore().score(query, key, {}, {}) == 5)
    ```
    """

    def score(self, query, key, state, weights):
        # A row by a matrix: XLA is slower with a matrix by a column.
        return ops.squeeze(dot_score(ops.expand_dims(query, 1), key), 1)

    def query_gradient(self, upstream, query, key, state, weights):
        gradient = ops.matmul(ops.expand_dims(upstream, 1), key)
        return ops.squeeze(gradient, 1), {}, {}

    def memory_gradients(self, upstream, query, key, weights, sums):
        return {"key": ops.matmul(ops.swapaxes(upstream, 1, 2), query)}


class AdditiveScore(LoopScore):
    """`e_s = v . tanh(q + k_s)`, with the `query_kernel` of `LoopScore`, and `v`, `(U,)`.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import AdditiveScore

    score = AdditiveScore(None, score_vector=np.ones(5, "float32"))
    query, key = np.zeros((2, 5), "float32"), np.zeros((2, 7, 5), "float32")
    assert not np.any(score.score(query, key, {}, score.weights))
    ```
    """

    def __init__(self, query_kernel: Any, score_vector: Any):
        super().__init__(query_kernel, score_vector=score_vector)

    def score(self, query, key, state, weights):
        hidden = ops.tanh(ops.expand_dims(query, 1) + key)
        return ops.squeeze(product(hidden, ops.expand_dims(weights["score_vector"], 1)), 2)

    def query_gradient(self, upstream, query, key, state, weights):
        hidden = ops.tanh(ops.expand_dims(query, 1) + key)
        slope = ops.matmul(ops.expand_dims(upstream, 1), 1 - hidden * hidden)
        return ops.squeeze(slope, 1) * weights["score_vector"], {}, {}

    def memory_gradients(self, upstream, query, key, weights, sums):
        _, *gradients = additive_gradients(query, key, weights["score_vector"], upstream)
        return dict(zip(("key", "score_vector"), gradients, strict=True))
