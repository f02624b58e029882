"""Intra-decoder attention (Paulus, Xiong and Socher 2017)."""

from typing import Any

import keras
from keras import ops

from keras_attention.layers.attention.base import AttentionMechanism, row_zeros
from keras_attention.ops.masks import attention_mask, combine_masks
from keras_attention.ops.normalizers import masked_softmax
from keras_attention.ops.scores import dot_score
from keras_attention.ops.windows import gather_windows


@keras.saving.register_keras_serializable("keras_attention")
class IntraDecoderAttention(AttentionMechanism):
    """Bilinear attention of a decoder over its own earlier states.

    `e_tj = h_t W h_j`, `a_tj = softmax_(j<t)(e_tj)`, `c_t = sum_(j<t) a_tj h_j`, `c_1 = 0`

    It lets a decoder see what it has said already. A whole sequence of states is read at once,
    strictly causally. Step by step, the earlier states are kept in the state, in a buffer of fixed
    size, so that a compiled search can carry and reorder it; the memory only says how many steps
    there is room for. A step past that room sees those that had room, and is not itself kept.

    The context does not enter the decoder's recurrence: apply the layer to the decoder's outputs.
    As the `attention` of an `AttentionDecoder` it gives a decoder that has no source: the context
    of each step is read from the decoder's own past, and the `value` of the call is the room.

    Weights: `score_kernel` `W (D, D)`.

    Args:
        kernel_initializer: Initializer of `W`.
        dropout: Rate at which weights are dropped in training.
        seed: Seed of the dropout.
        **kwargs: Arguments of every Keras layer.

    Call arguments:
        query: The decoder's states `(B, T, D)`.
        value: `(B, S, D)`, of which only the number of steps `S`, at least `T`, is used. Default:
            the queries.
        key: Not used; as in every mechanism.
        query_mask: Boolean `(B, T)`, True = attend.
        value_mask: Boolean `(B, S)`, True = attend. Default: `query_mask`, where no value is given.
        return_attention_scores: Whether to return the weights too.
        training: Whether dropout applies.
        mask: The mask of the only input, where Keras passes it by itself.

    Returns:
        The context `(B, T, D)`; with `return_attention_scores`, a tuple of it and the weights
        `(B, T, S)`.

    Raises:
        ValueError: Where shapes or masks do not fit.

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
    state = layer.initial_state(room)
    for t in range(5):
        step_context, _, state = layer.step(states[:, t], room, state)
        np.testing.assert_allclose(step_context, context[:, t], atol=1e-5)
    ```
    """

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
        if query_size != self.value_size:
            raise ValueError(
                "A decoder's own states are queries and memory alike, so both have one size. "
                f"Received: query size {query_size}, value size {self.value_size}"
            )
        self.score_kernel = self.add_weight(
            (query_size, query_size), initializer=self.kernel_initializer, name="score_kernel"
        )

    def project_query(self, query):
        return ops.matmul(query, self.cast(self.score_kernel))

    def score(self, query, key, positions):
        return dot_score(query, key)

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

    def get_config(self):
        initializer = keras.initializers.serialize(self.kernel_initializer)
        return {**super().get_config(), "kernel_initializer": initializer}


def _written(states, query, places, position):
    """Return states `(B, S, D)` with `T` queries written from each row's position on."""
    offset = places - ops.expand_dims(position, 1)
    is_new = ops.logical_and(offset >= 0, offset < ops.shape(query)[1])
    if query.shape[1] != 1:
        query = ops.squeeze(gather_windows(query, ops.expand_dims(offset, 1)), 1)
    return ops.where(ops.expand_dims(is_new, 2), query, states)
