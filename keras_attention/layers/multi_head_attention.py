"""Multi-head attention (Vaswani et al. 2017), with what became of it since."""

import keras
from keras import ops

from keras_attention.layers.multi_head_checks import (
    check_arguments,
    check_features,
    check_masks,
    check_shapes,
    check_step_mask,
)
from keras_attention.layers.multi_head_projections import HeadProjections
from keras_attention.ops.dot_product import attention, attention_with_scores
from keras_attention.ops.masks import check_mask, combine_masks
from keras_attention.ops.positions import alibi_slopes, relative_buckets, rotate
from keras_attention.ops.reach import Reach, Span


@keras.saving.register_keras_serializable("keras_attention")
class MultiHeadAttention(HeadProjections):
    """Multi-head attention."""

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        dropout=0.0,
        use_bias=True,
        output_shape=None,
        num_key_value_heads=None,
        positions=None,
        max_wavelength=10000,
        num_buckets=32,
        max_distance=128,
        window=None,
        num_sinks=0,
        normalizer="softmax",
        query_key_norm=False,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        seed=None,
        **kwargs,
    ):
        super().__init__(
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
            **kwargs,
        )
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = key_dim if value_dim is None else value_dim
        self.dropout = dropout
        self.output_size = _as_shape(output_shape)
        self.num_key_value_heads = num_heads if num_key_value_heads is None else num_key_value_heads
        self.positions = positions
        self.max_wavelength = max_wavelength
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.window = window
        self.num_sinks = num_sinks
        self.normalizer = normalizer
        self.query_key_norm = query_key_norm
        self.seed = seed
        check_arguments(self)
        self.supports_masking = True
        self._dropout_seed = keras.random.SeedGenerator(seed) if dropout else None

    def build(self, query_shape, value_shape=None, key_shape=None):
        value_shape = query_shape if value_shape is None else value_shape
        key_shape = value_shape if key_shape is None else key_shape
        check_shapes(self, query_shape, value_shape, key_shape)
        heads, groups = self.num_heads, self.num_key_value_heads
        output = self.output_size or (query_shape[-1],)
        self.add_projection("query", query_shape[-1:], (heads, self.key_dim))
        self.add_projection("key", key_shape[-1:], (groups, self.key_dim))
        self.add_projection("value", value_shape[-1:], (groups, self.value_dim))
        self.add_projection("output", (heads, self.value_dim), output)
        if self.query_key_norm:
            for name in ("query_gain", "key_gain"):
                gain = self.add_weight((self.key_dim,), initializer="ones", name=name)
                setattr(self, name, gain)
        if self.positions == "relative":
            self.relative_bias = self.add_weight(
                (self.num_buckets, heads),
                initializer=keras.initializers.RandomNormal(stddev=0.02),
                name="relative_bias",
            )

    def call(
        self,
        query,
        value=None,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        mask=None,
    ):
        query_mask = mask if query_mask is None else query_mask
        if value is None and value_mask is None:
            value_mask = query_mask
        value = self._value(query, value, key)
        self._check_call(query, value, key, query_mask, value_mask, key_mask, attention_mask)
        value_mask = combine_masks(value_mask, key_mask)
        reach = Reach(
            use_causal_mask,
            self.window,
            self.num_sinks,
            query_mask,
            value_mask,
            _rank_4(attention_mask),
        )
        query, key, value = self._project_inputs(
            *_without_padding(query, value, key, query_mask, value_mask)
        )
        steps, length = ops.shape(query)[2], ops.shape(key)[2]
        given = {
            "reach": reach,
            "table": self._bias_table(1 - steps, length, use_causal_mask),
            "normalizer": self.normalizer,
            "dropout": self.dropout if training else 0.0,
            "seed": self._dropout_seed,
        }
        if not return_attention_scores:
            return self._output(attention(query, key, value, **given))
        context, scores = attention_with_scores(query, key, value, **given)
        return self._output(context), scores

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
        _, value, key = _without_padding(value, value, key, None, mask)
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
                name: ops.slice_update(state[name], (0, 0, index, 0), part)
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
            attention_mask = _rank_4(ops.expand_dims(attention_mask, -2))
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

    def _output(self, context):
        return self.project_output(ops.transpose(context, (0, 2, 1, 3)))

    def _project_inputs(self, query, value, key, first=0):
        """Return queries `(B, H, T, d)`, and keys and values `(B, G, S, d)`, ready to multiply."""
        if value is query and key is None:
            query, key, value = self.project(query, "query", "key", "value")
            return self._queries(query, first), self._keys(key, first), _heads_first(value)
        query = self._project_query(query, first)
        return query, *self._project_memory(value, value if key is None else key)

    def _project_query(self, query, first=0):
        return self._queries(self.project(query, "query")[0], first)

    def _project_memory(self, value, key):
        if key is value:
            key, value = self.project(value, "key", "value")
        else:
            (key,), (value,) = self.project(key, "key"), self.project(value, "value")
        return self._keys(key, 0), _heads_first(value)

    def _queries(self, query, first):
        query = self._place(query, first, "query_gain")
        return _heads_first(query * ops.cast(self.key_dim**-0.5, query.dtype))

    def _keys(self, key, first):
        return _heads_first(self._place(key, first, "key_gain"))

    def _place(self, heads, first, gain):
        """Normalise and turn `(B, T, H, d)`, whose first place is `first`."""
        if self.query_key_norm:
            heads = _root_mean_square_norm(heads, self.cast(getattr(self, gain)))
        if self.positions == "rotary":
            places = Span(first, ops.shape(heads)[1]).places()
            heads = rotate(heads, ops.expand_dims(places, 1), self.max_wavelength)
        return heads

    def _bias_table(self, first, stop, causal):
        """Return what distances add to the scores, `(H, stop - first)`, or `None`."""
        if self.positions not in ("alibi", "relative"):
            return None
        distances = Span(first, stop - first).places()
        if self.positions == "alibi":
            slopes = ops.expand_dims(alibi_slopes(self.num_heads), 1)
            return -slopes * ops.cast(ops.abs(distances), "float32")
        buckets = relative_buckets(distances, self.num_buckets, self.max_distance, not causal)
        table = ops.take(ops.convert_to_tensor(self.relative_bias), buckets, axis=0)
        return ops.transpose(table)

    @staticmethod
    def _value(query, value, key):
        if value is None and key is not None:
            raise ValueError("A `key` needs its `value`. Received: a key, and value=None")
        return query if value is None else value

    def _check_call(self, query, value, key, query_mask, value_mask, key_mask, attention_mask):
        check_shapes(self, query.shape, value.shape, (value if key is None else key).shape)
        check_masks(self, query, value, query_mask, value_mask, key_mask, attention_mask)

    def _check_built(self):
        if not self.built:
            raise ValueError(
                "MultiHeadAttention has no weights yet. Call it once, or "
                "`build(query_shape, value_shape)`, before its memory is prepared or a step taken."
            )

    def compute_mask(self, inputs, previous_mask):
        return previous_mask

    def compute_output_spec(
        self,
        query,
        value=None,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        mask=None,
    ):
        value = self._value(query, value, key)
        self._check_call(query, value, key, query_mask, value_mask, key_mask, attention_mask)
        shape = (*query.shape[:2], *(self.output_size or query.shape[2:]))
        output = keras.KerasTensor(shape, self.compute_dtype)
        if not return_attention_scores:
            return output
        shape = (query.shape[0], self.num_heads, query.shape[1], value.shape[1])
        return output, keras.KerasTensor(shape, self.compute_dtype)

    def get_config(self):
        names = (
            "num_heads",
            "key_dim",
            "value_dim",
            "dropout",
            "num_key_value_heads",
            "positions",
            "max_wavelength",
            "num_buckets",
            "max_distance",
            "window",
            "num_sinks",
            "normalizer",
            "query_key_norm",
            "seed",
        )
        config = {name: getattr(self, name) for name in names}
        return {**super().get_config(), **config, "output_shape": self.output_size}


def _as_shape(output_shape):
    if output_shape is None:
        return None
    shape = (output_shape,) if isinstance(output_shape, int) else tuple(output_shape)
    if not shape or not all(isinstance(size, int) and size > 0 for size in shape):
        raise ValueError(
            "`output_shape` must be a positive integer or a tuple of them. "
            f"Received: output_shape={output_shape}"
        )
    return shape


def _without_padding(query, value, key, query_mask, value_mask):
    """Put zeros where a mask hides an input: whatever stands there, no product overflows."""

    def clear(tensor, mask):
        if tensor is None or mask is None:
            return tensor
        return ops.where(ops.expand_dims(mask, -1), tensor, ops.zeros_like(tensor))

    cleared = clear(value, value_mask)
    is_same = value is query and value_mask is query_mask
    key = cleared if key is value else clear(key, value_mask)
    return cleared if is_same else clear(query, query_mask), cleared, key


def _rank_4(mask):
    """Give an attention mask `(T, S)`, `(B, T, S)` or `(B, H, T, S)` four axes."""
    if mask is None or len(mask.shape) == 4:
        return mask
    return ops.expand_dims(mask, (0, 1) if len(mask.shape) == 2 else 1)


def _heads_first(heads):
    return ops.transpose(heads, (0, 2, 1, 3))


def _root_mean_square_norm(heads, gain):
    squares = ops.mean(ops.square(ops.cast(heads, "float32")), axis=-1, keepdims=True)
    return heads * ops.cast(ops.rsqrt(squares + 1e-6), heads.dtype) * gain


def _check_place(index, state):
    length = state["key"].shape[2]
    if isinstance(index, int) and isinstance(length, int) and not 0 <= index < length:
        raise ValueError(
            f"`index` must lie in the {length} places of the state. Received: index={index}"
        )
