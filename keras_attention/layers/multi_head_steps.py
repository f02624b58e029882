"""Multi-head attention one query at a time: the memory projected once, the cache of a sequence."""

from keras import ops

from keras_attention.layers.multi_head_checks import check_features, check_step_mask
from keras_attention.layers.multi_head_projections import HeadProjections, rank_4, without_padding
from keras_attention.ops.cache import write_place
from keras_attention.ops.dot_product import attention_with_scores
from keras_attention.ops.masks import check_mask
from keras_attention.ops.reach import Reach, Span


class HeadSteps(HeadProjections):
    """What a decoder calls; memory and state are arguments and results, never attributes."""

    def prepare_memory(self, value, key=None, mask=None) -> dict:
        """Project once the keys and values that every query step reads.

        Args:
            value: `(B, S, Dv)`.
            key: `(B, S, Dk)`. Default: `value`.
            mask: Boolean `(B, S)`, True = attend, or `None`.

        Returns:
            Dictionary of tensors with the batch first: `key` `(B, G, S, key_dim)`, `value`
            `(B, G, S, value_dim)` for `G` key heads, and `mask` where there is one.
        """
        self._check_built()
        value = self.cast(value)
        key = value if key is None else self.cast(key)
        check_features(self, "value", value.shape)
        check_features(self, "key", key.shape)
        check_mask(mask, tuple(value.shape[:2]), "value_mask")
        _, value, key = without_padding(value, value, key, None, mask)
        key, value = self._project_memory(value, key)
        memory = {"key": key, "value": value}
        return memory if mask is None else {**memory, "mask": ops.cast(mask, "bool")}

    def initial_state(self, batch_size, max_length: int) -> dict:
        """Return the empty cache of self-attention, for sequences of `max_length` at most.

        Returns:
            `key` `(B, G, max_length, key_dim)` and `value` `(B, G, max_length, value_dim)`, zeros.
        """
        shape = (batch_size, self.num_key_value_heads, max_length)
        return {
            "key": ops.zeros((*shape, self.key_dim), self.compute_dtype),
            "value": ops.zeros((*shape, self.value_dim), self.compute_dtype),
        }

    def step(self, query, memory, state, index, attention_mask=None, return_attention_scores=True):
        """Attend with one query a row.

        With a memory, that is cross-attention, and the state is handed through as it is: `{}`
        will do. Without one (`None`), it is causal self-attention: the query's own key and value
        are written to the cache at `index`, and it reads the places up to there.

        Args:
            query: `(B, D)`.
            memory: What `prepare_memory` gave, or `None`.
            state: What `initial_state` or the step before gave.
            index: The query's place, from 0: an integer or a scalar tensor, the same for all rows.
            attention_mask: Boolean `(B, S)` or `(B, H, S)`, the places that the query may see,
                beside what else decides it; `None` for all.
            return_attention_scores: Whether the weights are wanted; else they are `None`.

        Returns:
            The output `(B, O)`, the weights `(B, H, S)` (`S` is `max_length` in self-attention),
            and the state after the step.
        """
        self._check_built()
        query = ops.expand_dims(self.cast(query), 1)
        check_features(self, "query", query.shape)
        if memory is None:
            check_features(self, "value", query.shape)
            query, key, value = self._project_inputs(query, query, None, index)
            _check_place(index, state)
            state = {
                name: write_place(state[name], index, part)
                for name, part in (("key", key), ("value", value))
            }
            memory = state
        else:
            query = self._project_query(query, index)
        context, scores = self._read(query, memory, index, memory is state, attention_mask)
        output = ops.squeeze(self._output(context), 1)
        return output, ops.squeeze(scores, 2) if return_attention_scores else None, state

    def _read(self, query, memory, index, causal, attention_mask):
        length = ops.shape(memory["key"])[2]
        if attention_mask is not None:
            check_step_mask(attention_mask, tuple(memory["key"].shape), self.num_heads)
            attention_mask = rank_4(ops.expand_dims(attention_mask, -2))
        masks = (None, memory.get("mask"), attention_mask)
        reach = Reach(causal, self.window, self.num_sinks, *masks)
        return attention_with_scores(
            query,
            memory["key"],
            memory["value"],
            reach,
            self._bias_table(-index, length - index, causal),
            self.normalizer,
            rows=Span(index, 1),
        )

    def _check_built(self):
        if not self.built:
            raise ValueError(
                "MultiHeadAttention has no weights yet. Call it once, or "
                "`build(query_shape, value_shape)`, before its memory is prepared or a step taken."
            )


def _check_place(index, state):
    length = state["key"].shape[2]
    if isinstance(index, int) and isinstance(length, int) and not 0 <= index < length:
        raise ValueError(
            f"`index` must lie in the {length} places of the state. Received: index={index}"
        )
