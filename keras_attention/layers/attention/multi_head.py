"""Multi-head attention (Vaswani et al. 2017), with options published since."""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from ... import mods
from ...ops.bound_functions import BoundFunction
from ...ops.dot_product.attention import attention, attention_with_scores
from ...ops.dot_product.mask_spec import MaskSpec, Positions, Range
from ...ops.heads import (
    cache_index,
    rms_normalize,
    swap_heads,
    write_cache,
)
from ...ops.masks import (
    check_dense,
    check_mask,
    combine_masks,
    dtype_of,
    for_batch,
    zero_masked,
)
from ...ops.normalizers import NORMALIZERS
from ...ops.positions import alibi_slopes, relative_buckets, rotate
from ...ops.shapes import AttentionAxes, can_be_one, product, size_of, sizes_from
from ...ops.types import Tensor, accumulator_dtype, at_least_float32
from .. import arguments
from .base import is_self_attention, masks_of, unpack_qkv
from .projections import HeadProjections

POSITIONS = (None, "rotary", "alibi", "relative")
# Options that belong to one kind of positions, with their defaults.
POSITION_OPTIONS = {
    "max_wavelength": ("rotary", 10000),
    "rotary_dim": ("rotary", None),
    "rotary_scaling": ("rotary", 1.0),
    "num_buckets": ("relative", 32),
    "max_distance": ("relative", 128),
}


@keras.saving.register_keras_serializable("keras_attention")
class MultiHeadAttention(HeadProjections, keras.layers.Layer):
    """Multi-head attention: `H` scaled dot products, each in a projection of its own.

    $$
    \\mathrm{head}_h = A\\left(\\frac{(x W^Q_h)(y W^K_h)^\\top}{\\sqrt{d}} + b_h\\right) (y W^V_h),
    \\qquad o = [\\mathrm{head}_1; \\dots; \\mathrm{head}_H] W^O
    $$

    `A` is the normalizer, and `b` an optional bias by distance. Weights and output are those of
    `keras.layers.MultiHeadAttention`, but here a query that may attend to no key has zero weights.
    `step` takes one query at a time. Long sequences (`T S` above 1024 x 1024) keep no tensor of
    `H T S` numbers, unless the weights are returned.

    Args:
        num_heads: Number of query heads `H`.
        key_dim: Size `d` of each head of queries and keys.
        value_dim: Size of each head of values. Default: `key_dim`.
        dropout: Rate at which weights are dropped in training. Returned scores are those before
            dropout.
        use_bias: Whether the projections have biases.
        output_shape: Size of the output, or a tuple of sizes. Default: the size of the queries.
        num_key_value_heads: Number `G` of heads of keys and values, each read by `H / G` query
            heads; 1 is multi-query attention. Default: `num_heads`.
        positions: How positions, counted from 0, enter the scores: `"rotary"` rotates queries and
            keys, `"alibi"` subtracts a slope times the distance, `"relative"` adds a learned number
            for each bucket of distances. Default: `None`, not at all.
        max_wavelength: Longest wavelength of rotary positions.
        num_buckets: Number of buckets of relative positions.
        max_distance: Distance from which on all share the last bucket of relative positions.
        window: A query at position `t` attends to the positions within `window - 1` of `t`.
            Default: all.
        num_sinks: Number of first positions that all queries attend to, beside the window.
        normalizer: `"softmax"`, `"softmax1"` (1 is added to its denominator), `"sparsemax"` or
            `"entmax15"`.
        query_key_norm: Whether each head's queries and keys are divided by their root mean square
            and multiplied by a learned gain, before rotation.
        kernel_initializer: Initializer of the kernels. Glorot's rule starts kernels of three axes
            as small as those of a convolution; a post-norm Transformer needs that.
        bias_initializer: Initializer of the biases.
        kernel_regularizer: Regularizer of the kernels.
        bias_regularizer: Regularizer of the biases.
        kernel_constraint: Constraint of the kernels.
        bias_constraint: Constraint of the biases.
        seed: Seed of the dropout.
        attention_axes: The axes that attend, for inputs with several axes between batch and
            features; the others are treated like the batch. Default: all of them.
        sliding_window: Another name of `window`.
        use_gate: Whether `sigmoid(x W^G)` multiplies the results of the heads.
        rotary_dim: Number of features of each head that rotary positions rotate. Default: all.
        rotary_scaling: Divisor of rotary positions.
        score_mod: Function of `(score, batch, head, query, key)` that returns another score: see
            `keras_attention.mods`. It may be a Keras layer, whose weights are trained.
        mask_mod: Function of `(batch, head, query, key)`, True = attend.
        sink_logits: Whether a learned logit of each head, the weight `sink_logits (H,)`, joins the
            denominator of the softmax: a sink that takes a part of the weight and is not read.
        use_forget_gate: Whether `sum_(s<l<=t) log f_lh` is added to each score, with the gates
            `f_l = sigmoid(x_l W^F)` of the heads: what lies behind a closed gate is forgotten. It
            needs causal self-attention.
        **kwargs: Arguments of every Keras layer.

    Call arguments:
        query: `(B, T, Dq)`; or a list `[query, value]` or `[query, value, key]`. With more axes
            `T` stands for `attention_axes`, and `B` for all others.
        value: `(B, S, Dv)`. Default: the queries.
        key: `(B, S, Dk)`. Default: the values.
        query_mask: Boolean `(B, T)`, True = attend.
        value_mask: Boolean `(B, S)`, True = attend. Default in self-attention: `query_mask`.
        key_mask: Boolean `(B, S)`; a position must pass both `value_mask` and `key_mask`.
        attention_mask: Boolean `(T, S)`, `(B, T, S)` or `(B, H, T, S)`: the pairs that may attend.
        return_attention_scores: Whether to return the weights.
        training: Whether dropout applies.
        use_causal_mask: Whether a query attends to no later position.
        mask: The masks that Keras passes implicitly; `query_mask` takes precedence.
        query_positions: Integers `(B, T)`, the rotary positions of the queries. Default: from 0.
        key_positions: Integers `(B, S)`, the rotary positions of the keys. Default: from 0; in
            self-attention `query_positions`.
        score_mod: Replaces that of the layer. Gradients reach the Keras variables that it reads,
            and the tensors of a `functools.partial`; all else is constant.
        mask_mod: Applies beside that of the layer.

    Returns:
        The output `(B, T, O)`; with `return_attention_scores` also the weights `(B, H, T, S)`.

    Raises:
        ValueError: If an argument is out of range or would be ignored, or shapes or masks do not
            fit.

    Reference:
        Vaswani et al. 2017, "Attention is all you need", section 3.2. Shared keys: Ainslie et al.
        2023, section 2. Rotary positions: Su et al. 2021; ALiBi: Press et al. 2022; relative
        biases: Raffel et al. 2020, section 2.1. Sinks: Xiao et al. 2024, section 3; as logits
        OpenAI 2025, "gpt-oss-120b & gpt-oss-20b model card", section 2.2. Softmax off by one:
        Miller 2023, "Attention is off by one". Sparsemax: Martins and Astudillo 2016; entmax:
        Peters et al. 2019. Normalized queries and keys: Dehghani et al. 2023, section 2.1, here by
        the root mean square. Gate: Qiu et al. 2025, section 2.2. Scaled positions: Chen et al.
        2023, section 2.3. Forget gate: Lin et al. 2025, "Forgetting transformer", equation 3.

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

    attribute_of = {"output_shape": "output_size", "sink_logits": "use_sink_logits"}

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: int | tuple[int, ...] | None = None,
        num_key_value_heads: int | None = None,
        positions: str | None = None,
        max_wavelength: float = 10000,
        num_buckets: int = 32,
        max_distance: int = 128,
        window: int | None = None,
        num_sinks: int = 0,
        normalizer: str = "softmax",
        query_key_norm: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        seed: int | None = None,
        attention_axes: int | tuple[int, ...] | None = None,
        sliding_window: int | None = None,
        use_gate: bool = False,
        rotary_dim: int | None = None,
        rotary_scaling: float = 1.0,
        score_mod: Any = None,
        mask_mod: Any = None,
        sink_logits: bool = False,
        use_forget_gate: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._set_heads(num_heads, key_dim, value_dim, num_key_value_heads)
        rotary = (max_wavelength, rotary_dim, rotary_scaling)
        self._set_positions(positions, *rotary, num_buckets, max_distance)
        self._set_window(window, sliding_window, num_sinks)
        self.dropout = arguments.check_rate("dropout", dropout)
        self.use_bias = arguments.check_flag("use_bias", use_bias)
        self.output_size = _integers("output_shape", output_shape, 1)
        self.normalizer = arguments.check_choice("normalizer", normalizer, NORMALIZERS)
        self.query_key_norm = arguments.check_flag("query_key_norm", query_key_norm)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.seed = arguments.check_seed(seed)
        self.attention_axes = _integers("attention_axes", attention_axes, -math.inf)
        self.use_gate = arguments.check_flag("use_gate", use_gate)
        self.score_mod = _as_function("score_mod", score_mod)
        self.mask_mod = _as_function("mask_mod", mask_mod)
        self.use_sink_logits = arguments.check_flag("sink_logits", sink_logits)
        if sink_logits and normalizer != "softmax":
            raise ValueError(
                "`sink_logits` belongs to the denominator of normalizer='softmax'. "
                f"Received: sink_logits=True, normalizer={normalizer!r}"
            )
        self.use_forget_gate = arguments.check_flag("use_forget_gate", use_forget_gate)
        self.supports_masking = True
        self._dropout_seed = keras.random.SeedGenerator(seed) if dropout else None

    def _set_heads(self, num_heads, key_dim, value_dim, num_key_value_heads):
        self.num_heads = arguments.check_integer("num_heads", num_heads)
        self.key_dim = arguments.check_integer("key_dim", key_dim)
        size = key_dim if value_dim is None else value_dim
        self.value_dim = arguments.check_integer("value_dim", size)
        groups = num_heads if num_key_value_heads is None else num_key_value_heads
        self.num_key_value_heads = arguments.check_integer("num_key_value_heads", groups)
        if num_heads % groups:
            raise ValueError(
                "`num_heads` must be a multiple of `num_key_value_heads`, so that each key head "
                f"serves as many query heads. Received: num_heads={num_heads}, "
                f"num_key_value_heads={groups}"
            )

    def _set_positions(
        self, positions, max_wavelength, rotary_dim, rotary_scaling, num_buckets, max_distance
    ):
        self.positions = arguments.check_choice("positions", positions, POSITIONS)
        self.max_wavelength = arguments.check_number("max_wavelength", max_wavelength, above=True)
        self.rotary_dim = rotary_dim
        self.rotary_scaling = arguments.check_number("rotary_scaling", rotary_scaling, above=True)
        self.num_buckets = arguments.check_integer("num_buckets", num_buckets)
        self.max_distance = arguments.check_integer("max_distance", max_distance)
        for name, (kind, default) in POSITION_OPTIONS.items():
            if getattr(self, name) != default and positions != kind:
                raise ValueError(
                    f"`{name}` belongs to positions={kind!r} and would be ignored. "
                    f"Received: {name}={getattr(self, name)}, positions={positions!r}"
                )
        if positions == "rotary":
            size = self.key_dim if rotary_dim is None else rotary_dim
            if arguments.check_integer("rotary_dim", size) % 2 or size > self.key_dim:
                raise ValueError(
                    "Rotary positions rotate pairs of features: `rotary_dim` (default: `key_dim`) "
                    "must be even and at most `key_dim`. Received: "
                    f"key_dim={self.key_dim}, rotary_dim={rotary_dim}"
                )

    def _set_window(self, window, sliding_window, num_sinks):
        self.window = sliding_window if window is None else window
        self.sliding_window = sliding_window
        self.num_sinks = arguments.check_integer("num_sinks", num_sinks, minimum=0)
        if sliding_window not in (None, self.window):
            raise ValueError(
                "`sliding_window` is another name of `window`: pass only one of them. "
                f"Received: window={window}, sliding_window={sliding_window}"
            )
        if self.window is not None:
            name = "window" if sliding_window is None else "sliding_window"
            arguments.check_integer(name, self.window)
        elif num_sinks:
            raise ValueError(
                "`num_sinks` adds the first positions to a `window`; without one it has no effect. "
                f"Received: num_sinks={num_sinks}, window=None"
            )

    def build(self, query_shape, value_shape=None, key_shape=None):
        query, value, key = map(tuple, unpack_qkv(query_shape, value_shape, key_shape))
        self.axes = axes_of(query, self.attention_axes)
        self._check_shapes(query, value, key)
        heads, groups = self.num_heads, self.num_key_value_heads
        self._features = {"query": query[-1], "value": value[-1], "key": key[-1]}
        self._add_projection("query", query[-1:], (heads, self.key_dim))
        self._add_projection("key", key[-1:], (groups, self.key_dim))
        if self.use_gate:
            self._add_projection("gate", query[-1:], (heads, self.value_dim))
        self._add_projection("value", value[-1:], (groups, self.value_dim))
        output_size = self.output_size or (query[-1],)
        self._add_projection("output", (heads, self.value_dim), output_size, as_matrix=True)
        if self.use_forget_gate:
            initializer = arguments.fresh(self.kernel_initializer)
            self._make_weight("forget_kernel", (query[-1], heads), initializer, "kernel")
            if self.use_bias:
                bias = arguments.fresh(self.bias_initializer)
                self._make_weight("forget_bias", (heads,), bias, "bias")
        if self.query_key_norm:
            for name in ("query_gain", "key_gain"):
                self._make_weight(name, (self.key_dim,), "ones")
        if self.positions == "relative":
            small = keras.initializers.RandomNormal(stddev=0.02)
            self._make_weight("relative_bias", (self.num_buckets, heads), small)
        if self.use_sink_logits:
            self._make_weight("sink_logits", (heads,), "zeros")
        if isinstance(self.score_mod, keras.layers.Layer):
            index = ops.zeros((1, 1, 1, 1), "int32")
            self.score_mod(ops.zeros((1, heads, 1, 1)), index, index, index, index)
        self.restore_quantization()

    def kernels_to_adapt(self) -> dict[str, int]:
        names = ["query", "key", "value"]
        names += ["gate"] * self.use_gate + ["forget"] * self.use_forget_gate
        return {**{f"{name}_kernel": 1 for name in names}, "output_kernel": 2}

    def call(
        self,
        query: Tensor,
        value: Tensor = None,
        key: Tensor = None,
        query_mask: Tensor = None,
        value_mask: Tensor = None,
        key_mask: Tensor = None,
        attention_mask: Tensor = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
        mask: Tensor = None,
        query_positions: Tensor = None,
        key_positions: Tensor = None,
        score_mod: Callable | None = None,
        mask_mod: Callable | None = None,
    ) -> Tensor:
        query, value, key, query_mask, value_mask = self._inputs(
            query, value, key, query_mask, value_mask, key_mask, attention_mask, mask
        )
        if key_positions is None and value is query:
            key_positions = query_positions
        query_positions = self._fold_positions(query, query_positions)
        key_positions = self._fold_positions(value, key_positions)
        value_mask = value_mask if key_mask is None else combine_masks(value_mask, key_mask)
        inputs = self._fold_inputs(query, value, key, query_mask, value_mask)
        if inputs[0] is inputs[1] is inputs[2]:
            *own, keys, values = self._project(inputs[0], *self._query_names, "key", "value")
        else:
            own = self._project(inputs[0], *self._query_names)
            keys, values = self._project_memory(inputs[1], inputs[2])
        queries, gate = self._prepare_queries(own, query_positions)
        keys, values = self._prepare_keys(keys, key_positions), swap_heads(values)

        steps, length = size_of(queries, 2), size_of(keys, 2)
        mask_mods = [mod for mod in (self.mask_mod, mask_mod) if mod is not None]
        spec = MaskSpec(
            use_causal_mask,
            self.window,
            self.num_sinks,
            self.axes.fold(query_mask),
            self.axes.fold(value_mask),
            _rank_4(self.axes.fold_pairs(attention_mask, query, value)),
            BoundFunction.of(mods.all_of(*mask_mods) if mask_mods else None),
        )
        size = steps + length - 1
        size = max(size, 0) if isinstance(size, int) else size  # -1 without steps and keys
        distances = Range(1 - steps, size)
        bias = self._bias_by_distance(distances, 0, use_causal_mask)
        if self.use_forget_gate:
            self._check_can_forget(inputs, use_causal_mask)
            logs = zero_masked(self._log_forget(inputs[0]), spec.query_mask)
            sums = ops.transpose(ops.cumsum(logs, axis=1), (0, 2, 1))
            score_mod = functools.partial(_forgetting, sums, score_mod or self.score_mod)
        bound = self._bound_score_mod(score_mod)
        dropout = self.dropout if training else 0.0
        normalizer, sink = self._normalizer_and_sink()
        options = (spec, bias, normalizer, dropout, self._dropout_seed, bound, sink)
        if not return_attention_scores:
            context = attention(queries, keys, values, *options)
            return self.axes.unfold(self._project_output(context, gate), query)
        context, scores = attention_with_scores(queries, keys, values, *options)
        output = self.axes.unfold(self._project_output(context, gate), query)
        return output, self.axes.unfold_pairs(scores, query, value)

    def _fold_inputs(self, query, value, key, query_mask, value_mask):
        """Fold the inputs and zero their padding; inputs that are one tensor stay one."""

        def ready(tensor, mask):
            return zero_masked(self.axes.fold(tensor), self.axes.fold(mask))

        memory = ready(value, value_mask)
        is_one = query is value and query_mask is value_mask
        return (
            memory if is_one else ready(query, query_mask),
            memory,
            memory if key is value else ready(key, value_mask),
        )

    # Projections.

    @property
    def _query_names(self):
        """The names of the projections of the queries."""
        return ("query", "gate") if self.use_gate else ("query",)

    def _project_memory(self, value, key):
        """Return the projected keys and values, `(B, S, G, size)`."""
        if key is value:
            return self._project(value, "key", "value")
        return *self._project(key, "key"), *self._project(value, "value")

    def _prepare_queries(self, projected, positions=None):
        """Return scaled queries `(B, H, T, d)`, and the gate or `None`."""
        query, *gate = projected
        query = self._normalize_and_rotate(query, "query_gain", positions)
        query = swap_heads(query * self.key_dim**-0.5)
        return query, ops.sigmoid(gate[0]) if gate else None

    def _prepare_keys(self, key, positions=None):
        """Return keys `(B, G, S, d)`."""
        return swap_heads(self._normalize_and_rotate(key, "key_gain", positions))

    def _normalize_and_rotate(self, heads, gain, positions):
        """Normalize and rotate `(B, T, H, d)`, as far as the options say so."""
        if self.query_key_norm:
            heads = rms_normalize(heads, self.cast(getattr(self, gain)))
        if self.positions != "rotary":
            return heads
        if positions is None:
            positions = Range.of_axis(heads, 1).positions()
        options = (self.max_wavelength, self.rotary_dim, self.rotary_scaling)
        return rotate(heads, ops.expand_dims(positions, -1), *options)

    def _bias_by_distance(self, keys, query, causal):
        """Return the biases `(H, size)` by the distances of keys from a query, or `None`."""
        if self.positions not in ("alibi", "relative"):
            return None
        distances = keys.positions() - query
        if self.positions == "alibi":
            dtype = accumulator_dtype(self.compute_dtype)
            slopes = ops.expand_dims(alibi_slopes(self.num_heads, dtype), 1)
            return -slopes * ops.cast(ops.abs(distances), dtype)
        buckets = relative_buckets(distances, self.num_buckets, self.max_distance, not causal)
        return ops.transpose(ops.take(ops.convert_to_tensor(self.relative_bias), buckets, axis=0))

    def _normalizer_and_sink(self):
        """Return the normalizer, and the logits of its sinks or `None`."""
        if not self.use_sink_logits:
            return self.normalizer, None
        return "softmax1", ops.convert_to_tensor(self.sink_logits)

    def _log_forget(self, inputs):
        """Return the logarithms `(B, T, H)` of the forget gates, in at least float32."""
        logits = product(inputs, self.effective_weight(self.forget_kernel))
        logits = logits + self.cast(self.forget_bias) if self.use_bias else logits
        return ops.log_sigmoid(at_least_float32(logits))

    def _check_can_forget(self, inputs, causal):
        if not (causal and inputs[0] is inputs[1] is inputs[2]):
            raise ValueError(
                "`use_forget_gate` needs self-attention with use_causal_mask=True. Received: "
                f"use_causal_mask={causal}, and "
                + ("one input" if inputs[0] is inputs[2] else "other keys or values")
            )

    def _bound_score_mod(self, score_mod=None):
        score = ops.zeros((1, 1, 1, 1), "float32")
        return BoundFunction.of(score_mod or self.score_mod, score)

    def _project_output(self, context, gate):
        """Return the output `(B, T, ...)` of contexts `(B, H, T, dv)`."""
        context = swap_heads(context)
        context = context if gate is None else context * gate
        return self._project_to_output(context)

    # One query at a time.

    def prepare_memory(self, value: Tensor, key: Tensor = None, mask: Tensor = None) -> dict:
        """Project the keys and values of cross-attention once, for all steps.

        Args:
            value: Values `(B, S, Dv)`.
            key: Keys `(B, S, Dk)`. Default: the values.
            mask: Boolean `(B, S)`, True = attend.

        Returns:
            A dictionary: `key` `(B, G, S, key_dim)` and `value` `(B, G, S, value_dim)` of `G`
            heads, and the `mask` `(B, S)`, if there is one.
        """
        self._check_can_step()
        if self.use_forget_gate:
            raise ValueError(
                "`use_forget_gate` belongs to self-attention, whose steps take no memory. "
                "Received: a memory to prepare"
            )
        check_dense([value, key], "value and key")
        value = self.cast(value)
        key = value if key is None else self.cast(key)
        arguments.check_features("value", value.shape, self._features["value"])
        arguments.check_features("key", key.shape, self._features["key"])
        check_mask(mask, tuple(value.shape[:2]), "value_mask")
        cleared = zero_masked(value, mask)
        key = cleared if key is value else zero_masked(key, mask)
        keys, values = self._project_memory(cleared, key)
        memory = {"key": self._prepare_keys(keys), "value": swap_heads(values)}
        if mask is not None:
            memory["mask"] = for_batch(ops.cast(mask, "bool"), value)
        return memory

    def initial_state(self, batch_size: Tensor, max_length: int | None = None) -> dict:
        """Return the empty cache of self-attention, `key` and `value` `(B, G, max_length, ...)`.

        Args:
            batch_size: Number of rows.
            max_length: Number of positions. Default: with a window `window + num_sinks`. A cache of
                that size rolls, for any number of steps: the position that leaves the window makes
                room for the new one.

        Raises:
            ValueError: If a number is out of range, or there is neither a `max_length` nor a
                window.
        """
        if max_length is None:
            if self.window is None:
                raise ValueError(
                    "`max_length`, the number of positions of the cache, is needed where no "
                    "`window` limits them. Received: max_length=None, window=None"
                )
            max_length = self.window + self.num_sinks
        batch_size = arguments.as_integer("batch_size", batch_size)
        max_length = arguments.as_integer("max_length", max_length)
        forgotten = {}
        if self.use_forget_gate:  # the sum of `log f` since each position
            sums = (batch_size, self.num_heads, max_length)
            forgotten["forget"] = ops.zeros(sums, accumulator_dtype(self.compute_dtype))
        shape = (batch_size, self.num_key_value_heads, max_length)
        return {
            "key": ops.zeros((*shape, self.key_dim), self.compute_dtype),
            "value": ops.zeros((*shape, self.value_dim), self.compute_dtype),
            **forgotten,
        }

    def step(
        self,
        query: Tensor,
        memory: Any,
        state: dict,
        index: Tensor,
        attention_mask: Tensor = None,
        return_attention_scores: bool = True,
        copies: int = 1,
    ) -> tuple:
        """Attend with one query in each row.

        With a memory this is cross-attention, and the state stays as it is. Without one (`None`) it
        is causal self-attention, which writes the query's key and value to the cache at `index`.

        Args:
            query: `(B, D)`.
            memory: The result of `prepare_memory`, or `None`.
            state: The result of `initial_state` or of the step before.
            index: Position of the query, from 0: an integer or a scalar tensor, the same for all
                rows. A tensor outside of the cache gives NaN, which it also writes to the nearest
                step of the same row.
            attention_mask: Boolean `(B, S)` or `(B, H, S)`: the positions that may be attended to.
            return_attention_scores: Whether to return the weights, otherwise `None`.
            copies: Number of neighbouring queries that share a row of memory or state. A cache then
                has as many positions for each step, and `attention_mask` must say which of them
                belong to a query (`decoding.mask_of_origins`).

        Returns:
            The output `(B, O)`, the weights `(B, H, S)` (`S` is `max_length` in self-attention),
            and the state after the step. In a cache that rolls, position `t` from
            `num_sinks` on stands at `num_sinks + (t - num_sinks) % window`.

        Raises:
            ValueError: If a known `index` lies outside of the cache, or arguments do not fit.
        """
        self._check_can_step()
        query = self.cast(query)
        arguments.check_step("query", query.shape, self._features["query"])
        is_self_attention = memory is None
        self._check_cache(memory, state, query.shape[0], copies)
        query = ops.reshape(query, (-1, copies, query.shape[-1]))
        self._check_copies(copies, memory, attention_mask)
        index = arguments.as_index(index)
        position = Range(index, 1).positions()
        # One product each: for a single step, concatenating the kernels takes as long as it saves.
        own = [self._project(query, name)[0] for name in self._query_names]
        if is_self_attention:
            arguments.check_features("value", query.shape, self._features["value"])
            key, value = (self._project(query, name)[0] for name in ("key", "value"))
            length = size_of(state["key"], 2) // copies
            rolls = self._rolls(length)
            slot, value = cache_index(
                _choose(rolls, lambda: self._slot(index), index), length, swap_heads(value)
            )
            index = _choose(rolls, lambda: index, slot)
            entries = {"key": self._prepare_keys(key, position), "value": value}
            memory = write_cache(state, slot, entries, copies)
            if self.use_forget_gate:
                memory["forget"] = self._forget(state["forget"], query, slot)
            state = memory
        query, gate = self._prepare_queries(own, position)
        key, value = memory["key"], memory["value"]
        keys = Range.of_axis(key, 2)
        if is_self_attention and rolls is not False:
            slots = Range(0, length).positions()
            positions = _choose(rolls, lambda: self._positions_of_slots(slots, index), slots)
            keys = Positions(positions, length)
        attention_mask = self._step_mask(attention_mask, key, copies)
        causal = is_self_attention and copies == 1
        mask_mod = BoundFunction.of(self.mask_mod)
        masks = (None, memory.get("mask"), attention_mask, mask_mod)
        spec = MaskSpec(causal, self.window, self.num_sinks, *masks)
        normalizer, sink = self._normalizer_and_sink()
        context, scores = attention_with_scores(
            query,
            key,
            value,
            spec,
            self._bias_by_distance(keys, index, causal),
            normalizer,
            score_mod=self._score_mod_of_step(memory.get("forget")),
            sink=sink,
            # The `attention_mask` of copies hides all that must be hidden.
            rows=Range(index, 1) if copies == 1 else Range(0, copies),
            keys=keys,
        )
        output = self._project_output(context, gate)
        if copies == 1:
            output, scores = ops.squeeze(output, 1), ops.squeeze(scores, 2)
        else:
            output = ops.reshape(output, (-1, *output.shape[2:]))
            scores = ops.reshape(swap_heads(scores), (-1, self.num_heads, size_of(key, 2)))
        return output, scores if return_attention_scores else None, state

    def _check_cache(self, memory, state, rows, copies):
        """Raise a ValueError unless the memory, or else the state, has keys and values to read."""
        rows = None if rows is None else rows // copies
        groups = (rows, self.num_key_value_heads, None)
        expected = {"key": (*groups, self.key_dim), "value": (*groups, self.value_dim)}
        if memory is not None:
            return arguments.check_parts("memory", memory, "`prepare_memory`", **expected)
        if self.use_forget_gate:
            expected["forget"] = (rows, self.num_heads, None)
        return arguments.check_parts("state", state, "`initial_state`", **expected)

    def _forget(self, sums, query, slot):
        """Return the sums `(B, H, L)` of `log f` since each position, after a query."""
        sums = sums + ops.cast(ops.transpose(self._log_forget(query), (0, 2, 1)), sums.dtype)
        is_new = ops.arange(size_of(sums, 2), dtype="int32") == slot
        return ops.where(is_new, ops.zeros_like(sums), sums)

    def _score_mod_of_step(self, sums):
        if sums is None:
            return self._bound_score_mod()
        mod = self.score_mod or (lambda score, *_: score)
        sums = ops.expand_dims(sums, 2)
        return BoundFunction(lambda score, *at: mod(score + ops.cast(sums, score.dtype), *at), ())

    def _rolls(self, length):
        """Return whether a cache has the size of one that rolls; a tensor where a graph tells."""
        return self.window is not None and length == self.window + self.num_sinks

    def _slot(self, index):
        """Return where a cache that rolls holds position `index`."""
        rolled = self.num_sinks + (index - self.num_sinks) % self.window
        if isinstance(index, int):
            return rolled if index >= self.num_sinks else index
        return ops.where(index >= self.num_sinks, rolled, index)

    def _positions_of_slots(self, slot, index):
        """Return the position that each slot of the cache holds; an empty slot is hidden."""
        last = index - (index - slot) % self.window
        last = ops.where(last >= self.num_sinks, last, index + 1)  # the causal mask hides it
        return ops.where(slot < self.num_sinks, slot, last)

    def _step_mask(self, mask, key, copies):
        """Check the mask of a step, and give it four axes."""
        if mask is None:
            return None
        rows = None if key.shape[0] is None else key.shape[0] * copies
        heads = (self.num_heads,) if len(mask.shape) == 3 else ()
        check_mask(mask, (rows, *heads, key.shape[2]), "attention_mask")
        if copies == 1:
            return _rank_4(ops.expand_dims(mask, -2))
        parts = ops.reshape(mask, (-1, copies, *sizes_from(mask, 1)))
        return swap_heads(parts) if len(parts.shape) == 4 else _rank_4(parts)

    def _check_copies(self, copies, memory, attention_mask):
        if copies == 1:
            return
        depends_on_positions = (
            self.window is not None
            or self.positions in ("alibi", "relative")
            or self.score_mod is not None
            or self.mask_mod is not None
            or self.use_forget_gate
        )
        if depends_on_positions or (memory is None and attention_mask is None):
            raise ValueError(
                "Queries that share a row (`copies` above 1) need an `attention_mask` in "
                "self-attention, and scores and masks that depend on no distance: no window, no "
                f"'alibi' or 'relative' positions, no `score_mod` or `mask_mod`. Received: copies="
                f"{copies}, attention_mask={'None' if attention_mask is None else 'a mask'}"
            )

    def _check_can_step(self):
        if not self.built or not self.axes.is_plain:
            raise ValueError(
                "Call MultiHeadAttention once, or `build(query_shape, value_shape)`, on inputs "
                "(batch, steps, features) before its memory is prepared or a step taken. Received: "
                + ("several axes of steps" if self.built else "a layer without weights")
            )

    def compute_mask(self, inputs, previous_mask):
        return previous_mask[0] if isinstance(previous_mask, (list, tuple)) else previous_mask

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None) -> tuple:
        shapes = tuple(map(tuple, unpack_qkv(query_shape, value_shape, key_shape)))
        self._check_shapes(*shapes)
        query = shapes[0]
        return (*query[:-1], *(self.output_size or query[-1:]))

    @arguments.for_own_call
    def compute_output_spec(self, *args, **kwargs):
        given = arguments.call_arguments(self, args, kwargs)
        masks = (
            given.query_mask,
            given.value_mask,
            given.key_mask,
            given.attention_mask,
            given.mask,
        )
        query, value, key, *_ = self._inputs(given.query, given.value, given.key, *masks)
        shapes = [self.compute_output_shape(query.shape, value.shape, key.shape)]
        if given.return_attention_scores:
            axes = axes_of(query.shape, self.attention_axes)
            shapes.append(axes.pairs_shape(query.shape, value.shape, self.num_heads))
        return arguments.specs(shapes, self.compute_dtype)

    # Arguments of a call.

    def _inputs(
        self, query, value, key, query_mask, value_mask, key_mask, attention_mask, mask
    ) -> tuple:
        """Return query, value and key, and the masks of query and value."""
        if value is None and key is not None and not isinstance(query, (list, tuple)):
            raise ValueError("A `key` needs its `value`. Received: a key, and value=None")
        (query_mask, implicit), value_mask = masks_of(query_mask, value_mask, mask)
        query_mask = implicit if query_mask is None else query_mask
        if value_mask is None and is_self_attention(query, value):
            value_mask = query_mask
        query, value, key = unpack_qkv(query, value, key)
        self._check_shapes(query.shape, value.shape, key.shape)
        check_mask(query_mask, tuple(query.shape[:-1]), "query_mask")
        check_mask(value_mask, tuple(value.shape[:-1]), "value_mask")
        check_mask(key_mask, tuple(value.shape[:-1]), "key_mask")
        if attention_mask is not None:
            self._check_attention_mask(attention_mask, query.shape, value.shape)
        return query, value, key, query_mask, value_mask

    def _check_shapes(self, query, value, key):
        """Raise a ValueError where the inputs fit neither each other nor the layer."""
        shapes = f"Received: query {tuple(query)}, value {tuple(value)}, key {tuple(key)}"
        axes = axes_of(query, self.attention_axes)
        if not len(query) == len(value) == len(key):
            raise ValueError(f"Query, value and key must have as many axes. {shapes}")
        if not can_be_one(value[1:-1], key[1:-1]):
            raise ValueError(f"A memory needs as many keys as values. {shapes}")
        batches = [axes.sizes(shape)[0] for shape in (query, value, key)]
        if not all(can_be_one(*pair) for pair in itertools.combinations(batches, 2)):
            raise ValueError(f"Query, value and key must have the same batch size. {shapes}")
        if None in (query[-1], value[-1], key[-1]):
            raise ValueError(f"The last axis of query, value and key must be known. {shapes}")
        if self.built:
            if axes != self.axes:
                raise ValueError(f"The layer was built for {self.axes.rank} axes. {shapes}")
            for name, shape in (("query", query), ("value", value), ("key", key)):
                arguments.check_features(name, shape, self._features[name])

    def _check_attention_mask(self, mask, query, value):
        axes = axes_of(query, self.attention_axes)
        full = axes.pairs_shape(query, value, self.num_heads)
        pairs, shape = 2 * len(axes.attended), tuple(getattr(mask, "shape", ()))
        batch = full[: -pairs - 1]
        open_ones = tuple(None if size == 1 else size for size in shape)  # one entry serves all
        leading = ((), full[:1], batch, (*batch, self.num_heads))
        fits = any(can_be_one(open_ones, (*first, *full[-pairs:])) for first in leading)
        dtype = dtype_of(mask)
        if not fits or not ("bool" in dtype or "int" in dtype):
            raise ValueError(
                "`attention_mask` must be boolean (True = attend) of shape (T, S), (B, T, S) or "
                f"(B, H, T, S), here {full}. Received: attention_mask of shape {shape} and dtype "
                f"{dtype}"
            )

    def _fold_positions(self, inputs, positions):
        """Check and fold the rotary positions of inputs, if a call gives them."""
        if positions is None:
            return None
        shape = tuple(positions.shape)
        if self.positions != "rotary" or not can_be_one(shape, tuple(inputs.shape[:-1])):
            raise ValueError(
                "`query_positions` and `key_positions` belong to positions='rotary', and have one "
                f"position for each input, here {tuple(inputs.shape[:-1])}. Received: positions of "
                f"shape {shape}, for a layer with positions={self.positions!r}"
            )
        return self.axes.fold(ops.cast(positions, "int32"))


def _integers(name, given, minimum):
    """Return one or several integers of at least `minimum` as a tuple, or `None`."""
    if given is None:
        return None
    listed = given if isinstance(given, (list, tuple)) and given else [given]
    return tuple(arguments.check_integer(name, one, minimum) for one in listed)


def _choose(condition, first, second):
    """Return `first()` or `second`, integers or tensors; both are computed where a graph tells."""
    if isinstance(condition, bool):
        return first() if condition else second
    return ops.where(condition, first(), second)


def _as_function(name, function):
    if isinstance(function, dict):
        function = keras.saving.deserialize_keras_object(function)
    if function is not None and not callable(function):
        raise ValueError(f"`{name}` must be a function of positions. Received: {name}={function!r}")
    return function


def _forgetting(sums, score_mod, score, batch, head, query, key):
    """Add the logarithms of the gates between key and query, from sums `(B, H, T)` up to each."""
    between = mods.look_up(sums, batch, head, query) - mods.look_up(sums, batch, head, key)
    score = score + ops.cast(between, score.dtype)
    return score if score_mod is None else score_mod(score, batch, head, query, key)


def _rank_4(mask):
    """Give an attention mask `(T, S)`, `(B, T, S)` or `(B, H, T, S)` four axes."""
    if mask is None or len(mask.shape) == 4:
        return mask
    return ops.expand_dims(mask, (0, 1) if len(mask.shape) == 2 else 1)


def axes_of(shape, attention_axes) -> AttentionAxes:
    """Return the axes that attend in inputs of a shape."""
    rank = len(shape)
    given = range(1, rank - 1) if attention_axes is None else attention_axes
    attended = tuple(sorted(axis + rank if axis < 0 else axis for axis in given))
    if rank < 3 or not attended or not all(0 < axis < rank - 1 for axis in attended):
        raise ValueError(
            "Query, value and key must have the shape (batch, steps, features), or several "
            "axes of steps, of which `attention_axes` name some. Received: inputs of shape "
            f"{tuple(shape)}, attention_axes={attention_axes}"
        )
    return AttentionAxes(rank, attended)
