"""What the Transformer's encoder and decoder blocks have in common."""

import keras
from keras import ops

from keras_attention.layers.attention_mechanism import fresh
from keras_attention.layers.feed_forward import GATED, FeedForward
from keras_attention.layers.multi_head_attention import MultiHeadAttention
from keras_attention.layers.packed_dropout import PackedDropout
from keras_attention.ops.masks import check_mask

NORMS = ("post", "pre")


class TransformerBlock(keras.layers.Layer):
    """Base of the blocks: their options, and the residual connection around each sublayer.

    $$\\text{post:}\\; \\mathrm{LayerNorm}(x + f(x)) \\qquad
      \\text{pre:}\\; x + f(\\mathrm{LayerNorm}(x))$$

    Its arguments are those of `TransformerEncoder` and `TransformerDecoder`, documented there.
    """

    def __init__(
        self,
        intermediate_dim: int,
        num_heads: int,
        key_dim: int | None = None,
        dropout: float = 0.0,
        attention_dropout: float | None = None,
        activation="relu",
        norm: str = "post",
        layer_norm_epsilon: float = 1e-5,
        use_bias: bool = True,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        num_key_value_heads: int | None = None,
        positions: str | None = None,
        window: int | None = None,
        num_sinks: int = 0,
        normalizer: str = "softmax",
        query_key_norm: bool = False,
        seed: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        _check_positive("intermediate_dim", intermediate_dim)
        _check_positive("num_heads", num_heads)
        _check_positive("key_dim", key_dim, optional=True)
        for name, rate in (("dropout", dropout), ("attention_dropout", attention_dropout)):
            if rate is not None and not 0 <= rate < 1:
                raise ValueError(f"`{name}` must be in [0, 1). Received: {name}={rate}")
        if norm not in NORMS:
            raise ValueError(
                "`norm` must be 'post' (as published) or 'pre' (before each sublayer). "
                f"Received: norm={norm!r}"
            )
        self.intermediate_dim = intermediate_dim
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        is_gated = isinstance(activation, str) and activation in GATED
        self.activation = activation if is_gated else keras.activations.get(activation)
        self.norm = norm
        self.layer_norm_epsilon = layer_norm_epsilon
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.num_key_value_heads = num_key_value_heads
        self.positions = positions
        self.window = window
        self.num_sinks = num_sinks
        self.normalizer = normalizer
        self.query_key_norm = query_key_norm
        self.seed = seed
        self.supports_masking = True
        self._residual_dropout = PackedDropout(dropout, seed=seed, dtype=self.dtype_policy)

    def _add_attention(self, name, inputs_shape, value_shape, **options):
        """Make the attention `name` and its norm, for a stream of `inputs_shape`."""
        attention = self._attention(name, inputs_shape[-1], **options)
        attention.build(inputs_shape, value_shape)
        setattr(self, name, attention)
        self._add_norm(name, inputs_shape)

    def _add_feed_forward(self, inputs_shape):
        """Make the feed-forward network and its norm."""
        self.feed_forward = FeedForward(
            self.intermediate_dim,
            self.activation,
            use_bias=self.use_bias,
            kernel_initializer=self.kernel_initializer,
            bias_initializer=self.bias_initializer,
            name="feed_forward",
            dtype=self.dtype_policy,
        )
        self.feed_forward.build(inputs_shape)
        self._add_norm("feed_forward", inputs_shape)

    def _add_norm(self, name, inputs_shape):
        norm = keras.layers.LayerNormalization(
            epsilon=self.layer_norm_epsilon, name=f"{name}_norm", dtype=self.dtype_policy
        )
        norm.build(inputs_shape)
        setattr(self, f"{name}_norm", norm)

    def _attention(self, name, size, **options):
        if self.key_dim is None and size % self.num_heads:
            raise ValueError(
                "`num_heads` must divide the width of the inputs, or `key_dim` be given. "
                f"Received: num_heads={self.num_heads}, inputs of width {size}"
            )
        rate = self.dropout if self.attention_dropout is None else self.attention_dropout
        return MultiHeadAttention(
            self.num_heads,
            self.key_dim or size // self.num_heads,
            dropout=rate,
            use_bias=self.use_bias,
            output_shape=size,
            num_key_value_heads=self.num_key_value_heads,
            normalizer=self.normalizer,
            query_key_norm=self.query_key_norm,
            kernel_initializer=fresh(self.kernel_initializer),
            bias_initializer=self.bias_initializer,
            seed=self.seed,
            name=name,
            dtype=self.dtype_policy,
            **options,
        )

    def _add_self_attention(self, shape):
        if len(shape) != 3 or shape[-1] is None:
            raise ValueError(
                "The inputs must have the shape (batch, steps, features), the features known. "
                f"Received: inputs of shape {shape}"
            )
        self.input_size = shape[-1]
        options = {name: getattr(self, name) for name in ("positions", "window", "num_sinks")}
        self._add_attention("self_attention", shape, shape, **options)

    def _residual(self, x, norm, sublayer, training):
        """Return a sublayer's result, added to its input and normalised; and what it gives beside.

        Args:
            x: The stream, `(..., D)`.
            norm: The sublayer's layer normalisation.
            sublayer: Callable from the stream to a tuple, whose first is added to it.
            training: Whether dropout applies.
        """
        pre = self.norm == "pre"
        y, *rest = sublayer(norm(x) if pre else x)
        x = x + self._residual_dropout(y, training=training)
        return (x if pre else norm(x), *rest)

    def _feed(self, x, training=None):
        return self._residual(
            x, self.feed_forward_norm, lambda y: (self.feed_forward(y),), training
        )[0]

    def _check_inputs(self, inputs, mask):
        check_mask(mask, tuple(inputs.shape[:2]), "inputs_mask")
        if self.built and inputs.shape[-1] != self.input_size:
            raise ValueError(
                f"The block was built for inputs of {self.input_size} features. "
                f"Received: inputs of shape {tuple(inputs.shape)}"
            )

    def _cast(self, tensor):
        return ops.cast(tensor, self.compute_dtype)

    def compute_mask(self, inputs, previous_mask):
        return previous_mask

    def get_config(self):
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "activation": self.activation
            if isinstance(self.activation, str)
            else keras.activations.serialize(self.activation),
            "norm": self.norm,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "num_key_value_heads": self.num_key_value_heads,
            "positions": self.positions,
            "window": self.window,
            "num_sinks": self.num_sinks,
            "normalizer": self.normalizer,
            "query_key_norm": self.query_key_norm,
            "seed": self.seed,
        }


def _check_positive(name, value, optional=False):
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
