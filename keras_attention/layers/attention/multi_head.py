"""Multi-head attention (Vaswani et al. 2017), with the options that came since."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from ...ops.axes import Axes, size_of
from ...ops.dot_product.attention import NORMALIZERS, attention, attention_with_scores
from ...ops.dot_product.mods import Mods, all_of
from ...ops.dot_product.reach import Reach
from ...ops.masks import can_be_one, check_mask, combine_masks, dtype_of, zero_masked
from ...ops.types import Tensor
from .. import arguments
from .base import in_three, is_alone, masks_of
from .multi_head_projections import HeadProjections, rank_4

POSITIONS = (None, "rotary", "alibi", "relative")
# Options that belong to one kind of positions, with their defaults.
OF_POSITIONS = {
    "max_wavelength": ("rotary", 10000),
    "rotary_dim": ("rotary", None),
    "rotary_scaling": ("rotary", 1.0),
    "num_buckets": ("relative", 32),
    "max_distance": ("relative", 128),
}


@keras.saving.register_keras_serializable("keras_attention")
class MultiHeadAttention(HeadProjections):
    """Multi-head attention: `H` scaled dot products, each in a projection of its own.

    $$
    \\mathrm{head}_h = A\\left(\\frac{(x W^Q_h)(y W^K_h)^\\top}{\\sqrt{d}} + b_h\\right) (y W^V_h),
    \\qquad o = [\\mathrm{head}_1; \\dots; \\mathrm{head}_H] W^O
    $$

    `A` is the normaliser, `b` the bias by distance, if any. Weights and output are those of
    `keras.layers.MultiHeadAttention`, but a query that sees nothing has zero weights here. `step`
    takes one query at a time. Long sequences (`T S` above 1024 x 1024) keep no tensor of `H T S`
    numbers, unless you ask for the weights.

    Args:
        num_heads: Number of query heads `H`.
        key_dim, value_dim: Size `d` of each head of queries and keys, and of values (default: `d`).
        dropout: Rate at which weights are dropped in training. Scores returned are those before.
        use_bias: Whether the projections have biases.
        output_shape: Size of the output, or a tuple of sizes. Default: the queries' size.
        num_key_value_heads: Number of heads of keys and values, each read by as many query heads;
            1 is multi-query attention. Default: `num_heads`.
        positions: `None`, or how places, counted from 0, enter the scores: `"rotary"` turns queries
            and keys, `"alibi"` subtracts a slope times the distance, `"relative"` adds a learned
            number for each bucket of distances.
        max_wavelength, rotary_dim, rotary_scaling: Of `"rotary"`: the longest wavelength, how many
            features of a head turn (default: all), and the divisor of places.
        num_buckets, max_distance: Of `"relative"`: how many buckets there are; the last holds all
            distances from `max_distance` on.
        window, sliding_window: Two names: a query at place `t` sees the places within
            `window - 1` of `t`. Default: all.
        num_sinks: How many of the first places all queries see, past the window too.
        normalizer: `"softmax"`, `"sparsemax"` or `"entmax15"`.
        query_key_norm: Whether each head's queries and keys, before they turn, are divided by their
            root mean square and multiplied by a learned gain.
        kernel_initializer, bias_initializer, kernel_regularizer, bias_regularizer,
            kernel_constraint, bias_constraint: As in `keras.layers.Dense`. Glorot's rule starts
            kernels of three axes small, as a convolution's; a post-norm Transformer needs that.
        attention_axes: The axes that attend, of inputs with several axes between batch and
            features; the layer takes the others one by one. Default: all of them.
        use_gate: Whether `sigmoid(x W^G)` multiplies the heads' results.
        score_mod: Function of `(score, batch, head, query, key)` that returns another score: see
            `keras_attention.ops.dot_product.mods`. It may be a Keras layer, whose weights learn.
        mask_mod: Function of `(batch, head, query, key)`, True = attend.
        seed, **kwargs: Seed of the dropout, and the arguments of every Keras layer.

    Call arguments:
        query: `(B, T, Dq)`; or a list `[query, value]` or `[query, value, key]`. With more axes
            `T` stands for `attention_axes`, and `B` for all others.
        value: `(B, S, Dv)`. Default: the queries.
        key: `(B, S, Dk)`. Default: the values.
        query_mask: Boolean `(B, T)`, True = attend.
        value_mask, key_mask: Boolean `(B, S)`; a place must pass both. In self-attention
            `value_mask` is by default `query_mask`.
        attention_mask: Boolean `(T, S)`, `(B, T, S)` or `(B, H, T, S)`: which pairs may attend.
        return_attention_scores, training: Whether to return the weights; whether dropout applies.
        use_causal_mask: Whether a query sees no place after its own.
        mask: The masks that Keras passes by itself; `query_mask` goes before it.
        query_positions, key_positions: Integers `(B, T)` and `(B, S)`: the places for rotary
            positions. Default: 0, 1, and so on; for keys in self-attention, the queries'.
        score_mod: In place of the layer's. Gradients reach the Keras variables that it reads, and
            the tensors of a `functools.partial`; all else is constant.
        mask_mod: Beside the layer's; both must show a pair.

    Returns:
        The output `(B, T, O)`; with `return_attention_scores` also the weights `(B, H, T, S)`.

    Raises:
        ValueError: Where an argument is out of range or ignored, or shapes or masks do not fit.

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

    attribute_of = {"output_shape": "output_size"}

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
        self.score_mod = _as_mod("score_mod", score_mod)
        self.mask_mod = _as_mod("mask_mod", mask_mod)
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
        for name, (kind, default) in OF_POSITIONS.items():
            if getattr(self, name) != default and positions != kind:
                raise ValueError(
                    f"`{name}` belongs to positions={kind!r} and would be ignored. "
                    f"Received: {name}={getattr(self, name)}, positions={positions!r}"
                )
        if positions == "rotary":
            size = self.key_dim if rotary_dim is None else rotary_dim
            if arguments.check_integer("rotary_dim", size) % 2 or size > self.key_dim:
                raise ValueError(
                    "Rotary positions turn pairs of features: `key_dim`, or the `rotary_dim` of "
                    "its features that are turned and no more, must be even. Received: "
                    f"key_dim={self.key_dim}, rotary_dim={rotary_dim}"
                )

    def _set_window(self, window, sliding_window, num_sinks):
        self.window = sliding_window if window is None else window
        self.sliding_window = sliding_window
        self.num_sinks = arguments.check_integer("num_sinks", num_sinks, minimum=0)
        if sliding_window not in (None, self.window):
            raise ValueError(
                "`sliding_window` is another name of `window`: give one of them. "
                f"Received: window={window}, sliding_window={sliding_window}"
            )
        if self.window is not None:
            name = "window" if sliding_window is None else "sliding_window"
            arguments.check_integer(name, self.window)
        elif num_sinks:
            raise ValueError(
                "`num_sinks` keeps the first places in sight of a `window`; without one all are. "
                f"Received: num_sinks={num_sinks}, window=None"
            )

    def build(self, query_shape, value_shape=None, key_shape=None):
        query, value, key = map(tuple, in_three(query_shape, value_shape, key_shape))
        self.axes = axes_of(query, self.attention_axes)
        self._check_shapes(query, value, key)
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
                self._make_weight(name, (self.key_dim,), "ones")
        if self.positions == "relative":
            small = keras.initializers.RandomNormal(stddev=0.02)
            self._make_weight("relative_bias", (self.num_buckets, heads), small)
        if isinstance(self.score_mod, keras.layers.Layer):
            place = ops.zeros((1, 1, 1, 1), "int32")
            self.score_mod(ops.zeros((1, heads, 1, 1)), place, place, place, place)
        self.restore_quantization()

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
        places = self._places(query, query_positions), self._places(value, key_positions)
        value_mask = value_mask if key_mask is None else combine_masks(value_mask, key_mask)
        ready = self._ready(query, value, key, query_mask, value_mask)
        *heads, gate = self._project_inputs(*ready, places)
        steps, length = size_of(heads[0], 2), size_of(heads[1], 2)
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
        table = self._bias_table(1 - steps, steps + length - 1, use_causal_mask)
        dropout = self.dropout if training else 0.0
        given = (*heads, reach, table, self.normalizer, dropout, self._dropout_seed)
        if not return_attention_scores:
            return self.axes.unfold(self._output(attention(*given), gate), query)
        context, scores = attention_with_scores(*given)
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
        shapes = tuple(map(tuple, in_three(query_shape, value_shape, key_shape)))
        self._check_shapes(*shapes)
        query = shapes[0]
        return (*query[:-1], *(self.output_size or query[-1:]))

    @arguments.of_own_call
    def compute_output_spec(self, *args, **kwargs):
        of = arguments.call_arguments(self, args, kwargs)
        masks = (of.query_mask, of.value_mask, of.key_mask, of.attention_mask, of.mask)
        query, value, key, *_ = self._inputs(of.query, of.value, of.key, *masks)
        shapes = [self.compute_output_shape(query.shape, value.shape, key.shape)]
        if of.return_attention_scores:
            axes = axes_of(query.shape, self.attention_axes)
            shapes.append(axes.pairs_shape(query.shape, value.shape, self.num_heads))
        return arguments.specs(shapes, self.compute_dtype)

    # What a call may be given.

    def _inputs(
        self, query, value, key, query_mask, value_mask, key_mask, attention_mask, mask
    ) -> tuple:
        """Return query, value, key, and the masks of query and value, from any way to give them."""
        if value is None and key is not None and not isinstance(query, (list, tuple)):
            raise ValueError("A `key` needs its `value`. Received: a key, and value=None")
        (query_mask, implicit), value_mask = masks_of(query_mask, value_mask, mask)
        query_mask = implicit if query_mask is None else query_mask
        if value_mask is None and is_alone(query, value):
            value_mask = query_mask
        query, value, key = in_three(query, value, key)
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
                self.check_features(name, shape)

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

    def _places(self, inputs, places):
        """Return the folded places of a rotary layer's inputs, which a call gave, or `None`."""
        if places is None:
            return None
        shape = tuple(places.shape)
        if self.positions != "rotary" or not can_be_one(shape, tuple(inputs.shape[:-1])):
            raise ValueError(
                "`query_positions` and `key_positions` belong to positions='rotary', and have one "
                f"place for each input, here {tuple(inputs.shape[:-1])}. Received: places of shape "
                f"{shape}, positions={self.positions!r}"
            )
        return self.axes.fold(ops.cast(places, "int32"))


def _integers(name, given, minimum):
    """Return one integer or several, each of at least `minimum`, as a tuple; `None` stays."""
    if given is None:
        return None
    listed = given if isinstance(given, (list, tuple)) and given else [given]
    return tuple(arguments.check_integer(name, one, minimum) for one in listed)


def _as_mod(name, mod):
    mod = keras.saving.deserialize_keras_object(mod) if isinstance(mod, dict) else mod
    if mod is not None and not callable(mod):
        raise ValueError(f"`{name}` must be a function of places. Received: {name}={mod!r}")
    return mod


def axes_of(shape, attention_axes) -> Axes:
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
    return Axes(rank, attended)
