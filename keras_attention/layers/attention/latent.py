"""Multi-head latent attention (DeepSeek-AI 2024)."""

from typing import Any

import keras
from keras import ops

from ...ops.dot_product.attention import attention, attention_with_scores
from ...ops.dot_product.mask_spec import MaskSpec, Range
from ...ops.heads import cache_index, rms_normalize, swap_heads, write_cache
from ...ops.masks import check_mask, zero_masked
from ...ops.positions import rotate
from ...ops.shapes import size_of
from ...ops.types import Tensor
from .. import arguments
from .projections import SelfAttention


@keras.saving.register_keras_serializable("keras_attention")
class MultiHeadLatentAttention(SelfAttention, keras.layers.Layer):
    """Multi-head latent attention: keys and values of all heads come from one short vector.

    $$\\begin{aligned}
    c_s &= x_s W^{DKV}, \\qquad r_s = R_s(x_s W^{KR}) \\\\
    k_{s,h} &= [c_s W^{UK}_h; r_s], \\qquad v_{s,h} = c_s W^{UV}_h \\\\
    q_{t,h} &= [x_t W^{UQ}_h; R_t(x_t W^{QR}_h)] \\\\
    o_t &= \\sum_h \\sum_s \\mathrm{softmax}_s\\left(\\frac{q_{t,h} \\cdot k_{s,h}}
    {\\sqrt{d + d^R}}\\right) v_{s,h} W^O_h
    \\end{aligned}$$

    `R` rotates by the angles of a position; the rotated keys `r` are shared by all heads. With
    `query_latent_dim` the queries, too, come from a short vector, `x_t W^{DQ}` in place of `x_t`.

    A call computes the keys and values of all heads (the expanded form). `step` keeps `c_s` and
    `r_s` alone, `latent_dim + rotary_dim` numbers for each position (`cache_size`): it multiplies
    the query by `W^{UK}` and the weighted sum of the `c_s` by `W^{UV}` (the absorbed form).

    Weights: `query_kernel (D, H, d)` and `query_rotary_kernel (D, H, rotary_dim)`, where `D` is
    `query_latent_dim` if there is one, and then `query_latent_kernel (D, query_latent_dim)`;
    `latent_kernel (D, latent_dim)`, `key_rotary_kernel (D, rotary_dim)`,
    `key_kernel (latent_dim, H, d)`, `value_kernel (latent_dim, H, dv)`,
    `output_kernel (H, dv, D)`; with `latent_norm` also `latent_gain` and `query_latent_gain`.

    Args:
        num_heads: Number of heads `H`.
        key_dim: Size `d` of the part of each head's queries and keys that is not rotated.
        latent_dim: Size of the vector `c` that keys and values come from.
        value_dim: Size `dv` of each head of values. Default: `key_dim`.
        rotary_dim: Size of the rotated part, an even number; 0 for none. Default: half of
            `key_dim`, as in the paper, or the next even number.
        query_latent_dim: Size of the vector that queries come from. Default: queries come from the
            inputs.
        latent_norm: Whether the short vectors are divided by their root mean square and multiplied
            by a learned gain, as in DeepSeek's models (section 3.1.2).
        max_wavelength: Longest wavelength of the rotation.
        kernel_initializer: Initializer of the kernels.
        **kwargs: The arguments of every Keras layer, `kernel_regularizer` and `kernel_constraint`.

    Call arguments:
        query: `(B, T, D)`.
        query_mask: Boolean `(B, T)`, True = attend. Default: Keras' implicit mask.
        use_causal_mask: Whether a query attends to no later position.
        return_attention_scores: Whether to return the weights.
        mask: The mask that Keras passes implicitly; `query_mask` takes precedence.

    Returns:
        The output `(B, T, D)`; with `return_attention_scores` also the weights `(B, H, T, T)`.

    Raises:
        ValueError: If an argument is out of range, or shapes or masks do not fit.

    Reference:
        DeepSeek-AI 2024, "DeepSeek-V2: a strong, economical, and efficient mixture-of-experts
        language model", section 2.1. Rotation pairs the halves of the features; DeepSeek's weights
        pair neighbours, so that their rotary features are read in the order 0, 2, ..., 1, 3, ...

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import MultiHeadLatentAttention

    words = np.random.normal(size=(2, 5, 16)).astype("float32")
    layer = MultiHeadLatentAttention(num_heads=4, key_dim=8, latent_dim=6, rotary_dim=4)
    output = layer(words, use_causal_mask=True)
    assert tuple(output.shape) == (2, 5, 16)

    state = layer.initial_state(batch_size=2, max_length=5)
    assert layer.cache_size == 10  # numbers a position; all keys and values would be 4 * (12 + 8)
    for index in range(5):
        step, state = layer.step(words[:, index], state, index)
        assert np.allclose(step, output[:, index], atol=1e-5)
    ```
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        latent_dim: int,
        value_dim: int | None = None,
        rotary_dim: int | None = None,
        query_latent_dim: int | None = None,
        latent_norm: bool = False,
        max_wavelength: float = 10000,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_heads = arguments.check_integer("num_heads", num_heads)
        self.key_dim = arguments.check_integer("key_dim", key_dim)
        self.latent_dim = arguments.check_integer("latent_dim", latent_dim)
        size = key_dim if value_dim is None else value_dim
        self.value_dim = arguments.check_integer("value_dim", size)
        size = 2 * -(-key_dim // 4) if rotary_dim is None else rotary_dim
        self.rotary_dim = arguments.check_integer("rotary_dim", size, minimum=0)
        if self.rotary_dim % 2:
            raise ValueError(
                "Rotary positions rotate pairs of features: `rotary_dim` must be even. "
                f"Received: rotary_dim={rotary_dim}"
            )
        if query_latent_dim is not None:
            arguments.check_integer("query_latent_dim", query_latent_dim)
        self.query_latent_dim = query_latent_dim
        self.latent_norm = arguments.check_flag("latent_norm", latent_norm)
        self.max_wavelength = arguments.check_number("max_wavelength", max_wavelength, above=True)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape):
        self._check_shape(query_shape)
        self.input_size = query_shape[-1]
        for name, (inputs, outputs) in self._projections().items():
            self._add_projection(name, inputs, outputs, as_matrix=True)
        if self.latent_norm:
            self._make_weight("latent_gain", (self.latent_dim,), "ones")
            if self.query_latent_dim is not None:
                self._make_weight("query_latent_gain", (self.query_latent_dim,), "ones")
        self.restore_quantization()

    def _projections(self):
        """Return the shape of each projection's inputs and outputs, by name."""
        inputs, heads, rotary = (self.input_size,), self.num_heads, self.rotary_dim
        of_query = inputs if self.query_latent_dim is None else (self.query_latent_dim,)
        latent = (self.latent_dim,)
        found = {}
        if self.query_latent_dim is not None:
            found["query_latent"] = inputs, of_query
        found["query"] = of_query, (heads, self.key_dim)
        if rotary:
            found["query_rotary"] = of_query, (heads, rotary)
        found["latent"] = inputs, latent
        if rotary:
            found["key_rotary"] = inputs, (rotary,)
        found["key"] = latent, (heads, self.key_dim)
        found["value"] = latent, (heads, self.value_dim)
        found["output"] = (heads, self.value_dim), inputs
        return found

    def kernels_to_adapt(self) -> dict[str, int]:
        projections = self._projections().items()
        return {f"{name}_kernel": len(inputs) for name, (inputs, _) in projections}

    def call(
        self,
        query: Tensor,
        query_mask: Tensor = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        mask: Tensor = None,
    ) -> Tensor:
        mask = mask if query_mask is None else query_mask
        self._check(query, mask)
        query = zero_masked(query, mask)
        positions = Range.of_axis(query, 1).positions()
        queries = self._join(*self._queries(query, positions))
        latent, rotary = self._latents(query, positions)
        keys, values = self._project(latent, "key", "value")
        if rotary is not None:
            shape = (*ops.shape(keys)[:3], self.rotary_dim)
            rotary = ops.broadcast_to(ops.expand_dims(rotary, 2), shape)
        keys = self._join(keys, rotary)
        spec = MaskSpec(use_causal_mask, query_mask=mask, value_mask=mask)
        heads = [swap_heads(each) for each in (queries, keys, values)]
        if not return_attention_scores:
            return self._project_to_output(swap_heads(attention(*heads, spec)))
        context, scores = attention_with_scores(*heads, spec)
        return self._project_to_output(swap_heads(context)), scores

    def _queries(self, inputs, positions):
        """Return the scaled queries `(B, T, H, d)`, and their rotated part or `None`."""
        if self.query_latent_dim is not None:
            (inputs,) = self._project(inputs, "query_latent")
            inputs = self._normalize(inputs, "query_latent_gain")
        names = ("query", "query_rotary") if self.rotary_dim else ("query",)
        scale = (self.key_dim + self.rotary_dim) ** -0.5
        queries, *rotary = (heads * scale for heads in self._project(inputs, *names))
        return queries, self._rotate(rotary[0], positions) if rotary else None

    def _latents(self, inputs, positions):
        """Return the vectors `c` `(B, T, latent_dim)`, and the rotated keys or `None`."""
        names = ("latent", "key_rotary") if self.rotary_dim else ("latent",)
        latent, *rotary = self._project(inputs, *names)
        latent = self._normalize(latent, "latent_gain")
        return latent, self._rotate(rotary[0], positions) if rotary else None

    def _normalize(self, latent, gain):
        return rms_normalize(latent, self.cast(getattr(self, gain))) if self.latent_norm else latent

    def _rotate(self, features, positions):
        """Rotate `(B, T, d)`, or `(B, T, H, d)`, by the positions `(T,)`."""
        positions = ops.expand_dims(positions, -1) if len(features.shape) == 4 else positions
        return rotate(features, positions, self.max_wavelength)

    def _join(self, features, rotary):
        return features if rotary is None else ops.concatenate([features, rotary], axis=-1)

    # One query at a time.

    @property
    def cache_size(self) -> int:
        """How many numbers the cache holds for each position of each row.

        `MultiHeadAttention` holds `num_key_value_heads * (key_dim + value_dim)`.
        """
        return self.latent_dim + self.rotary_dim

    def initial_state(self, batch_size: Tensor, max_length: int) -> dict:
        """Return the empty cache, `key (B, 1, max_length, latent_dim + rotary_dim)`."""
        batch_size = arguments.as_integer("batch_size", batch_size)
        max_length = arguments.as_integer("max_length", max_length)
        shape = (batch_size, 1, max_length, self.cache_size)
        return {"key": ops.zeros(shape, self.compute_dtype)}

    def step(self, query: Tensor, state: dict, index: Tensor, mask: Tensor = None) -> tuple:
        """Attend with one query in each row, to itself and to those before.

        Args:
            query: `(B, D)`.
            state: The result of `initial_state` or of the step before.
            index: Position of the query, from 0: an integer or a scalar tensor, the same for all
                rows. A tensor outside of the cache gives NaN.
            mask: Boolean `(B, max_length)`, True = attend.

        Returns:
            The output `(B, D)`, and the state after the step.

        Raises:
            ValueError: If a known `index` lies outside of the cache, or arguments do not fit.
        """
        arguments.check_built(self, "query_shape")
        query = self.cast(query)
        arguments.check_step("query", query.shape, self.input_size)
        shape = (query.shape[0], 1, None, self.cache_size)
        arguments.check_parts("state", state, "`initial_state`", key=shape)
        check_mask(mask, (query.shape[0], state["key"].shape[2]), "mask")
        query = ops.expand_dims(query, 1)
        index = arguments.as_index(index)
        positions = Range(index, 1).positions()
        queries, rotary = self._queries(query, positions)
        entry = swap_heads(ops.expand_dims(self._join(*self._latents(query, positions)), 2))
        index, entry = cache_index(index, size_of(state["key"], 2), entry)
        state = write_cache(state, index, {"key": entry})
        # The kernels as (H, d, latent_dim) and (H, latent_dim, dv).
        of_keys = ops.transpose(self.effective_weight(self.key_kernel), (1, 2, 0))
        of_values = ops.transpose(self.effective_weight(self.value_kernel), (1, 0, 2))
        absorbed = ops.matmul(swap_heads(queries), of_keys)
        rotary = None if rotary is None else swap_heads(rotary)
        spec = MaskSpec(True, value_mask=mask)
        # The cache is also the values: a slice of it would be a copy in each step.
        cache = state["key"]
        absorbed, rows = self._join(absorbed, rotary), Range(index, 1)
        context, _ = attention_with_scores(absorbed, cache, cache, spec, rows=rows)
        context = ops.matmul(context[..., : self.latent_dim], of_values)
        return ops.squeeze(self._project_to_output(swap_heads(context)), 1), state

    @arguments.for_own_call
    def compute_output_spec(self, *args, **kwargs):
        of = arguments.call_arguments(self, args, kwargs)
        self._check(of.query, of.mask if of.query_mask is None else of.query_mask)
        shape = tuple(of.query.shape)
        shapes = [shape]
        if of.return_attention_scores:
            shapes.append((shape[0], self.num_heads, shape[1], shape[1]))
        return arguments.specs(shapes, self.compute_dtype)
