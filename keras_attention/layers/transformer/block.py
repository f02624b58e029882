"""What the Transformer's encoder and decoder blocks have in common."""

from typing import Any

import keras
from keras import ops

from keras_attention.layers.attention.base import fresh
from keras_attention.layers.attention.multi_head import MultiHeadAttention
from keras_attention.layers.checks import (
    check_choice,
    check_flag,
    check_integer,
    check_number,
    check_rate,
    check_seed,
)
from keras_attention.layers.transformer.feed_forward import GATED, FeedForward
from keras_attention.ops.masks import check_mask

NORMS = ("post", "pre")
OF_SELF_ATTENTION = ("positions", "window", "num_sinks")
BITS = 10  # three decisions out of one number of 30 bits


@keras.saving.register_keras_serializable("keras_attention")
class PackedDropout(keras.layers.Dropout):
    """Dropout whose random numbers decide over three elements each.

    On a CPU the counter-based generators that make dropout reproducible cost more than all else in
    it: forward and backward over `(170, 24, 128)` took 2.2 ms of one core against 3.6 ms of
    `keras.layers.Dropout` in float32, and 2.1 ms against 4.1 ms in bfloat16. Ten bits decide over
    an element, so the rate is rounded to a 1024th, in half precision too, and what is kept is
    scaled by the rounded rate.

    Its arguments are those of `keras.layers.Dropout`, without `noise_shape`.
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs: Any):
        if round(check_rate("rate", rate) * 2**BITS) == 2**BITS:
            raise ValueError(
                f"`rate`, rounded to a {2**BITS}th, must be below 1. Received: rate={rate}"
            )
        super().__init__(rate, seed=check_seed(seed), **kwargs)

    def call(self, inputs, training=False):
        dropped = round(self.rate * 2**BITS)
        if not training or not dropped:
            return inputs
        kept = 1.0 - dropped / 2**BITS
        mask = self._bits(ops.shape(inputs), dropped)
        return inputs * (ops.cast(mask, inputs.dtype) * ops.cast(1.0 / kept, inputs.dtype))

    def _bits(self, shape, dropped):
        """Return booleans of a shape, False with probability `dropped / 1024`."""
        count = 1
        for size in shape:
            count = count * size
        words = keras.random.randint(
            ((count + 2) // 3,), 0, 2 ** (3 * BITS), dtype="int32", seed=self.seed_generator
        )
        lowest = 2**BITS - 1
        parts = [
            ops.bitwise_and(words, lowest) >= dropped,
            ops.bitwise_and(ops.right_shift(words, BITS), lowest) >= dropped,
            ops.right_shift(words, 2 * BITS) >= dropped,
        ]
        return ops.reshape(ops.concatenate(parts)[:count], shape)

    def get_config(self):
        config = super().get_config()
        config.pop("noise_shape", None)
        return config


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
        self.intermediate_dim = check_integer("intermediate_dim", intermediate_dim)
        self.num_heads = check_integer("num_heads", num_heads)
        self.key_dim = None if key_dim is None else check_integer("key_dim", key_dim)
        self.dropout = check_rate("dropout", dropout)
        given = dropout if attention_dropout is None else attention_dropout
        check_rate("attention_dropout", given)
        self.attention_dropout = attention_dropout
        is_gated = isinstance(activation, str) and activation in GATED
        self.activation = activation if is_gated else keras.activations.get(activation)
        self.norm = check_choice("norm", norm, NORMS)
        self.layer_norm_epsilon = check_number("layer_norm_epsilon", layer_norm_epsilon)
        self.use_bias = check_flag("use_bias", use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.num_key_value_heads = num_key_value_heads
        self.positions = positions
        self.window = window
        self.num_sinks = num_sinks
        self.normalizer = normalizer
        self.query_key_norm = query_key_norm
        self.seed = check_seed(seed)
        self.supports_masking = True
        self._residual_dropout = PackedDropout(dropout, seed=seed, dtype=self.dtype_policy)
        # The width comes with the inputs; all else is refused here.
        options = {name: getattr(self, name) for name in OF_SELF_ATTENTION}
        self._attention("self_attention", self.num_heads * (key_dim or 2), **options, seed=0)

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

    def _attention(self, name, size, seed=None, **options):
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
            seed=self.seed if seed is None else seed,
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
        options = {name: getattr(self, name) for name in OF_SELF_ATTENTION}
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

    def compute_output_shape(self, inputs_shape, value_shape=None) -> tuple:
        return tuple(inputs_shape)

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
