"""The Transformer's encoder block (Vaswani et al. 2017)."""

import keras

from keras_attention.layers.transformer.block import TransformerBlock


@keras.saving.register_keras_serializable("keras_attention")
class TransformerEncoder(TransformerBlock):
    """One block of a Transformer encoder: self-attention, then a network at each position.

    $$\\begin{aligned}
    y &= \\mathrm{LayerNorm}(x + \\mathrm{Attention}(x, x)) \\\\
    z &= \\mathrm{LayerNorm}(y + \\mathrm{FeedForward}(y))
    \\end{aligned}$$

    with `norm="post"`, as published. With `norm="pre"` each sublayer reads the normalised stream
    and adds to the stream itself, `y = x + Attention(LayerNorm(x))`, which trains deep stacks
    without warm-up; such a stack wants one more `LayerNormalization` at its end. Dropout is on the
    result of each sublayer, before it is added.

    One layer is one block; a stack is so many of them.

    Args:
        intermediate_dim: Size of the hidden layer of the feed-forward network.
        num_heads: Number of attention heads `H`.
        key_dim: Size of each head. Default: the width of the inputs over the heads.
        dropout: Rate of dropout on the result of each sublayer.
        attention_dropout: Rate at which attention weights are dropped. Default: `dropout`.
        activation: Of the feed-forward network: any Keras activation (`"relu"` as published,
            `"gelu"`), or a gated form, `"glu"`, `"reglu"`, `"geglu"` or `"swiglu"`.
        norm: `"post"` or `"pre"`.
        layer_norm_epsilon: Added to the variance.
        use_bias: Whether projections and feed-forward network have biases.
        kernel_initializer: Initializer of all kernels.
        bias_initializer: Initializer of all biases.
        num_key_value_heads: Heads of keys and values, shared by groups of queries' heads.
            Default: `num_heads`. See `MultiHeadAttention`, also for the next five.
        positions: How positions enter the scores: `None`, `"rotary"`, `"alibi"` or `"relative"`.
        window: How far a position attends to either side. Default: everywhere.
        num_sinks: First places that stay in sight of a `window`.
        normalizer: What makes scores to weights, `"softmax"` and others.
        query_key_norm: Whether queries and keys are normalised.
        seed: Seed of the dropouts.
        **kwargs: Arguments of every Keras layer.

    Call arguments:
        inputs: `(B, T, D)`.
        inputs_mask: Boolean `(B, T)`, True = attend. Keras' implicit mask of the inputs is taken
            where none is given.
        attention_mask: Boolean `(B, T, T)`, which pairs may attend, beside the other masks.
        return_attention_scores: Whether to return the weights too.
        training: Whether dropout applies.

    Returns:
        `(B, T, D)`; with `return_attention_scores`, a tuple of it and the weights `(B, H, T, T)`.

    Raises:
        ValueError: Where an argument is out of its range, or shapes or masks do not fit.

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
        self._add_self_attention(shape)
        self._add_feed_forward(shape)

    def call(
        self,
        inputs,
        inputs_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        mask=None,
    ):
        mask = mask if inputs_mask is None else inputs_mask
        self._check_inputs(inputs, mask)

        def attend(x):
            result = self.self_attention(
                x,
                x,
                query_mask=mask,
                value_mask=mask,
                attention_mask=attention_mask,
                return_attention_scores=return_attention_scores,
                training=training,
            )
            return result if return_attention_scores else (result,)

        x, *scores = self._residual(self._cast(inputs), self.self_attention_norm, attend, training)
        x = self._feed(x, training)
        return (x, scores[0]) if return_attention_scores else x

    def compute_output_spec(
        self,
        inputs,
        inputs_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        mask=None,
    ):
        self._check_inputs(inputs, mask if inputs_mask is None else inputs_mask)
        outputs = keras.KerasTensor(inputs.shape, self.compute_dtype)
        if not return_attention_scores:
            return outputs
        batch_size, steps = inputs.shape[:2]
        shape = (batch_size, self.num_heads, steps, steps)
        return outputs, keras.KerasTensor(shape, self.compute_dtype)
