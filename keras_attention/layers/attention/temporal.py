"""Attention that lowers what was read before (Paulus, Xiong and Socher 2017)."""

import keras
from keras import ops

from ...ops.scores import dot_score
from ...ops.types import accumulator_dtype, at_least_float32
from .scored import BilinearAttention, ignores_positions

# The logarithm of an empty sum: finite, so that no difference is NaN.
EMPTY = -1e30


@keras.saving.register_keras_serializable("keras_attention")
class TemporalAttention(BilinearAttention):
    """Bilinear attention that lowers the score of a position by its earlier scores.

    `e_ts = q_t W k_s`, `e'_ts = exp(e_ts) / sum_(j<t) exp(e_js)` (for the first query
    `exp(e_ts)`), `a_ts = e'_ts / sum_s e'_ts`, `c_t = sum_s a_ts v_s`

    The state is the logarithm of the sum, `(B, S)`, so that no exponential can overflow.

    Weights: `score_kernel` `W (Dq, Dk)`.

    Args:
        kernel_initializer: Initializer of `W`.
        dropout: As in `ScoredAttention`, and so are the call and its results.
        seed: Seed of the dropout.
        **kwargs: As in `ScoredAttention`.
            A masked query leaves no trace.

    Reference:
        Paulus, Xiong and Socher 2017, "A deep reinforced model for abstractive summarization",
        section 2.1, equations 1 to 5. Their `h^d_t` is the query, `h^e_i` key and value,
        `W^e_attn` is `score_kernel`.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import TemporalAttention

    states = np.repeat(np.random.normal(size=(2, 1, 8)), 3, axis=1)    # the same query thrice
    memory = np.random.normal(size=(2, 7, 12))
    _, scores = TemporalAttention()(states, memory, return_attention_scores=True)
    # The second time, every score is lowered by itself: all positions have equal weights.
    np.testing.assert_allclose(scores[:, 1], np.full((2, 7), 1 / 7), rtol=1e-4)
    ```
    """

    def project_key(self, key):
        return ops.matmul(key, ops.transpose(self.cast(self.score_kernel)))

    def initial_state(self, memory):
        rows = memory["value"][:, :, 0]
        return {"log_sum": ops.full_like(rows, EMPTY, dtype=accumulator_dtype(rows.dtype))}

    @ignores_positions
    def score(self, query, key, positions, state):
        return at_least_float32(dot_score(query, key)) - past_of(state)

    def update(self, state, scores, weights):
        return {"log_sum": log_add_exp(state["log_sum"], scores + past_of(state))}


def past_of(state):
    """Return `log sum_(j<t) exp(e_j)`, and 0 for the first query."""
    log_sum = state["log_sum"]
    return ops.where(is_empty(log_sum), ops.zeros_like(log_sum), log_sum)


def log_add_exp(first, second):
    """`log(exp(first) + exp(second))`, with the gradient also where both are equal."""
    largest = ops.stop_gradient(ops.maximum(first, second))
    return largest + ops.log(ops.exp(first - largest) + ops.exp(second - largest))


def is_empty(total):
    """Tell where nothing was added to a logarithm that began as `EMPTY`."""
    return total < 0.5 * EMPTY
