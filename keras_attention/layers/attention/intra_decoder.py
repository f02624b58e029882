"""Attention of a decoder over its own earlier states (Paulus, Xiong and Socher 2017)."""

import keras
from keras import ops

from ...ops.masks import attention_mask, combine_masks
from ...ops.normalizers import masked_softmax
from ...ops.positions import gather_windows
from ...ops.shapes import product
from .base import row_zeros
from .scored import BilinearAttention


@keras.saving.register_keras_serializable("keras_attention")
class IntraDecoderAttention(BilinearAttention):
    """Bilinear attention of a decoder over its own earlier states.

    `e_tj = h_t W h_j`, `a_tj = softmax_(j<t)(e_tj)`, `c_t = sum_(j<t) a_tj h_j`, `c_1 = 0`

    A decoder sees what it has said already. Step by step, a buffer as long as the memory keeps the
    earlier states; a step past its end sees the buffer, and is not kept.

    Apply the layer to the decoder's outputs: the context does not enter its recurrence. As the
    `attention` of an `AttentionDecoder` it gives a decoder without a source.

    Weights: `score_kernel` `W (D, D)`.

    Args:
        kernel_initializer: Initializer of `W`.
        dropout: As in `ScoredAttention`, and so are the call and its results.
        seed: Seed of the dropout.
        **kwargs: As in `ScoredAttention`.
            The `query` is the decoder's states `(B, T, D)`. The `value` `(B, S, D)` only sets the
            length `S` of the buffer, at least `T`; the `key` is not used.

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

    buffer = layer.prepare_memory(np.zeros((2, 20, 8), "float32"))    # for up to twenty steps
    first, _, state = layer.step(states[:, 0], buffer, layer.initial_state(buffer))
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
        return product(query, self.cast(self.score_kernel))

    def initial_state(self, memory):
        value = memory["value"]
        return {"states": ops.zeros_like(value), "position": row_zeros(value)}

    def attend(self, query, memory, state, query_mask=None, return_attention_scores=True):
        steps = ops.shape(query)[1]
        positions = ops.arange(ops.shape(memory["value"])[1], dtype="int32")
        states = _written(state["states"], query, positions, state["position"])
        own = ops.expand_dims(state["position"], 1) + ops.arange(steps, dtype="int32")
        real = attention_mask(query_mask, memory.get("mask"))
        mask = combine_masks(positions < ops.expand_dims(own, 2), real)
        if query_mask is not None:  # a masked query is no state that a later one could read
            is_state = _written(
                ops.ones_like(states[:, :, :1], "bool"),
                ops.expand_dims(query_mask, 2),
                positions,
                state["position"],
            )
            mask = combine_masks(mask, ops.swapaxes(is_state, 1, 2))
        scores = self.score(self.queries(query), states, positions)
        weights = self.cast(masked_softmax(scores, mask))
        context = self.read(weights, {**memory, "value": states})
        return context, weights, {"states": states, "position": state["position"] + steps}


def _written(states, query, positions, position):
    """Return states `(B, S, D)` with `T` queries written from each row's position on."""
    offset = positions - ops.expand_dims(position, 1)
    is_new = ops.logical_and(offset >= 0, offset < ops.shape(query)[1])
    if query.shape[1] != 1:
        query = ops.squeeze(gather_windows(query, ops.expand_dims(offset, 1)), 1)
    return ops.where(ops.expand_dims(is_new, 2), query, states)
