"""Projections from features to heads and back, of the layers that attend in several heads."""

import math

from keras import ops

from ...ops.heads import project_from_heads, project_to_heads
from ...ops.masks import check_mask
from .. import arguments
from ..lora_and_quantization import AdaptableKernels


class HeadProjections(AdaptableKernels):
    """Adds projections by name: a `name_kernel`, and a `name_bias` where the layer has biases.

    A layer has a `kernel_initializer`, and with `use_bias` a `bias_initializer`.
    """

    use_bias = False

    def _add_projection(self, name, inputs, outputs, as_matrix=False):
        """Add `name_kernel` of shape `inputs + outputs` and `name_bias` of shape `outputs`.

        With `as_matrix`, the kernel is drawn as a matrix from all inputs to all outputs.
        """
        initializer = arguments.fresh(self.kernel_initializer)

        def draw_matrix(shape, dtype=None):
            matrix = (math.prod(inputs), math.prod(outputs))
            return ops.reshape(initializer(matrix, dtype=dtype), shape)

        draw = draw_matrix if as_matrix else initializer
        self._make_weight(f"{name}_kernel", (*inputs, *outputs), draw, "kernel")
        if self.use_bias:
            bias = arguments.fresh(self.bias_initializer)
            self._make_weight(f"{name}_bias", outputs, bias, "bias")

    def _project(self, inputs, *names):
        """Return the named projections of `(B, T, D)`, each `(B, T, heads, size)`."""
        kernels = [self.effective_weight(getattr(self, f"{name}_kernel")) for name in names]
        biases = [self.cast(getattr(self, f"{name}_bias")) for name in names if self.use_bias]
        return project_to_heads(inputs, kernels, biases)

    def _project_to_output(self, heads):
        """Return the output `(B, T, ...)` of heads `(B, T, H, d)`."""
        bias = self.cast(self.output_bias) if self.use_bias else None
        return project_from_heads(heads, self.effective_weight(self.output_kernel), bias)


class SelfAttention(HeadProjections):
    """What layers share whose one input is `(B, T, D)`, and whose output has the same shape."""

    has_weight_options = True

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def _check(self, query, mask):
        """Raise a ValueError unless a query `(B, T, D)` and its mask fit the layer."""
        self._check_shape(query.shape)
        check_mask(mask, tuple(query.shape[:2]), "query_mask")

    def _check_shape(self, shape):
        arguments.check_shapes(query=(tuple(shape), arguments.SEQUENCE))
        if self.built:
            arguments.check_features("query", shape, self.input_size)

    def compute_mask(self, inputs, previous_mask):
        return previous_mask

    def compute_output_shape(self, query_shape) -> tuple:
        self._check_shape(query_shape)
        return tuple(query_shape)
