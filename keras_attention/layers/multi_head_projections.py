"""The weights of multi-head attention, and the products of inputs with them."""

import math

import keras
from keras import ops

from keras_attention.layers.attention_mechanism import fresh
from keras_attention.ops.positions import alibi_slopes, relative_buckets, rotate
from keras_attention.ops.reach import Span

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
        if len(names) > 1 and inputs.shape[1] == 1:
            # A step of decoding: to lay the kernels side by side would take as long as it saves.
            return [self.project(inputs, name)[0] for name in names]
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

    def _output(self, context):
        return self.project_output(ops.transpose(context, (0, 2, 1, 3)))

    def _project_inputs(self, query, value, key, first=0):
        """Return queries `(B, H, T, d)`, and keys and values `(B, G, S, d)`, ready to multiply."""
        if value is query and key is None:
            query, key, value = self.project(query, "query", "key", "value")
            return self._queries(query, first), self._keys(key, first), _heads_first(value)
        query = self._project_query(query, first)
        return query, *self._project_memory(value, value if key is None else key)

    def _project_query(self, query, first=0):
        return self._queries(self.project(query, "query")[0], first)

    def _project_memory(self, value, key):
        if key is value:
            key, value = self.project(value, "key", "value")
        else:
            (key,), (value,) = self.project(key, "key"), self.project(value, "value")
        return self._keys(key, 0), _heads_first(value)

    def _queries(self, query, first):
        query = self._place(query, first, "query_gain")
        return _heads_first(query * ops.cast(self.key_dim**-0.5, query.dtype))

    def _keys(self, key, first):
        return _heads_first(self._place(key, first, "key_gain"))

    def _place(self, heads, first, gain):
        """Normalise and turn `(B, T, H, d)`, whose first place is `first`."""
        if self.query_key_norm:
            heads = _root_mean_square_norm(heads, self.cast(getattr(self, gain)))
        if self.positions == "rotary":
            places = Span(first, ops.shape(heads)[1]).places()
            heads = rotate(heads, ops.expand_dims(places, 1), self.max_wavelength)
        return heads

    def _bias_table(self, first, stop, causal):
        """Return what distances add to the scores, `(H, stop - first)`, or `None`."""
        if self.positions not in ("alibi", "relative"):
            return None
        distances = Span(first, stop - first).places()
        if self.positions == "alibi":
            slopes = ops.expand_dims(alibi_slopes(self.num_heads), 1)
            return -slopes * ops.cast(ops.abs(distances), "float32")
        buckets = relative_buckets(distances, self.num_buckets, self.max_distance, not causal)
        table = ops.take(ops.convert_to_tensor(self.relative_bias), buckets, axis=0)
        return ops.transpose(table)

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


def without_padding(query, value, key, query_mask, value_mask):
    """Put zeros where a mask hides an input: whatever stands there, no product overflows."""

    def clear(tensor, mask):
        if tensor is None or mask is None:
            return tensor
        return ops.where(ops.expand_dims(mask, -1), tensor, ops.zeros_like(tensor))

    cleared = clear(value, value_mask)
    is_same = value is query and value_mask is query_mask
    key = cleared if key is value else clear(key, value_mask)
    return cleared if is_same else clear(query, query_mask), cleared, key


def rank_4(mask):
    """Give an attention mask `(T, S)`, `(B, T, S)` or `(B, H, T, S)` four axes."""
    if mask is None or len(mask.shape) == 4:
        return mask
    return ops.expand_dims(mask, (0, 1) if len(mask.shape) == 2 else 1)


def _heads_first(heads):
    return ops.transpose(heads, (0, 2, 1, 3))


def _root_mean_square_norm(heads, gain):
    squares = ops.mean(ops.square(ops.cast(heads, "float32")), axis=-1, keepdims=True)
    return heads * ops.cast(ops.rsqrt(squares + 1e-6), heads.dtype) * gain
