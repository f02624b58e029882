"""Attention pooling (Yang et al. 2016): a sequence becomes one vector."""

from typing import Any

import keras
from keras import ops

from ...ops.masks import check_mask, zero_masked
from ...ops.normalizers import masked_softmax
from ...ops.types import Tensor
from .. import arguments
from ..lora_and_quantization import AdaptableKernels


@keras.saving.register_keras_serializable("keras_attention")
class AttentionPooling(AdaptableKernels, keras.layers.Layer):
    """Sum a sequence to one vector, under weights that a learned vector asks for.

    `u_s = tanh(W h_s + b)`, `a = softmax_s(u_s . u_w)`, `v = sum_s a_s h_s`

    There is no query: the layer learns one, `u_w`, for all sequences. Use it in place of
    `GlobalAveragePooling1D`; the weights show what it reads.

    Weights: `kernel` `W (D, U)`, `bias` `b (U,)`, `context_vector` `u_w (U,)`.

    Args:
        units: Size `U` of the hidden layer.
        kernel_initializer, bias_initializer, context_initializer: Of `W`, `b` and `u_w`.
        **kwargs: Arguments of every Keras layer, and a regularizer and a constraint beside each
            initializer, such as `kernel_regularizer`.

    Call arguments:
        inputs: `(B, S, D)`.
        mask: Boolean `(B, S)`, True = attend. Default: the mask that the inputs carry.
        return_attention_scores: Whether to return the weights too.

    Returns:
        The pooled vectors `(B, D)`, zeros where all is masked; with `return_attention_scores` also
        the weights `(B, S)`.

    Reference:
        Yang et al. 2016, "Hierarchical attention networks for document classification", section
        2.2, equations 5 to 7 (words) and 8 to 10 (sentences). Their `W_w`, `b_w`, `u_w` are
        `kernel`, `bias`, `context_vector`.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import AttentionPooling

    states = np.random.normal(size=(2, 7, 12))    # seven encoder states
    vectors, scores = AttentionPooling(units=16)(states, return_attention_scores=True)
    assert tuple(vectors.shape) == (2, 12) and tuple(scores.shape) == (2, 7)
    ```
    """

    has_weight_options = True

    def __init__(
        self,
        units: int,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        context_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.units = arguments.check_integer("units", units)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.context_initializer = keras.initializers.get(context_initializer)
        self.supports_masking = True

    def build(self, inputs_shape):
        self._check(inputs_shape)
        shape = (inputs_shape[2], self.units)
        self._make_weight("kernel", shape, self.kernel_initializer, "kernel")
        self._make_weight("bias", (self.units,), self.bias_initializer, "bias")
        self._make_weight("context_vector", (self.units,), self.context_initializer, "context")
        self.restore_quantization()

    def call(
        self, inputs: Tensor, mask: Tensor = None, return_attention_scores: bool = False
    ) -> Tensor:
        self._check(inputs.shape, mask)
        inputs = zero_masked(inputs, mask)  # no NaN in the padding reaches a sum or a gradient
        hidden = ops.tanh(ops.matmul(inputs, self.cast(self.kernel)) + self.cast(self.bias))
        vector = ops.expand_dims(self.cast(self.context_vector), 1)
        scores = ops.squeeze(ops.matmul(hidden, vector), 2)
        weights = masked_softmax(scores, mask)
        pooled = ops.squeeze(ops.matmul(ops.expand_dims(weights, 1), inputs), 1)
        return (pooled, weights) if return_attention_scores else pooled

    def compute_mask(self, inputs, previous_mask=None):
        return None  # no steps are left to mask

    def compute_output_shape(self, inputs_shape):
        self._check(inputs_shape)
        return (inputs_shape[0], inputs_shape[2])

    @arguments.for_own_call
    def compute_output_spec(self, inputs, mask=None, return_attention_scores=False):
        self._check(inputs.shape, mask)
        scores = [inputs.shape[:2]] if return_attention_scores else []
        return arguments.specs([(inputs.shape[0], inputs.shape[2]), *scores], self.compute_dtype)

    def _check(self, shape, mask=None):
        arguments.check_shapes(inputs=(shape, arguments.SEQUENCE))
        if self.built:
            arguments.check_features("inputs", shape, self.kernel.shape[0])
        check_mask(mask, tuple(shape[:2]), "mask")
