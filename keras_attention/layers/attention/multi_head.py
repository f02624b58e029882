"""Multi-head attention (Vaswani et al. 2017), with the options that came since."""

from typing import Any

import keras
from keras import ops

from keras_attention.layers.attention.multi_head_inputs import (
    axes_of,
    check_call,
    check_shapes,
    differ,
    in_three,
    masks_of,
    rank_4,
)
from keras_attention.layers.attention.multi_head_projections import HeadProjections
from keras_attention.layers.checks import (
    check_choice,
    check_flag,
    check_integer,
    check_number,
    check_rate,
    check_seed,
)
from keras_attention.ops.dot_product.attention import (
    NORMALIZERS,
    attention,
    attention_with_scores,
)
from keras_attention.ops.dot_product.mods import Mods, all_of
from keras_attention.ops.dot_product.reach import Reach
from keras_attention.ops.masks import combine_masks, zero_masked

POSITIONS = (None, "rotary", "alibi", "relative")
# Options that belong to one kind of positions, with their defaults.
OF_POSITIONS = {
    "max_wavelength": ("rotary", 10000),
    "rotary_dim": ("rotary", None),
    "rotary_scaling": ("rotary", 1.0),
    "num_buckets": ("relative", 32),
    "max_distance": ("relative", 128),
}
# What Keras makes an object of, and writes to a configuration by.
SERIALIZED = {
    "initializer": keras.initializers,
    "regularizer": keras.regularizers,
    "constraint": keras.constraints,
}

CONFIG = (
    *("num_heads", "key_dim", "value_dim", "dropout", "use_bias", "num_key_value_heads"),
    *("positions", *OF_POSITIONS, "window", "num_sinks", "normalizer", "query_key_norm"),
    *("kernel_initializer", "bias_initializer", "kernel_regularizer", "bias_regularizer"),
    *("kernel_constraint", "bias_constraint", "seed", "attention_axes", "sliding_window"),
    "use_gate",
)


@keras.saving.register_keras_serializable("keras_attention")
class MultiHeadAttention(HeadProjections):
    """Multi-head attention: `H` scaled dot products, each in a projection of its own.

    $$
    \\mathrm{head}_h = A\\left(\\frac{(x W^Q_h)(y W^K_h)^\\top}{\\sqrt{d}} + b_h\\right) (y W^V_h),
    \\qquad o = [\\mathrm{head}_1; \\dots; \\mathrm{head}_H] W^O
    $$

    `A` is the normaliser, `b` the bias by distance, where there is one. One input alone is
    self-attention. The weights have the order and the shapes of
    `keras.layers.MultiHeadAttention`, and the same weights give the same output. A query that sees
    nothing has zero weights here, and its output is the output's bias.

    One query at a time, with keys and values projected once:

    ```
    memory = layer.prepare_memory(value, key, mask)                  # cross-attention
    output, scores, _ = layer.step(query, memory, {}, index)         # query (B, D)

    state = layer.initial_state(batch_size, max_length)              # causal self-attention
    output, scores, state = layer.step(query, None, state, index)
    ```

    Unless you ask for the weights, long sequences (from `T S` above 1024 x 1024) keep no tensor of
    `H T S` numbers: `keras_attention.ops.dot_product.blocks` works on parts of them.

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
            `sliding_window` is another name of it.
        num_sinks: The first places, which are seen past the window too.
        normalizer: `"softmax"`, `"sparsemax"` or `"entmax15"`.
        query_key_norm: Whether each head's queries and keys are divided by their root mean square
            and multiplied by a learned gain, before they are turned.
        kernel_initializer: Initializer of the kernels. Those of queries, keys and values have three
            axes, which Glorot's rule takes for a convolution's: they start small, and a post-norm
            Transformer trains. The output's is drawn as a matrix.
        bias_initializer: Initializer of the biases.
        kernel_regularizer: Regularizer of the kernels.
        bias_regularizer: Regularizer of the biases.
        kernel_constraint: Constraint of the kernels.
        bias_constraint: Constraint of the biases.
        seed: Seed of the dropout.
        attention_axes: The axes that attend, of inputs with several axes between batch and
            features; the others are taken one by one. Default: all of them.
        sliding_window: As `window`.
        use_gate: Whether `sigmoid(x W^G)` multiplies the heads' results.
        rotary_dim: Of `"rotary"`: how many features of a head are turned. Default: all.
        rotary_scaling: Of `"rotary"`: what places are divided by.
        score_mod: Function of `(score, batch, head, query, key)` that returns another score: see
            `keras_attention.ops.dot_product.mods`. It may be a Keras layer, whose weights learn.
        mask_mod: Function of `(batch, head, query, key)`, True = attend.
        **kwargs: Arguments of every Keras layer.

    Call arguments:
        query: `(B, T, Dq)`; or a list `[query, value]` or `[query, value, key]`. With more axes
            `T` stands for `attention_axes`, and `B` for all others.
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
            `query_mask` says the same, and goes before it. Of a list, a list.
        query_positions: Integers `(B, T)`: the places that rotary positions count. Default: 0, 1,
            and so on.
        key_positions: Integers `(B, S)`. Default in self-attention: `query_positions`.
        score_mod: As the argument of the layer, after which it applies. Gradients reach the Keras
            variables that it reads, and the tensors of a `functools.partial`; all else is constant.
        mask_mod: As the argument of the layer; both must show a pair.

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
        Dehghani et al. 2023, section 2.1, here by the root mean square. Gate:
        Qiu et al. 2025, section 2.2. Scaled places: Chen et al. 2023, section 2.3.

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
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_heads = check_integer("num_heads", num_heads)
        self.key_dim = check_integer("key_dim", key_dim)
        self.value_dim = check_integer("value_dim", key_dim if value_dim is None else value_dim)
        self.dropout = check_rate("dropout", dropout)
        self.use_bias = check_flag("use_bias", use_bias)
        self.output_size = _as_shape(output_shape)
        groups = num_heads if num_key_value_heads is None else num_key_value_heads
        self.num_key_value_heads = check_integer("num_key_value_heads", groups)
        self.positions = check_choice("positions", positions, POSITIONS)
        self.max_wavelength = check_number("max_wavelength", max_wavelength, above=True)
        self.num_buckets = check_integer("num_buckets", num_buckets)
        self.max_distance = check_integer("max_distance", max_distance)
        self.window = sliding_window if window is None else window
        self.sliding_window = sliding_window
        self.num_sinks = check_integer("num_sinks", num_sinks, minimum=0)
        self.normalizer = check_choice("normalizer", normalizer, NORMALIZERS)
        self.query_key_norm = check_flag("query_key_norm", query_key_norm)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.seed = check_seed(seed)
        self.attention_axes = _as_axes(attention_axes)
        self.use_gate = check_flag("use_gate", use_gate)
        self.rotary_dim = rotary_dim
        self.rotary_scaling = check_number("rotary_scaling", rotary_scaling, above=True)
        self.score_mod, self.mask_mod = (
            _as_mod("score_mod", score_mod),
            _as_mod("mask_mod", mask_mod),
        )
        self._check_options()
        self.supports_masking = True
        self._dropout_seed = keras.random.SeedGenerator(seed) if dropout else None

    def _check_options(self):
        """Raise a ValueError where options do not fit each other or would be ignored."""
        if self.num_heads % self.num_key_value_heads:
            raise ValueError(
                "`num_heads` must be a multiple of `num_key_value_heads`, so that each key head "
                f"serves as many query heads. Received: num_heads={self.num_heads}, "
                f"num_key_value_heads={self.num_key_value_heads}"
            )
        for name, (positions, default) in OF_POSITIONS.items():
            if getattr(self, name) != default and self.positions != positions:
                raise ValueError(
                    f"`{name}` belongs to positions={positions!r} and would be ignored. "
                    f"Received: {name}={getattr(self, name)}, positions={self.positions!r}"
                )
        if self.positions == "rotary":
            size = self.key_dim if self.rotary_dim is None else self.rotary_dim
            if check_integer("rotary_dim", size) % 2 or size > self.key_dim:
                raise ValueError(
                    "Rotary positions turn pairs of features: `key_dim`, or the `rotary_dim` of "
                    f"its features that are turned, must be even. Received: key_dim={self.key_dim}"
                    f", rotary_dim={self.rotary_dim}"
                )
        if self.sliding_window not in (None, self.window):
            raise ValueError(
                "`sliding_window` is another name of `window`: give one of them. "
                f"Received: window={self.window}, sliding_window={self.sliding_window}"
            )
        if self.window is not None:
            check_integer("window", self.window)
        elif self.num_sinks:
            raise ValueError(
                "`num_sinks` keeps the first places in sight of a `window`; without one all are. "
                f"Received: num_sinks={self.num_sinks}, window=None"
            )

    def build(self, query_shape, value_shape=None, key_shape=None):
        query, value, key = in_three(query_shape, value_shape, key_shape, of_shapes=True)
        self.axes = axes_of(query, self.attention_axes)
        check_shapes(self, query, value, key)
        heads, groups = self.num_heads, self.num_key_value_heads
        self._features = {"query": query[-1], "value": value[-1], "key": key[-1]}
        self._sizes = {}
        self._add_kernel("query", query[-1:], (heads, self.key_dim))
        self._add_kernel("key", key[-1:], (groups, self.key_dim))
        if self.use_gate:
            self._add_kernel("gate", query[-1:], (heads, self.value_dim))
        self._add_kernel("value", value[-1:], (groups, self.value_dim))
        self._add_kernel("output", (heads, self.value_dim), self.output_size or (query[-1],))
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
        if isinstance(self.score_mod, keras.layers.Layer):
            place = ops.zeros((1, 1, 1, 1), "int32")
            self.score_mod(ops.zeros((1, heads, 1, 1)), place, place, place, place)
        self.restore_quantization()

    def call(
        self,
        query,
        value=None,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
        mask=None,
        query_positions=None,
        key_positions=None,
        score_mod=None,
        mask_mod=None,
    ):
        masks = masks_of(mask, query, value, query_mask, value_mask)
        query, value, key = in_three(query, value, key)
        check_call(self, query, value, key, *masks, key_mask, attention_mask)
        key_positions = query_positions if value is query else key_positions
        places = self._places(query, query_positions), self._places(value, key_positions)
        query_mask, value_mask = masks
        if key_mask is not None:
            value_mask = combine_masks(value_mask, key_mask)
        ready = self._ready(query, value, key, query_mask, value_mask)
        *heads, gate = self._project_inputs(*ready, places)
        steps, length = ops.shape(heads[0])[2], ops.shape(heads[1])[2]
        mask_mods = [mod for mod in (self.mask_mod, mask_mod) if mod is not None]
        reach = Reach(
            use_causal_mask,
            self.window,
            self.num_sinks,
            self.axes.fold(query_mask),
            self.axes.fold(value_mask),
            rank_4(self.axes.fold_pairs(attention_mask, query, value)),
            Mods.of(score_mod or self.score_mod, all_of(*mask_mods) if mask_mods else None),
        )
        given = {
            "reach": reach,
            "table": self._bias_table(1 - steps, length, use_causal_mask),
            "normalizer": self.normalizer,
            "dropout": self.dropout if training else 0.0,
            "seed": self._dropout_seed,
        }
        if not return_attention_scores:
            return self.axes.unfold(self._output(attention(*heads, **given), gate), query)
        context, scores = attention_with_scores(*heads, **given)
        output = self.axes.unfold(self._output(context, gate), query)
        return output, self.axes.unfold_pairs(scores, query, value)

    def _ready(self, query, value, key, query_mask, value_mask):
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

    def compute_mask(self, inputs, previous_mask):
        return previous_mask[0] if isinstance(previous_mask, (list, tuple)) else previous_mask

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None) -> tuple:
        query, _, _ = in_three(query_shape, value_shape, key_shape, of_shapes=True)
        return (*query[:-1], *(self.output_size or query[-1:]))

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
        query_positions=None,
        key_positions=None,
        score_mod=None,
        mask_mod=None,
    ):
        masks = masks_of(mask, query, value, query_mask, value_mask)
        query, value, key = in_three(query, value, key)
        check_call(self, query, value, key, *masks, key_mask, attention_mask)
        output = keras.KerasTensor(self.compute_output_shape(query.shape), self.compute_dtype)
        if not return_attention_scores:
            return output
        shape = axes_of(query.shape, self.attention_axes).pairs_shape(
            query.shape, value.shape, self.num_heads
        )
        return output, keras.KerasTensor(shape, self.compute_dtype)

    def _places(self, inputs, places):
        """Return the folded places of a rotary layer's inputs, which a call gave, or `None`."""
        if places is None:
            return None
        shape = tuple(places.shape)
        if self.positions != "rotary" or differ(shape, tuple(inputs.shape[:-1])):
            raise ValueError(
                "`query_positions` and `key_positions` belong to positions='rotary', and have one "
                f"place for each input, here {tuple(inputs.shape[:-1])}. Received: places of shape "
                f"{shape}, positions={self.positions!r}"
            )
        return self.axes.fold(ops.cast(places, "int32"))

    def get_config(self) -> dict:
        config = super().get_config()
        for name in CONFIG:
            value, made = getattr(self, name), SERIALIZED.get(name.rpartition("_")[2])
            config[name] = made.serialize(value) if made else value
        for name in ("score_mod", "mask_mod"):
            config[name] = keras.saving.serialize_keras_object(getattr(self, name))
        return {**config, "output_shape": self.output_size}


def _as_shape(output_shape):
    if output_shape is None:
        return None
    is_one = not isinstance(output_shape, (list, tuple))
    shape = (output_shape,) if is_one else tuple(output_shape)
    if not shape or not all(type(size) is int and size > 0 for size in shape):
        raise ValueError(
            "`output_shape` must be a positive integer or a tuple of them. "
            f"Received: output_shape={output_shape!r}"
        )
    return shape


def _as_axes(axes):
    if axes is None:
        return None
    given = (axes,) if isinstance(axes, int) else axes
    if not isinstance(given, (list, tuple)) or not all(type(axis) is int for axis in given):
        raise ValueError(
            "`attention_axes` must be an integer or a tuple of them. "
            f"Received: attention_axes={axes!r}"
        )
    return tuple(given)


def _as_mod(name, mod):
    mod = keras.saving.deserialize_keras_object(mod) if isinstance(mod, dict) else mod
    if mod is not None and not callable(mod):
        raise ValueError(f"`{name}` must be a function of places. Received: {name}={mod!r}")
    return mod
