"""Scores with a gradient of their own, for the decoder's fast loop."""

from typing import Any

from keras import ops

from keras_attention.ops.additive import additive_key_gradients, additive_query_gradient
from keras_attention.ops.scores import dot_score


class LoopScore:
    """The score of one query a row, with a gradient of its own, for the decoder's fast loop.

    A mechanism's `loop_score` returns one, and the decoder then differentiates its loop as a whole:
    it multiplies queries with `query_kernel`, masks and normalises the scores, applies dropout to
    the weights, and reads the values.

    A subclass writes `score`, `query_gradient` and `memory_gradients`. A score that depends on what
    earlier queries read has a state, which is the mechanism's (`initial_state`), and also writes
    `keep` and `keep_gradients`.

    Args:
        query_kernel: Kernel `(Dq, U)` that queries are multiplied with, in the compute dtype.
            Default: the score reads the queries themselves.
        **weights: Other tensors that the score reads, in the compute dtype; each gets a gradient.

    Example:

    ```python
    import keras
    import numpy as np
    from keras_attention.layers import AttentionDecoder, AttentionMechanism, DotScore

    class LowRankAttention(AttentionMechanism):
        def build_score(self, query_size, key_size):
            self.query_kernel = self.add_weight((query_size, 4), name="query_kernel")
            self.key_kernel = self.add_weight((key_size, 4), name="key_kernel")

        def project_query(self, query):
            return keras.ops.matmul(query, self.cast(self.query_kernel))

        def project_key(self, key):
            return keras.ops.matmul(key, self.cast(self.key_kernel))

        def score(self, query, key, positions):
            return keras.ops.matmul(query, keras.ops.swapaxes(key, 1, 2))

        def loop_score(self):
            return DotScore(self.cast(self.query_kernel))

    decoder = AttentionDecoder(keras.layers.GRUCell(12), LowRankAttention())
    outputs = decoder(np.random.normal(size=(2, 5, 8)), np.random.normal(size=(2, 7, 12)))
    assert tuple(outputs.shape) == (2, 5, 12)
    ```
    """

    summed: tuple[str, ...] = ()
    """Names, `"key"` or of weights, whose gradients `query_gradient` gives and the loop sums up."""

    def __init__(self, query_kernel: Any = None, **weights: Any):
        self.query_kernel = query_kernel
        self.weights = weights

    def score(self, query, key, state, weights):
        """Return the scores `(B, S)` of a query `(B, U)`, multiplied with its kernel.

        Args:
            query: The query.
            key: The memory's keys `(B, S, ...)`, as `project_key` made them.
            state: The mechanism's state before the query, a dictionary.
            weights: The dictionary of `weights`.
        """
        raise NotImplementedError(f"{type(self).__name__} must write `score`.")

    def query_gradient(self, upstream, query, key, state, weights):
        """Return the gradients that the step before waits for, from that of the scores `(B, S)`.

        Returns:
            The gradient of the query `(B, U)`; that of the state, a dictionary; and a dictionary
            of gradients by the names in `summed`.
        """
        raise NotImplementedError(f"{type(self).__name__} must write `query_gradient`.")

    def memory_gradients(self, upstream, query, key, weights, sums):
        """Return the gradients of `"key"` and of every weight, a dictionary: once, after the loop.

        Args:
            upstream: Gradient of the scores of all queries, `(B, T, S)`.
            query: The queries, `(B, T, U)`.
            key: The memory's keys.
            weights: The dictionary of `weights`.
            sums: float32 sums over all queries of the gradients that `summed` names.
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
        return ops.matmul(ops.tanh(ops.expand_dims(query, 1) + key), weights["score_vector"])

    def query_gradient(self, upstream, query, key, state, weights):
        gradient = additive_query_gradient(query, key, weights["score_vector"], upstream)
        return gradient, {}, {}

    def memory_gradients(self, upstream, query, key, weights, sums):
        gradients = additive_key_gradients(query, key, weights["score_vector"], upstream)
        return dict(zip(("key", "score_vector"), gradients, strict=True))
