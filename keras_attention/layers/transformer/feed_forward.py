"""The feed-forward network of a Transformer's blocks, plain or gated."""

from typing import Any

import keras
from keras import ops

from .. import arguments
from ..lora_and_quantization import AdaptableKernels

# Gated forms of the feed-forward network by name: the activation of the gate.
GATED = {"geglu": "gelu", "swiglu": "silu", "reglu": "relu", "glu": "sigmoid"}


@keras.saving.register_keras_serializable("keras_attention")
class FeedForward(AdaptableKernels, keras.layers.Layer):
    """Two products with an activation between them, at every position alike.

    $$y = f(x W + b)\\,W' + b', \\qquad\\text{gated:}\\quad y = (f(x W_g + b_g) \\circ (x W + b))\\,
      W' + b'$$

    The `activation` is Keras' or a gated form of `GATED`, whose gate and value stand side by side
    in `kernel`, so that both are one product. Shazeer 2020, "GLU variants improve Transformer".

    Weights: `kernel (D, F)` (gated `(D, 2F)`), `output_kernel (F, D)`, and with `use_bias` `bias`
    and `output_bias`.
    """

    def __init__(
        self,
        intermediate_dim: int,
        activation: Any = "relu",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.intermediate_dim = arguments.check_integer("intermediate_dim", intermediate_dim)
        self.gated = isinstance(activation, str) and activation in GATED
        self.activation = activation if self.gated else keras.activations.get(activation)
        self._function = keras.activations.get(GATED[activation] if self.gated else activation)
        self.use_bias = arguments.check_flag("use_bias", use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.supports_masking = True

    def build(self, input_shape):
        size, inner = input_shape[-1], self.intermediate_dim
        width = 2 * inner if self.gated else inner
        kernel, bias = self.kernel_initializer, self.bias_initializer
        # Gate and value are drawn apart, or their sizes would count as one in the initial scale.
        parts = [arguments.fresh(kernel) for _ in range(2 if self.gated else 1)]

        def side_by_side(shape, dtype=None):
            return ops.concatenate([part((size, inner), dtype=dtype) for part in parts], axis=-1)

        self._make_weight("kernel", (size, width), side_by_side)
        self.bias = self.output_bias = None
        if self.use_bias:
            self._make_weight("bias", (width,), bias)
        self._make_weight("output_kernel", (inner, size), arguments.fresh(kernel))
        if self.use_bias:
            self._make_weight("output_bias", (size,), bias)
        self.restore_quantization()

    def call(self, inputs):
        # One product over all rows: what a backend makes of (B, T, D) by (D, F) differs.
        shape = ops.shape(inputs)
        rows = ops.reshape(inputs, (-1, shape[-1]))
        hidden = self._affine(rows, self.kernel, self.bias)
        if self.gated:
            gate, hidden = ops.split(hidden, 2, axis=-1)
            hidden = self._function(gate) * hidden
        else:
            hidden = self._function(hidden)
        return ops.reshape(self._affine(hidden, self.output_kernel, self.output_bias), shape)

    def _affine(self, rows, kernel, bias):
        product = ops.matmul(rows, self.cast(kernel))
        return product if bias is None else product + self.cast(bias)

    def compute_output_shape(self, input_shape):
        return tuple(input_shape)
