"""Linear attention (Katharopoulos et al. 2020)."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from ...ops.linear_attention import linear_attention, read_sums, sums_of
from ...ops.masks import check_mask, zero_masked
from ...ops.types import Tensor, accumulator_dtype, at_least_float32
from .. import arguments
from .base import is_self_attention, masks_of, unpack_qkv
from .projections import HeadProjections


def elu_plus_one(x: Tensor) -> Tensor:
    """Return `elu(x) + 1`: `exp(x)` of a negative number, which the sum would round to 0."""
    is_positive = x > 0
    return ops.where(is_positive, x + 1, ops.exp(ops.where(is_positive, ops.zeros_like(x), x)))


FEATURE_MAPS = {"elu": elu_plus_one, "relu": ops.relu}


@keras.saving.register_keras_serializable("keras_attention")
class LinearAttention(HeadProjections, keras.layers.Layer):
    """Linear attention: a product of features in place of the exponential of a product.

    $$
    o_t = \\frac{\\phi(q_t)^\\top \\sum_s \\phi(k_s) v_s^\\top}{\\phi(q_t)^\\top \\sum_s \\phi(k_s)}
    $$

    Here `q`, `k` and `v` are those of one head; causal sums end at `s = t`. Time and memory grow
    with the length, not with its square. The two sums are all that `step` keeps of the past: a
    state of `d' (dv + 1)` numbers a head, at any length.

    Weights have the names and shapes of those of `MultiHeadAttention`. There are no attention
    weights to return or to drop. Where the products of a query with all keys add up to 0, because
    all are masked or `"relu"` is 0, its context is zeros.

    Args:
        num_heads: Number of heads `H`.
        key_dim: Size `d` of each head of queries and keys.
        value_dim: Size `dv` of each head of values. Default: `key_dim`.
        feature_map: `"elu"` is `elu(x) + 1`, `"relu"` is `max(x, 0)`; or a function from
            `(..., d)` to `(..., d')`, such as a Keras layer without weights. Its products should
            not be negative. It gets at least float32.
        use_bias: Whether the projections have biases.
        chunk_size: Number of steps of a chunk of causal attention. It changes time and memory, not
            the result.
        kernel_initializer: Initializer of the kernels.
        bias_initializer: Initializer of the biases.
        **kwargs: The arguments of every Keras layer, and `kernel_regularizer`,
            `kernel_constraint`, `bias_regularizer` and `bias_constraint`.

    Call arguments:
        query: `(B, T, Dq)`; or a list `[query, value]` or `[query, value, key]`.
        value: `(B, S, Dv)`. Default: the queries.
        key: `(B, S, Dk)`. Default: the values.
        query_mask: Boolean `(B, T)`, True = attend.
        value_mask: Boolean `(B, S)`, True = attend. Default in self-attention: `query_mask`.
        use_causal_mask: Whether a query attends to no later position.
        mask: The masks that Keras passes implicitly; `query_mask` takes precedence.

    Returns:
        The output `(B, T, Dq)`.

    Raises:
        ValueError: If an argument is out of range, or shapes or masks do not fit.

    Reference:
        Katharopoulos et al. 2020, "Transformers are RNNs: fast autoregressive transformers with
        linear attention", equations 5, 7 and 9, and 16 to 20 for steps.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import LinearAttention

    words = np.random.normal(size=(2, 5, 16)).astype("float32")
    layer = LinearAttention(num_heads=4, key_dim=4)
    output = layer(words, use_causal_mask=True)
    assert tuple(output.shape) == (2, 5, 16)

    state = layer.initial_state(batch_size=2)
    for index in range(5):
        step, state = layer.step(words[:, index], state)
        assert np.allclose(step, output[:, index], atol=1e-5)
    ```
    """

    has_weight_options = True

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        feature_map: str | Callable = "elu",
        use_bias: bool = True,
        chunk_size: int = 64,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_heads = arguments.check_integer("num_heads", num_heads)
        self.key_dim = arguments.check_integer("key_dim", key_dim)
        size = key_dim if value_dim is None else value_dim
        self.value_dim = arguments.check_integer("value_dim", size)
        if isinstance(feature_map, dict):
            feature_map = keras.saving.deserialize_keras_object(feature_map)
        if not callable(feature_map):
            arguments.check_choice("feature_map", feature_map, FEATURE_MAPS)
        self.feature_map = feature_map
        self.use_bias = arguments.check_flag("use_bias", use_bias)
        self.chunk_size = arguments.check_integer("chunk_size", chunk_size)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.supports_masking = True

    def build(self, query_shape, value_shape=None, key_shape=None):
        query, value, key = map(tuple, unpack_qkv(query_shape, value_shape, key_shape))
        self._check_shapes(query, value, key)
        self._sizes = {"query": query[-1], "value": value[-1], "key": key[-1]}
        self._add_projection("query", query[-1:], (self.num_heads, self.key_dim))
        self._add_projection("key", key[-1:], (self.num_heads, self.key_dim))
        self._add_projection("value", value[-1:], (self.num_heads, self.value_dim))
        heads = (self.num_heads, self.value_dim)
        self._add_projection("output", heads, query[-1:], as_matrix=True)
        self.restore_quantization()

    def kernels_to_adapt(self) -> dict[str, int]:
        return {"query_kernel": 1, "key_kernel": 1, "value_kernel": 1, "output_kernel": 2}

    def call(
        self,
        query: Tensor,
        value: Tensor = None,
        key: Tensor = None,
        query_mask: Tensor = None,
        value_mask: Tensor = None,
        use_causal_mask: bool = False,
        mask: Tensor = None,
    ) -> Tensor:
        given = self._inputs(query, value, key, query_mask, value_mask, mask)
        query, value, key, query_mask, value_mask = given
        if query is value is key and query_mask is value_mask:
            inputs = zero_masked(query, query_mask)
            queries, keys, values = self._project(inputs, "query", "key", "value")
            keys = self._features(keys, value_mask)
        else:
            (queries,) = self._project(zero_masked(query, query_mask), "query")
            keys, values = self._project_memory(value, key, value_mask)
        queries = self._features(queries, query_mask)
        context = linear_attention(queries, keys, values, use_causal_mask, self.chunk_size)
        return self._project_to_output(ops.cast(context, self.compute_dtype))

    def _project_memory(self, value, key, mask):
        """Return the features of the keys, and the values, `(B, S, H, size)`."""
        cleared = zero_masked(value, mask)
        (values,) = self._project(cleared, "value")
        (keys,) = self._project(cleared if key is value else zero_masked(key, mask), "key")
        return self._features(keys, mask), values

    def _features(self, heads, mask=None):
        """Return the features of queries or keys; zeros where they are masked."""
        is_named = isinstance(self.feature_map, str)
        function = FEATURE_MAPS[self.feature_map] if is_named else self.feature_map
        features = function(at_least_float32(heads))
        if len(features.shape) != len(heads.shape):
            raise ValueError(
                "`feature_map` must keep all axes but the last: (..., d) becomes (..., d'). "
                f"Received: a function that makes {tuple(features.shape)} of {tuple(heads.shape)}"
            )
        return zero_masked(features, mask)

    # One query at a time.

    def prepare_memory(self, value: Tensor, key: Tensor = None, mask: Tensor = None) -> dict:
        """Sum up the keys and values of cross-attention once, for all steps.

        Args:
            value: Values `(B, S, Dv)`.
            key: Keys `(B, S, Dk)`. Default: the values.
            mask: Boolean `(B, S)`, True = attend.

        Returns:
            A dictionary of the `sums` `(B, H, d', dv + 1)`.
        """
        arguments.check_built(self, "query_shape, value_shape")
        value = self.cast(value)
        key = value if key is None else self.cast(key)
        arguments.check_features("value", value.shape, self._sizes["value"])
        arguments.check_features("key", key.shape, self._sizes["key"])
        check_mask(mask, tuple(value.shape[:2]), "mask")
        return {"sums": sums_of(*self._project_memory(value, key, mask))}

    def initial_state(self, batch_size: Tensor) -> dict:
        """Return the state of self-attention before the first step, `sums (B, H, d', dv + 1)`."""
        batch_size = arguments.as_integer("batch_size", batch_size)
        dtype = accumulator_dtype(self.compute_dtype)
        size = self._features(ops.zeros((1, self.key_dim), dtype)).shape[-1]
        return {"sums": ops.zeros((batch_size, self.num_heads, size, self.value_dim + 1), dtype)}

    def step(self, query: Tensor, state: dict, memory: Any = None) -> tuple:
        """Attend with one query in each row.

        Args:
            query: `(B, D)`.
            state: The result of `initial_state` or of the step before.
            memory: The result of `prepare_memory`, for cross-attention, which leaves the state as
                it is. Default: causal self-attention, which adds the query's key and value.

        Returns:
            The output `(B, Dq)`, and the state after the step.

        Raises:
            ValueError: If the arguments do not fit the layer or each other.
        """
        arguments.check_built(self, "query_shape, value_shape")
        query = self.cast(query)
        arguments.check_step("query", query.shape, self._sizes["query"])
        if memory is None:
            arguments.check_features("value", query.shape, self._sizes["value"])
        names = ("query", "key", "value") if memory is None else ("query",)
        queries, *added = self._project(ops.expand_dims(query, 1), *names)
        queries = self._features(queries)
        shape = (query.shape[0], self.num_heads, queries.shape[-1], self.value_dim + 1)
        if memory is None:
            arguments.check_parts("state", state, "`initial_state`", sums=shape)
            keys, values = added
            memory = state = {"sums": state["sums"] + sums_of(self._features(keys), values)}
        else:
            arguments.check_parts("memory", memory, "`prepare_memory`", sums=shape)
        context = read_sums(queries, memory["sums"])
        output = self._project_to_output(ops.cast(context, self.compute_dtype))
        return ops.squeeze(output, 1), state

    # Shapes and arguments.

    def compute_mask(self, inputs, previous_mask):
        return previous_mask[0] if isinstance(previous_mask, (list, tuple)) else previous_mask

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None) -> tuple:
        query, value, key = map(tuple, unpack_qkv(query_shape, value_shape, key_shape))
        self._check_shapes(query, value, key)
        return query

    @arguments.for_own_call
    def compute_output_spec(self, *args, **kwargs):
        of = arguments.call_arguments(self, args, kwargs)
        query, *_ = self._inputs(of.query, of.value, of.key, of.query_mask, of.value_mask, of.mask)
        return keras.KerasTensor(query.shape, self.compute_dtype)

    def _inputs(self, query, value, key, query_mask, value_mask, mask):
        """Return query, value and key, and the masks of query and value."""
        (query_mask, implicit), value_mask = masks_of(query_mask, value_mask, mask)
        query_mask = implicit if query_mask is None else query_mask
        if value_mask is None and is_self_attention(query, value):
            value_mask = query_mask
        query, value, key = unpack_qkv(query, value, key)
        self._check_shapes(query.shape, value.shape, key.shape)
        check_mask(query_mask, tuple(query.shape[:2]), "query_mask")
        check_mask(value_mask, tuple(value.shape[:2]), "value_mask")
        return query, value, key, query_mask, value_mask

    def _check_shapes(self, query, value, key):
        forms = (arguments.SEQUENCE, arguments.MEMORY, arguments.MEMORY)
        shapes = dict(zip(("query", "value", "key"), map(tuple, (query, value, key)), strict=True))
        pairs = zip(shapes.items(), forms, strict=True)
        arguments.check_shapes(**{name: (shape, form) for (name, shape), form in pairs})
        if self.built:
            for name, shape in shapes.items():
                arguments.check_features(name, shape, self._sizes[name])
