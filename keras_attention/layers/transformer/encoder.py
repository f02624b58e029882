"""The encoder block of the Transformer, and the base of both blocks (Vaswani et al. 2017)."""

from typing import Any

import keras
from keras import ops

from ...ops.dropout import packed_dropout
from ...ops.masks import check_mask, zero_masked
from ...ops.shapes import sizes_of
from ...ops.types import Tensor
from .. import arguments
from ..attention.multi_head import MultiHeadAttention
from ..lora_and_quantization import AdaptableKernels

# The activation of the gate in each gated form of the feed-forward network.
GATED = {"geglu": "gelu", "swiglu": "silu", "reglu": "relu", "glu": "sigmoid"}
NORMS = ("post", "pre")
CROSS_ATTENTION_OPTIONS = (
    "use_bias",
    "num_key_value_heads",
    "normalizer",
    "sink_logits",
    "query_key_norm",
)
SELF_ATTENTION_OPTIONS = (*CROSS_ATTENTION_OPTIONS, "positions", "window", "num_sinks")


@keras.saving.register_keras_serializable("keras_attention")
class FeedForward(AdaptableKernels, keras.layers.Layer):
    """Two products with an activation `f` between them, the same at every position.

    `y = f(x W + b) W' + b'`; gated (Shazeer 2020), `y = (f(x W_g + b_g) * (x W + b)) W' + b'`

    Weights: `kernel (D, F)`, or `(D, 2F)` with the gate first; `output_kernel (F, D)`; and with
    `use_bias` `bias` and `output_bias`.
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
        first = arguments.side_by_side(kernel, 2 if self.gated else 1)
        self._make_weight("kernel", (size, width), first)
        self.bias = self.output_bias = None
        if self.use_bias:
            self._make_weight("bias", (width,), bias)
        self._make_weight("output_kernel", (inner, size), arguments.fresh(kernel))
        if self.use_bias:
            self._make_weight("output_bias", (size,), bias)
        self.restore_quantization()

    def call(self, inputs):
        # One product over all rows: backends differ in how they multiply (B, T, D) by (D, F).
        rows = ops.reshape(inputs, (-1, inputs.shape[-1]))
        hidden = self._affine(rows, self.kernel, self.bias)
        if self.gated:
            gate, hidden = ops.split(hidden, 2, axis=-1)
            hidden = self._function(gate) * hidden
        else:
            hidden = self._function(hidden)
        rows = self._affine(hidden, self.output_kernel, self.output_bias)
        return ops.reshape(rows, sizes_of(inputs))

    def _affine(self, rows, kernel, bias):
        product = ops.matmul(rows, self.effective_weight(kernel))
        return product if bias is None else product + self.cast(bias)

    def compute_output_shape(self, input_shape):
        return tuple(input_shape)


@keras.saving.register_keras_serializable("keras_attention")
class PackedDropout(keras.layers.Dropout):
    """`keras.layers.Dropout` with one random number for three elements: see `packed_dropout`.

    Under XLA on a CPU, Keras' layer makes a training step of a Transformer 8 % slower (ADR 18).
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs: Any):
        rate = arguments.check_rate("rate", rate)
        super().__init__(rate, seed=arguments.check_seed(seed), **kwargs)

    def call(self, inputs, training=False):
        if not training or not self.rate:
            return inputs
        return packed_dropout(inputs, self.rate, self.seed_generator)


class TransformerBlock(arguments.Configured, keras.layers.Layer):
    """Base of both blocks: options, and residuals `norm(x + f(x))` (post) or `x + f(norm(x))`."""

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
        sink_logits: bool = False,
        seed: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.intermediate_dim = arguments.check_integer("intermediate_dim", intermediate_dim)
        self.num_heads = arguments.check_integer("num_heads", num_heads)
        self.key_dim = None if key_dim is None else arguments.check_integer("key_dim", key_dim)
        self.dropout = arguments.check_rate("dropout", dropout)
        given = dropout if attention_dropout is None else attention_dropout
        arguments.check_rate("attention_dropout", given)
        self.attention_dropout = attention_dropout
        is_gated = isinstance(activation, str) and activation in GATED
        self.activation = activation if is_gated else keras.activations.get(activation)
        self.norm = arguments.check_choice("norm", norm, NORMS)
        self.layer_norm_epsilon = arguments.check_number("layer_norm_epsilon", layer_norm_epsilon)
        self.use_bias = arguments.check_flag("use_bias", use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.num_key_value_heads = num_key_value_heads
        self.positions = positions
        self.window = window
        self.num_sinks = num_sinks
        self.normalizer = normalizer
        self.query_key_norm = query_key_norm
        self.sink_logits = sink_logits
        self.seed = arguments.check_seed(seed)
        self.supports_masking = True
        self._residual_dropout = PackedDropout(dropout, seed=seed, dtype=self.dtype_policy)
        # The dtype policies of sublayers that a loaded file holds quantized, by name.
        self._quantized: dict[str, Any] = {}
        # The width is known once inputs are; all other wrong arguments raise an error here.
        self._attention("self_attention", self.num_heads * (key_dim or 2), seed=0)

    def get_config(self) -> dict:
        """Return the constructor arguments, and the policies of quantized sublayers."""
        config, policies = super().get_config(), dict(self._quantized)
        for each in self._flatten_layers(include_self=False, recursive=False):
            if each.quantization_mode is not None:
                policies[each.name] = each.dtype_policy
        if policies:
            of_name = {n: keras.dtype_policies.serialize(each) for n, each in policies.items()}
            config["quantized"] = of_name
        return config

    @classmethod
    def from_config(cls, config: dict) -> "TransformerBlock":
        config = dict(config)
        quantized = config.pop("quantized", {})
        block = super().from_config(config)
        block._quantized = {
            name: keras.dtype_policies.deserialize(each) for name, each in quantized.items()
        }
        return block

    def _add_attention(self, name, inputs_shape, value_shape, **options):
        attention = self._attention(name, inputs_shape[-1], self.seed, **options)
        self._add(attention, inputs_shape, value_shape)

    def _add_feed_forward(self, inputs_shape):
        feed_forward = FeedForward(
            self.intermediate_dim,
            self.activation,
            use_bias=self.use_bias,
            kernel_initializer=self.kernel_initializer,
            bias_initializer=self.bias_initializer,
            name="feed_forward",
            dtype=self.dtype_policy,
        )
        self._add(feed_forward, inputs_shape)

    def _add(self, sublayer, inputs_shape, *memory_shape):
        """Build a sublayer and its norm, and set both as attributes of their names."""
        norm = keras.layers.LayerNormalization(
            epsilon=self.layer_norm_epsilon, name=f"{sublayer.name}_norm", dtype=self.dtype_policy
        )
        if sublayer.name in self._quantized:
            sublayer.dtype_policy = self._quantized[sublayer.name]
        sublayer.build(inputs_shape, *memory_shape)
        norm.build(inputs_shape)
        setattr(self, sublayer.name, sublayer)
        setattr(self, norm.name, norm)

    def _attention(self, name, size, seed, **options):
        if self.key_dim is None and size % self.num_heads:
            raise ValueError(
                "`num_heads` must divide the width of the inputs, or `key_dim` be given. "
                f"Received: num_heads={self.num_heads}, inputs of width {size}"
            )
        names = SELF_ATTENTION_OPTIONS if name == "self_attention" else CROSS_ATTENTION_OPTIONS
        options = {each: getattr(self, each) for each in names} | options
        return MultiHeadAttention(
            self.num_heads,
            self.key_dim or size // self.num_heads,
            dropout=self.dropout if self.attention_dropout is None else self.attention_dropout,
            output_shape=size,
            kernel_initializer=arguments.fresh(self.kernel_initializer),
            bias_initializer=self.bias_initializer,
            seed=seed,
            name=name,
            dtype=self.dtype_policy,
            **options,
        )

    def _note_inputs(self, shape):
        arguments.check_shapes(inputs=(shape, arguments.SEQUENCE))
        self.input_size = shape[-1]

    def _residual(self, name, x, sublayer, training=False):
        """Add a sublayer's first result to its input and normalize; return all results."""
        pre, norm = self.norm == "pre", getattr(self, f"{name}_norm")
        y, *rest = sublayer(norm(x) if pre else x)
        # A map of policies may give sublayers another dtype than the block.
        x = x + self._cast(self._residual_dropout(y, training=training))
        return (x if pre else self._cast(norm(x)), *rest)

    def _attend(self, name, x, *memory, return_attention_scores=False, **options):
        """Add the attention `name` of inputs to themselves or a memory; return weights too."""

        def attend(y):
            read = memory or (y,)
            options["return_attention_scores"] = return_attention_scores
            result = getattr(self, name)(y, *read, **options)
            return result if return_attention_scores else (result, None)

        return self._residual(name, x, attend, options["training"])

    def _feed(self, x, training=None):
        return self._residual("feed_forward", x, lambda y: (self.feed_forward(y),), training)[0]

    def _check_inputs(self, inputs, mask):
        self._check_shape(inputs.shape)
        check_mask(mask, tuple(inputs.shape[:2]), "inputs_mask")

    def _check_shape(self, shape):
        arguments.check_shapes(inputs=(shape, arguments.SEQUENCE))
        if self.built:
            arguments.check_features("inputs", shape, self.input_size)

    def _cast(self, tensor):
        return ops.cast(tensor, self.compute_dtype)

    def _cleared(self, inputs, mask):
        """Return the inputs with zeros as padding: a NaN there would reach all gradients."""
        return zero_masked(self._cast(inputs), mask)

    def compute_output_shape(self, inputs_shape, value_shape=None) -> tuple:
        self._check_shape(inputs_shape)
        return tuple(inputs_shape)


@keras.saving.register_keras_serializable("keras_attention")
class TransformerEncoder(TransformerBlock):
    """One block of a Transformer encoder: self-attention, then a network at each position.

    $$\\begin{aligned}
    y &= \\mathrm{LayerNorm}(x + \\mathrm{Attention}(x, x)) \\\\
    z &= \\mathrm{LayerNorm}(y + \\mathrm{FeedForward}(y))
    \\end{aligned}$$

    with `norm="post"`, as published. With `norm="pre"`, `y = x + Attention(LayerNorm(x))`, which
    trains deep stacks without warm-up; such a stack needs a `LayerNormalization` at its end.

    Args:
        intermediate_dim: Size of the hidden layer of the feed-forward network.
        num_heads: Number of attention heads `H`.
        key_dim: Size of each head. Default: the width of the inputs over the heads.
        dropout: Rate of dropout on the result of each sublayer.
        attention_dropout: Rate at which attention weights are dropped. Default: `dropout`.
        activation: Activation of the feed-forward network: any Keras activation (`"relu"` as
            published), or a gated form, `"glu"`, `"reglu"`, `"geglu"` or `"swiglu"`.
        norm: Where layers are normalized: `"post"` or `"pre"`.
        layer_norm_epsilon: Number added to the variance in normalization.
        use_bias: Whether projections and feed-forward network have biases.
        kernel_initializer: Initializer of all kernels.
        bias_initializer: Initializer of all biases.
        num_key_value_heads: As in `MultiHeadAttention`.
        positions: As in `MultiHeadAttention`.
        window: As in `MultiHeadAttention`.
        num_sinks: As in `MultiHeadAttention`.
        normalizer: As in `MultiHeadAttention`.
        query_key_norm: As in `MultiHeadAttention`.
        sink_logits: As in `MultiHeadAttention`.
        seed: Seed of the dropouts.
        **kwargs: Arguments of every Keras layer.

    Call arguments:
        inputs: `(B, T, D)`.
        inputs_mask: Boolean `(B, T)`, True = attend. Default: Keras' implicit mask.
        attention_mask: Boolean `(B, T, T)`, the pairs that may attend, beside the other masks.
        return_attention_scores: Whether to return the weights.
        training: Whether dropout applies.

    Returns:
        `(B, T, D)`; with `return_attention_scores` also the weights `(B, H, T, T)`.

    Raises:
        ValueError: If an argument is out of its range, or shapes or masks do not fit.

    Reference:
        Vaswani et al. 2017, "Attention is all you need", section 3.1; Xiong et al. 2020, "On layer
        normalization in the Transformer architecture", for `norm="pre"`.

    Example:

    ```python
    import keras
    from keras_attention.layers import TransformerEncoder

    model = keras.Sequential([
        keras.layers.Embedding(1000, 64, mask_zero=True),
        TransformerEncoder(intermediate_dim=128, num_heads=4),
        TransformerEncoder(intermediate_dim=128, num_heads=4),
    ])
    print(model(keras.ops.array([[5, 6, 7, 0]])).shape)  # (1, 4, 64)
    ```
    """

    def build(self, inputs_shape):
        shape = tuple(inputs_shape)
        self._note_inputs(shape)
        self._add_attention("self_attention", shape, shape)
        self._add_feed_forward(shape)

    def call(
        self,
        inputs: Tensor,
        inputs_mask: Tensor = None,
        attention_mask: Tensor = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        mask: Tensor = None,
    ) -> Tensor:
        mask = mask if inputs_mask is None else inputs_mask
        self._check_inputs(inputs, mask)
        x, scores = self._attend(
            "self_attention",
            self._cleared(inputs, mask),
            query_mask=mask,
            value_mask=mask,
            attention_mask=attention_mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )
        x = self._feed(x, training)
        return (x, scores) if return_attention_scores else x

    @arguments.for_own_call
    def compute_output_spec(self, *args, **kwargs):
        given = arguments.call_arguments(self, args, kwargs)
        self._check_inputs(
            given.inputs, given.mask if given.inputs_mask is None else given.inputs_mask
        )
        shapes, (batch_size, steps) = [given.inputs.shape], given.inputs.shape[:2]
        if given.return_attention_scores:
            shapes.append((batch_size, self.num_heads, steps, steps))
        return arguments.specs(shapes, self.compute_dtype)
