"""The weights of multi-head attention, and the products of inputs with them."""

import math

import keras
from keras import ops

from keras_attention.layers.attention_mechanism import fresh

REGULARIZERS = ("kernel_regularizer", "bias_regularizer")
CONSTRAINTS = ("kernel_constraint", "bias_constraint")


class HeadProjections(keras.layers.Layer):
    """A layer that projects queries, keys and values to heads, and heads to an output.

    The weights have the order and the shapes of `keras.layers.MultiHeadAttention`. Glorot's
    initialisation counts the features and the outputs of all heads, the matrix that a kernel is.
    """

    def __init__(
        self,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)

    def add_projection(self, name, inputs, outputs):
        """Make `name_kernel` of shape `inputs + outputs` and `name_bias` of shape `outputs`."""
        initializer = fresh(self.kernel_initializer)
        matrix = (math.prod(inputs), math.prod(outputs))

        def initialize(shape, dtype):
            return ops.reshape(initializer(matrix, dtype=dtype), shape)

        kernel = self.add_weight(
            (*inputs, *outputs),
            initializer=initialize,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
            name=f"{name}_kernel",
        )
        setattr(self, f"{name}_kernel", kernel)
        if self.use_bias:
            bias = self.add_weight(
                outputs,
                initializer=fresh(self.bias_initializer),
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
                name=f"{name}_bias",
            )
            setattr(self, f"{name}_bias", bias)

    def project(self, inputs, *names):
        """Return the products of `(B, T, D)` with kernels by name, each `(B, T, heads, size)`."""
        shapes = [tuple(getattr(self, f"{name}_kernel").shape[1:]) for name in names]
        kernels = [self._matrix(f"{name}_kernel", inputs.shape[-1]) for name in names]
        biases = [self._matrix(f"{name}_bias", 1)[0] for name in names if self.use_bias]
        sizes = [math.prod(shape) for shape in shapes]
        # One product for all: they read the same inputs, and share the inputs' gradient.
        kernel = kernels[0] if len(names) == 1 else ops.concatenate(kernels, axis=1)
        bias = None if not biases else ops.concatenate(biases) if biases[1:] else biases[0]
        products = _dense(inputs, kernel, bias)
        steps = ops.shape(products)[:2]
        places = [sum(sizes[: place + 1]) for place in range(len(sizes) - 1)]
        parts = ops.split(products, places, axis=-1) if places else [products]
        return [
            ops.reshape(part, (*steps, *shape)) for part, shape in zip(parts, shapes, strict=True)
        ]

    def project_output(self, context):
        """Return the output `(B, T, ...)` of contexts `(B, T, H, dv)`."""
        batch_size, steps, heads, size = ops.shape(context)
        context = ops.reshape(context, (batch_size, steps, heads * size))
        bias = self._matrix("output_bias", 1)[0] if self.use_bias else None
        output = _dense(context, self._matrix("output_kernel", heads * size), bias)
        return ops.reshape(output, (batch_size, steps, *self.output_kernel.shape[2:]))

    def cast(self, tensor):
        """Return a weight or an input in the compute dtype, inside and outside of `__call__`."""
        return ops.cast(tensor, self.compute_dtype)

    def _matrix(self, name, rows):
        return ops.reshape(self.cast(getattr(self, name)), (rows, -1))

    def get_config(self):
        config = {**super().get_config(), "use_bias": self.use_bias}
        for name in ("kernel_initializer", "bias_initializer"):
            config[name] = keras.initializers.serialize(getattr(self, name))
        for name in REGULARIZERS:
            config[name] = keras.regularizers.serialize(getattr(self, name))
        for name in CONSTRAINTS:
            config[name] = keras.constraints.serialize(getattr(self, name))
        return config


def _dense(inputs, kernel, bias):
    """Return `x W + b` of `(B, T, D)`, as one product of matrices."""
    batch_size, steps, features = ops.shape(inputs)
    rows = ops.matmul(ops.reshape(inputs, (batch_size * steps, features)), kernel)
    rows = rows if bias is None else rows + bias
    return ops.reshape(rows, (batch_size, steps, kernel.shape[1]))
