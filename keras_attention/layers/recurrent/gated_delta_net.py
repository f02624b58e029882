"""Gated delta networks (Yang et al. 2025)."""

import math
from typing import Any

import keras
from keras import ops

from ...ops.heads import rms_normalize
from ...ops.linear_attention import delta_rule_step, gated_delta_rule
from ...ops.masks import zero_masked
from ...ops.positions import gather_rows, real_order, real_positions
from ...ops.types import Tensor, accumulator_dtype, at_least_float32
from .. import arguments
from ..attention.projections import SelfAttention

LONG, SHORT = 0.1, 0.001  # the time steps that decays start with


@keras.saving.register_keras_serializable("keras_attention")
class GatedDeltaNet(SelfAttention, keras.layers.Layer):
    """Gated delta network: a memory that decays, and in which a key's new value replaces the old.

    $$\\begin{aligned}
    S_t &= \\alpha_t S_{t-1} (I - \\beta_t k_t k_t^\\top) + \\beta_t v_t k_t^\\top \\\\
    o_t &= W^O \\left[\\mathrm{RMSNorm}(S_t q_t) \\odot \\mathrm{SiLU}(W^G x_t)\\right] \\\\
    \\alpha_t &= \\exp(-e^A \\, \\mathrm{softplus}(W^\\alpha x_t + b)), \\qquad
    \\beta_t = \\sigma(W^\\beta x_t)
    \\end{aligned}$$

    These are the steps of one head. Queries, keys and values are `SiLU(conv(W x))`, with a causal
    convolution over the last `conv_size` steps for each feature; queries and keys are then divided
    by their length, `sqrt(sum x^2 + 1e-6)`. The first state is zeros. This is the token mixer of
    the paper's block (figure 1), without the block's norm, residual and feed-forward network.

    A step reads and writes the state alone, of the same size at any length. Whole sequences are
    computed in chunks of products of matrices, the WY form of section 3.3; `chunk_size=1` is the
    recurrence above. The layer is causal by itself. Padding, wherever it stands, is left out of
    the sequence, and its outputs are zeros.

    Weights, where `Hv` is `num_value_heads`: `query_kernel (D, H, d)`, `key_kernel (D, H, d)`,
    `value_kernel (D, Hv, dv)`, `query_conv`, `key_conv`, `value_conv (conv_size, heads, size)`,
    `decay_kernel (D, Hv)`, `beta_kernel (D, Hv)`, `a_log (Hv,)`, `dt_bias (Hv,)`,
    `gate_kernel (D, Hv, dv)`, `norm_gain (dv,)`, `output_kernel (Hv, dv, D)`.

    Args:
        num_heads: Number of heads `H` of queries and keys.
        key_dim: Size `d` of each head of queries and keys.
        value_dim: Size `dv` of each head of values. Default: `key_dim`; the paper's models have
            twice that.
        num_value_heads: Number of heads of values, a multiple of `num_heads`; neighbours share
            queries and keys. Default: `num_heads`.
        conv_size: Number of steps of the short convolutions; `None` leaves them out.
        use_gate: Whether the output is multiplied by `SiLU(W^G x)`.
        allow_neg_eigval: Whether `beta` is between 0 and 2 in place of 0 and 1, so that a state can
            change sign (Grazzi et al. 2025).
        norm_eps: Added to the mean square in the norm of the output. An implementation that
            divides queries by `sqrt(d)`, and adds `e`, has the same output with `norm_eps = e d`.
        chunk_size: Number of steps of a chunk. It changes time and memory, not the result.
        kernel_initializer: Initializer of the kernels and convolutions.
        **kwargs: The arguments of every Keras layer, `kernel_regularizer` and `kernel_constraint`.

    Call arguments:
        query: `(B, T, D)`.
        query_mask: Boolean `(B, T)`, True = real. Default: Keras' implicit mask.
        use_causal_mask: True, as for other attention; the layer knows no other form.
        mask: The mask that Keras passes implicitly; `query_mask` takes precedence.

    Returns:
        The output `(B, T, D)`.

    Raises:
        ValueError: If an argument is out of range, or shapes or masks do not fit.

    Reference:
        Yang et al. 2025, "Gated delta networks: improving Mamba2 with delta rule", sections 3.1 to
        3.4. The decay is that of Mamba-2 (Dao and Gu 2024).

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import GatedDeltaNet

    words = np.random.normal(size=(2, 5, 16)).astype("float32")
    layer = GatedDeltaNet(num_heads=2, key_dim=4, value_dim=8)
    output = layer(words)
    assert tuple(output.shape) == (2, 5, 16)

    state = layer.initial_state(batch_size=2)
    for index in range(5):
        step, state = layer.step(words[:, index], state)
        assert np.allclose(step, output[:, index], atol=1e-5)
    ```
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        num_value_heads: int | None = None,
        conv_size: int | None = 4,
        use_gate: bool = True,
        allow_neg_eigval: bool = False,
        norm_eps: float = 1e-5,
        chunk_size: int = 64,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_heads = arguments.check_integer("num_heads", num_heads)
        self.key_dim = arguments.check_integer("key_dim", key_dim)
        size = key_dim if value_dim is None else value_dim
        self.value_dim = arguments.check_integer("value_dim", size)
        count = num_heads if num_value_heads is None else num_value_heads
        self.num_value_heads = arguments.check_integer("num_value_heads", count)
        if count % num_heads:
            raise ValueError(
                "`num_value_heads` must be a multiple of `num_heads`, so that each head of queries "
                f"and keys serves as many heads of values. Received: num_heads={num_heads}, "
                f"num_value_heads={num_value_heads}"
            )
        if conv_size is not None:
            arguments.check_integer("conv_size", conv_size)
        self.conv_size = conv_size
        self.use_gate = arguments.check_flag("use_gate", use_gate)
        self.allow_neg_eigval = arguments.check_flag("allow_neg_eigval", allow_neg_eigval)
        self.norm_eps = arguments.check_number("norm_eps", norm_eps, above=True)
        self.chunk_size = arguments.check_integer("chunk_size", chunk_size)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape):
        self._check_shape(query_shape)
        self.input_size = query_shape[-1]
        inputs, heads = (self.input_size,), (self.num_value_heads, self.value_dim)
        for name, outputs in self._heads().items():
            self._add_projection(name, inputs, outputs, as_matrix=True)
        if self.conv_size is not None:
            for name, outputs in self._heads().items():
                self._make_weight(f"{name}_conv", (self.conv_size, *outputs), self._draw_conv)
        for name in ("decay", "beta"):
            self._add_projection(name, inputs, heads[:1])
        self._make_weight("a_log", heads[:1], draw_a_log)
        self._make_weight("dt_bias", heads[:1], draw_dt_bias)
        if self.use_gate:
            self._add_projection("gate", inputs, heads, as_matrix=True)
        self._make_weight("norm_gain", heads[1:], "ones")
        self._add_projection("output", heads, inputs, as_matrix=True)
        self.restore_quantization()

    def _heads(self):
        """Return the heads and sizes of queries, keys and values."""
        keys, values = (self.num_heads, self.key_dim), (self.num_value_heads, self.value_dim)
        return {"query": keys, "key": keys, "value": values}

    def _draw_conv(self, shape, dtype=None):
        """Draw the kernel of a convolution for each feature alone."""
        limit = self.conv_size**-0.5
        return keras.random.uniform(shape, -limit, limit, dtype=dtype)

    def kernels_to_adapt(self) -> dict[str, int]:
        names = (*self._heads(), *(("gate",) if self.use_gate else ()))
        return {**{f"{name}_kernel": 1 for name in names}, "output_kernel": 2}

    def call(
        self,
        query: Tensor,
        query_mask: Tensor = None,
        use_causal_mask: bool = True,
        mask: Tensor = None,
    ) -> Tensor:
        mask = mask if query_mask is None else query_mask
        self._check_call(query, mask, use_causal_mask)
        if mask is not None:  # the real steps first: neither convolution nor state meets padding
            mask = ops.broadcast_to(ops.cast(mask, "bool"), ops.shape(query)[:2])
            positions = real_positions(mask, query)
            query = gather_rows(zero_masked(query, mask), real_order(mask, positions))
        given, _ = self._given(query, self._conv_state(ops.shape(query)[0]))
        output = self._output(gated_delta_rule(*given, chunk_size=self.chunk_size), query)
        return output if mask is None else zero_masked(gather_rows(output, positions), mask)

    def initial_state(self, batch_size: Tensor) -> dict:
        """Return the state before the first step.

        It holds the matrix `S'` of each head, `memory (B, Hv, d, dv)`, and the last inputs of the
        convolutions, `conv (B, conv_size - 1, 2 H d + Hv dv)`.
        """
        batch_size = arguments.as_integer("batch_size", batch_size)
        dtype = accumulator_dtype(self.compute_dtype)
        shape = (batch_size, self.num_value_heads, self.key_dim, self.value_dim)
        state = {"memory": ops.zeros(shape, dtype)}
        if self.conv_size is not None:
            state["conv"] = self._conv_state(batch_size)
        return state

    def _conv_state(self, batch_size):
        if self.conv_size is None:
            return None
        return ops.zeros((batch_size, *self._conv_shape()), self.compute_dtype)

    def _conv_shape(self):
        return self.conv_size - 1, sum(math.prod(shape) for shape in self._heads().values())

    def step(self, query: Tensor, state: dict) -> tuple:
        """Return the output `(B, D)` of one step's inputs `(B, D)`, and the state after it."""
        arguments.check_built(self, "query_shape")
        query = self.cast(query)
        arguments.check_step("query", query.shape, self.input_size)
        rows = query.shape[0]
        expected = {"memory": (rows, self.num_value_heads, self.key_dim, self.value_dim)}
        if self.conv_size is not None:
            expected["conv"] = (rows, *self._conv_shape())
        arguments.check_parts("state", state, "`initial_state`", **expected)
        query = ops.expand_dims(query, 1)
        given, conv = self._given(query, state.get("conv"))
        given = (ops.squeeze(each, 1) for each in given)
        context, memory = delta_rule_step(*given, state["memory"])
        state = {"memory": memory} if conv is None else {"memory": memory, "conv": conv}
        return ops.squeeze(self._output(ops.expand_dims(context, 1), query), 1), state

    def _given(self, inputs, before):
        """Return what the delta rule reads, `(B, T, Hv, ...)`, and the last inputs of `conv`."""
        heads = self._heads()
        projected = self._project(inputs, *heads)
        if before is not None:
            steps = ops.shape(inputs)[1]
            flat = [ops.reshape(x, (*ops.shape(x)[:2], math.prod(x.shape[2:]))) for x in projected]
            padded = ops.concatenate([before, ops.concatenate(flat, axis=-1)], axis=1)
            kernels = [self.cast(getattr(self, f"{name}_conv")) for name in heads]
            flat = [ops.reshape(kernel, (self.conv_size, -1)) for kernel in kernels]
            kernel = ops.concatenate(flat, axis=-1)
            mixed = sum(padded[:, i : i + steps] * kernel[i] for i in range(self.conv_size))
            before = padded[:, steps:]
            ends = [math.prod(heads["query"]), 2 * math.prod(heads["query"])]
            parts = zip(ops.split(mixed, ends, axis=-1), projected, strict=True)
            projected = [ops.reshape(part, ops.shape(like)) for part, like in parts]
        query, key, value = (at_least_float32(ops.silu(x)) for x in projected)
        query, key = (self._repeat(unit_length(x)) for x in (query, key))
        decay, beta = (at_least_float32(x) for x in self._project(inputs, "decay", "beta"))
        rate = ops.softplus(decay + ops.cast(self.dt_bias, decay.dtype))
        log_decay = -ops.exp(ops.cast(self.a_log, decay.dtype)) * rate
        beta = ops.sigmoid(beta) * (2 if self.allow_neg_eigval else 1)
        return (query, key, value, log_decay, beta), before

    def _repeat(self, heads):
        """Return a head of queries or keys for each head of values."""
        times = self.num_value_heads // self.num_heads
        return heads if times == 1 else ops.repeat(heads, times, axis=2)

    def _output(self, context, inputs):
        """Return the output `(B, T, D)` of contexts `(B, T, Hv, dv)`."""
        gain = ops.cast(self.norm_gain, context.dtype)
        context = rms_normalize(context, gain, self.norm_eps)
        if self.use_gate:
            (gate,) = self._project(inputs, "gate")
            context = context * at_least_float32(ops.silu(gate))
        return self._project_to_output(ops.cast(context, self.compute_dtype))

    def _check_call(self, query, mask, use_causal_mask):
        if not use_causal_mask:
            raise ValueError(
                "GatedDeltaNet is causal; LinearAttention can read both directions. "
                f"Received: use_causal_mask={use_causal_mask}"
            )
        self._check(query, mask)

    @arguments.for_own_call
    def compute_output_spec(self, *args, **kwargs):
        of = arguments.call_arguments(self, args, kwargs)
        mask = of.mask if of.query_mask is None else of.query_mask
        self._check_call(of.query, mask, of.use_causal_mask)
        return keras.KerasTensor(of.query.shape, self.compute_dtype)


def unit_length(x: Tensor) -> Tensor:
    """Divide by the length of the last axis; zeros stay zeros."""
    return x * ops.rsqrt(ops.sum(ops.square(x), axis=-1, keepdims=True) + 1e-6)


def draw_a_log(shape: tuple, dtype: Any = None) -> Tensor:
    """Draw logarithms of rates from 1 to 16, as Mamba-2 does."""
    return ops.log(keras.random.uniform(shape, 1.0, 16.0, dtype=dtype))


def draw_dt_bias(shape: tuple, dtype: Any = None) -> Tensor:
    """Draw biases whose `softplus` is a time step between `SHORT` and `LONG`, evenly in its log."""
    exponent = keras.random.uniform(shape, math.log(SHORT), math.log(LONG), dtype=dtype)
    time_step = ops.exp(exponent)
    return time_step + ops.log(-ops.expm1(-time_step))
