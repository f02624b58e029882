"""The two attentions of a summariser (Paulus, Xiong and Socher 2017): temporal, intra-decoder."""

from typing import Any

import keras
from keras import ops

from keras_attention.layers.arguments import with_arguments
from keras_attention.layers.attention.base import AttentionMechanism, row_zeros
from keras_attention.layers.recurrent.recurrence import run_loop
from keras_attention.ops.masks import attention_mask, combine_masks
from keras_attention.ops.normalizers import masked_softmax
from keras_attention.ops.scores import dot_score
from keras_attention.ops.windows import gather_windows

# Stands for the logarithm of an empty sum: finite, so that no difference of it is NaN.
EMPTY = -1e30


class _Bilinear(AttentionMechanism):
    """`e_ts = q_t W k_s`."""

    def __init__(
        self,
        kernel_initializer: Any = "glorot_uniform",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(dropout=dropout, seed=seed, **kwargs)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build_score(self, query_size, key_size):
        self._make_weight("score_kernel", (query_size, key_size), self.kernel_initializer)

    def score(self, query, key, positions):
        return dot_score(query, key)

    def get_config(self):
        return with_arguments(super().get_config(), self, _Bilinear)


@keras.saving.register_keras_serializable("keras_attention")
class TemporalAttention(_Bilinear):
    """Bilinear attention that lowers the score of a place by the scores it has had before.

    `e_ts = q_t W k_s`, `e'_ts = exp(e_ts) / sum_(j<t) exp(e_js)` (for the first query
    `exp(e_ts)`), `a_ts = e'_ts / sum_s e'_ts`, `c_t = sum_s a_ts v_s`

    Computed as `softmax(e_t - log sum_(j<t) exp(e_j))`, with the logarithm of the sum carried from
    query to query: no exponential is taken that could overflow, however long the sequence. That
    logarithm, `(B, S)`, is the state.

    Weights: `score_kernel` `W (Dq, Dk)`.

    Args:
        kernel_initializer: Initializer of `W`.
        dropout, seed, **kwargs: As in `AttentionMechanism`, and so are the call and its results.
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
    # What was read is read less: the second time all places have lost what they were read for.
    np.testing.assert_allclose(scores[:, 1], np.full((2, 7), 1 / 7), rtol=1e-4)
    ```
    """

    def project_key(self, key):
        return ops.matmul(key, ops.transpose(self.cast(self.score_kernel)))

    def initial_state(self, memory):
        return {"log_sum": ops.full_like(memory["value"][:, :, 0], EMPTY, dtype="float32")}

    def attend(self, query, memory, state, query_mask=None, return_attention_scores=True):
        mask = attention_mask(query_mask, memory.get("mask"))
        scores = ops.cast(self.score(self.queries(query), memory["key"], None), "float32")
        if mask is not None:
            scores = ops.where(mask, scores, ops.zeros_like(scores))
        before, state = _running_log_sums(scores, query_mask, state)
        past = ops.where(is_empty(before), ops.zeros_like(before), before)
        weights = ops.cast(masked_softmax(scores - past, mask), query.dtype)
        return self.read(weights, memory), weights, state


@keras.saving.register_keras_serializable("keras_attention")
class IntraDecoderAttention(_Bilinear):
    """Bilinear attention of a decoder over its own earlier states.

    `e_tj = h_t W h_j`, `a_tj = softmax_(j<t)(e_tj)`, `c_t = sum_(j<t) a_tj h_j`, `c_1 = 0`

    It lets a decoder see what it has said already. A whole sequence is read at once, strictly
    causally. Step by step, the state keeps the earlier states in a buffer of fixed size, so that a
    compiled search can carry and reorder it; the memory only says how many steps there is room
    for. A step past that room sees those that had room, and is not itself kept.

    Apply the layer to the decoder's outputs: the context does not enter its recurrence. As the
    `attention` of an `AttentionDecoder` it gives a decoder without a source, and the `value` of
    the call is the room.

    Weights: `score_kernel` `W (D, D)`.

    Args:
        kernel_initializer: Initializer of `W`.
        dropout, seed, **kwargs: As in `AttentionMechanism`, and so are the call and its results.
            The `query` is the decoder's states `(B, T, D)`. Of the `value` `(B, S, D)` only the
            number of steps `S`, at least `T`, is used, and the `key` not at all.

    Reference:
        Paulus, Xiong and Socher 2017, "A deep reinforced model for abstractive summarization",
        section 2.2, equations 6 to 8. Their `W^d_attn` is `score_kernel`.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import IntraDecoderAttention

    states = np.random.normal(size=(2, 5, 8)).astype("float32")    # five decoder states
    layer = IntraDecoderAttention()
    context, scores = layer(states, return_attention_scores=True)
    assert not np.any(context[:, 0])    # nothing was said before the first word

    room = layer.prepare_memory(np.zeros((2, 20, 8), "float32"))    # for up to twenty steps
    first, _, state = layer.step(states[:, 0], room, layer.initial_state(room))
    np.testing.assert_allclose(first, context[:, 0], atol=1e-5)
    ```
    """

    def build_score(self, query_size, key_size):
        if query_size != self.value_size:
            raise ValueError(
                "A decoder's own states are queries and memory alike, so both have one size. "
                f"Received: query size {query_size}, value size {self.value_size}"
            )
        super().build_score(query_size, query_size)

    def project_query(self, query):
        return ops.matmul(query, self.cast(self.score_kernel))

    def initial_state(self, memory):
        return {
            "states": ops.zeros_like(memory["value"]),
            "position": row_zeros(memory["value"]),
        }

    def attend(self, query, memory, state, query_mask=None, return_attention_scores=True):
        steps = ops.shape(query)[1]
        places = ops.arange(ops.shape(memory["value"])[1], dtype="int32")
        states = _written(state["states"], query, places, state["position"])
        own = ops.expand_dims(state["position"], 1) + ops.arange(steps, dtype="int32")
        mask = combine_masks(
            places < ops.expand_dims(own, 2), attention_mask(query_mask, memory.get("mask"))
        )
        scores = self.score(self.queries(query), states, places)
        weights = self.cast(masked_softmax(scores, mask))
        context = self.read(weights, {**memory, "value": states})
        return context, weights, {"states": states, "position": state["position"] + steps}


def _written(states, query, places, position):
    """Return states `(B, S, D)` with `T` queries written from each row's position on."""
    offset = places - ops.expand_dims(position, 1)
    is_new = ops.logical_and(offset >= 0, offset < ops.shape(query)[1])
    if query.shape[1] != 1:
        query = ops.squeeze(gather_windows(query, ops.expand_dims(offset, 1)), 1)
    return ops.where(ops.expand_dims(is_new, 2), query, states)


def _running_log_sums(scores, query_mask, state):
    """Return `log sum_(j<t) exp(e_j)` of every query, `(B, T, S)`, and the state after them."""
    length = ops.shape(scores)[2]
    if query_mask is not None:
        real = ops.cast(ops.expand_dims(query_mask, 2), scores.dtype)
        scores = ops.concatenate([scores, real], axis=2)

    def add(x, states):
        (before,) = states
        after = log_add_exp(before, x[:, :length])
        if query_mask is not None:
            after = ops.where(x[:, length:] > 0.5, after, before)
        return [before], [after]

    if scores.shape[1] == 1:
        (before,), (after,) = add(scores[:, 0], [state["log_sum"]])
        return ops.expand_dims(before, 1), {"log_sum": after}
    (before,), (after,) = run_loop(add, scores, [state["log_sum"]])
    return before, {"log_sum": after}


def log_add_exp(first, second):
    """`log(exp(first) + exp(second))`, with the gradient also where both are equal."""
    largest = ops.stop_gradient(ops.maximum(first, second))
    return largest + ops.log(ops.exp(first - largest) + ops.exp(second - largest))


def is_empty(total):
    """Tell where nothing was added to a logarithm that began as `EMPTY`."""
    return total < 0.5 * EMPTY
