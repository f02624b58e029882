"""Multi-head attention (Vaswani et al. 2017), with what became of it since."""

import keras
from keras import ops

from keras_attention.layers.multi_head_checks import check_arguments, check_masks, check_shapes
from keras_attention.layers.multi_head_projections import rank_4, without_padding
from keras_attention.layers.multi_head_steps import HeadSteps
from keras_attention.ops.dot_product import attention, attention_with_scores
from keras_attention.ops.masks import combine_masks
from keras_attention.ops.reach import Reach


@keras.saving.register_keras_serializable("keras_attention")
class MultiHeadAttention(HeadSteps):
    """Multi-head attention: `H` scaled dot products, each in a projection of its own.

    $$
    \\mathrm{head}_h = A\\left(\\frac{(x W^Q_h)(y W^K_h)^\\top}{\\sqrt{d}} + b_h\\right) (y W^V_h),
    \\qquad o = [\\mathrm{head}_1; \\dots; \\mathrm{head}_H] W^O
    $$

    `A` is the normaliser, `b` the bias by distance, where there is one. One input alone is
    self-attention. The weights have the order and the shapes of
    `keras.layers.MultiHeadAttention`, and the same weights give the same output; a query that sees
    nothing has zero weights here, and the output is the output's bias.

    One query at a time, with keys and values projected once:

    ```
    memory = layer.prepare_memory(value, key, mask)                  # cross-attention
    output, scores, _ = layer.step(query, memory, {}, index)         # query (B, D)

    state = layer.initial_state(batch_size, max_length)              # causal self-attention
    output, scores, state = layer.step(query, None, state, index)
    ```

    Unless the weights are asked for, no tensor of `H T S` numbers is kept where the sequences are
    long (on TensorFlow: from `T S` above 1024 x 1024). Queries and heads are then worked on in
    parts, the weights are computed again in the backward pass, and what a causal mask or a window
    hides from a whole part is not computed. On PyTorch, and on JAX with a GPU and half precision,
    the backend's fused kernel runs where it can do what is asked for.

    Args:
        num_heads: Number of query heads `H`.
        key_dim: Size `d` of each head of queries and keys.
        value_dim: Size of each head of values. Default: `key_dim`.
        dropout: Rate at which weights are dropped in training. Scores returned are those before.
        use_bias: Whether the projections have biases.
        output_shape: Size of the output, or a tuple of sizes. Default: the queries' size.
        num_key_value_heads: Number of heads of keys and values, each read by as many query heads;
            1 is multi-query attention. Default: `num_heads`.
        positions: `None`, or how places enter the scores: `"rotary"` turns queries and keys,
            `"alibi"` takes a slope times the distance off, `"relative"` adds a learned number for
            each bucket of distances. Places count from 0 in queries and in memory.
        max_wavelength: Of `"rotary"`.
        num_buckets: Of `"relative"`.
        max_distance: Of `"relative"`: the distance from which on all share a bucket.
        window: A query at place `t` sees the places within `window - 1` of `t`. Default: all.
        num_sinks: The first places, which are seen past the window too.
        normalizer: `"softmax"`, `"sparsemax"` or `"entmax15"`.
        query_key_norm: Whether each head's queries and keys are divided by their root mean square
            and multiplied by a learned gain, before they are turned.
        kernel_initializer: Initializer of the kernels, as the matrices that they are.
        bias_initializer: Initializer of the biases.
        kernel_regularizer: Regularizer of the kernels.
        bias_regularizer: Regularizer of the biases.
        kernel_constraint: Constraint of the kernels.
        bias_constraint: Constraint of the biases.
        seed: Seed of the dropout.
        **kwargs: Arguments of every Keras layer.

    Call arguments:
        query: `(B, T, Dq)`.
        value: `(B, S, Dv)`. Default: the queries.
        key: `(B, S, Dk)`. Default: the values.
        query_mask: Boolean `(B, T)`, True = attend.
        value_mask: Boolean `(B, S)`. Default in self-attention: `query_mask`.
        key_mask: Boolean `(B, S)`; a place must pass it and `value_mask`.
        attention_mask: Boolean `(T, S)`, `(B, T, S)` or `(B, H, T, S)`: which pairs may attend.
        return_attention_scores: Whether to return the weights too.
        training: Whether dropout applies.
        use_causal_mask: Whether a query sees no place after its own.
        mask: The mask of the only input in self-attention, where Keras passes it by itself;
            `query_mask` says the same, and goes before it.

    Returns:
        The output `(B, T, O)`; with `return_attention_scores`, a tuple of it and the weights
        `(B, H, T, S)`.

    Raises:
        ValueError: Where an argument is out of range or would be ignored, or where shapes or masks
            do not fit.

    Reference:
        Vaswani et al. 2017, "Attention is all you need", section 3.2. Shared keys: Ainslie et al.
        2023, section 2. Rotary positions: Su et al. 2021; ALiBi: Press et al. 2022; relative
        biases: Raffel et al. 2020, section 2.1. Sinks: Xiao et al. 2024, section 3. Sparsemax:
        Martins and Astudillo 2016; entmax: Peters et al. 2019. Normalised queries and keys:
        Dehghani et al. 2023, section 2.1, here by the root mean square.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import MultiHeadAttention

    words = np.random.normal(size=(2, 5, 16)).astype("float32")
    layer = MultiHeadAttention(num_heads=4, key_dim=4, positions="rotary")
    output, scores = layer(words, use_causal_mask=True, return_attention_scores=True)
    assert tuple(output.shape) == (2, 5, 16) and tuple(scores.shape) == (2, 4, 5, 5)

    state = layer.initial_state(batch_size=2, max_length=5)
    for index in range(5):
        step, weights, state = layer.step(words[:, index], None, state, index)
        assert np.allclose(step, output[:, index], atol=1e-5)
    ```
    """

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
            rank_4(attention_mask),
        )
        query, key, value = self._project_inputs(
            *without_padding(query, value, key, query_mask, value_mask)
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

    @staticmethod
    def _value(query, value, key):
        if value is None and key is not None:
            raise ValueError("A `key` needs its `value`. Received: a key, and value=None")
        return query if value is None else value

    def _check_call(self, query, value, key, query_mask, value_mask, key_mask, attention_mask):
        check_shapes(self, query.shape, value.shape, (value if key is None else key).shape)
        check_masks(self, query, value, query_mask, value_mask, key_mask, attention_mask)

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
