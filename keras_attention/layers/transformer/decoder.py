"""The Transformer's decoder block (Vaswani et al. 2017)."""

import keras

from keras_attention.layers.transformer.block import TransformerBlock
from keras_attention.ops.masks import check_mask


@keras.saving.register_keras_serializable("keras_attention")
class TransformerDecoder(TransformerBlock):
    """One block of a Transformer decoder: causal self-attention, attention to a memory, network.

    $$\\begin{aligned}
    y_t &= \\mathrm{LayerNorm}(x_t + \\mathrm{Attention}(x_t, x_{\\le t})) \\\\
    z_t &= \\mathrm{LayerNorm}(y_t + \\mathrm{Attention}(y_t, m)) \\\\
    u_t &= \\mathrm{LayerNorm}(z_t + \\mathrm{FeedForward}(z_t))
    \\end{aligned}$$

    with `norm="post"`, as published; with `norm="pre"` each sublayer reads the normalised stream
    and adds to the stream itself, and a stack wants one more `LayerNormalization` at its end. The
    memory `m`, commonly the encoder's last output, is read as it is. Dropout is on the result of
    each sublayer, before it is added.

    A block that is built without a memory, as by `model.add`, has no cross-attention: a language
    model's block.

    One word at a time, with the memory's keys and values projected once and those of the words
    before kept:

    ```
    memory = block.prepare_memory(value, value_mask)               # None without cross-attention
    state  = block.initial_state(batch_size, max_length)
    output, scores, state = block.step(inputs, memory, state, index)        # inputs (B, D)
    ```

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
        positions: How positions enter the scores of the self-attention: `None`, `"rotary"`,
            `"alibi"` or `"relative"`.
        window: How far back a position attends in the self-attention. Default: everywhere.
        num_sinks: First places that stay in sight of a `window`.
        normalizer: What makes scores to weights, `"softmax"` and others.
        query_key_norm: Whether queries and keys are normalised.
        seed: Seed of the dropouts.
        **kwargs: Arguments of every Keras layer.

    Call arguments:
        inputs: `(B, T, D)`.
        value: The memory `(B, S, Dv)`, or `None` for a block without cross-attention.
        inputs_mask: Boolean `(B, T)`, True = attend. Keras' implicit mask of the inputs is taken
            where none is given. What follows a position is never attended to, so padding at the
            end needs no mask.
        value_mask: Boolean `(B, S)`, True = attend. Keras' implicit mask of the memory is taken
            where none is given.
        attention_mask: Boolean `(B, T, T)`, which pairs of the inputs may attend, beside the
            other masks.
        return_attention_scores: Whether to return the weights too.
        training: Whether dropout applies.

    Returns:
        `(B, T, D)`; with `return_attention_scores`, a tuple of it and a dictionary of the weights,
        `"self_attention"` `(B, H, T, T)` and, with a memory, `"cross_attention"` `(B, H, T, S)`.

    Raises:
        ValueError: Where an argument is out of its range, shapes or masks do not fit, or a memory
            is given to a block that was built without one, or the other way round.

    Reference:
        Vaswani et al. 2017, "Attention is all you need", section 3.1; Xiong et al. 2020, "On layer
        normalization in the Transformer architecture", for `norm="pre"`.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import TransformerDecoder

    words = np.random.normal(size=(2, 5, 16)).astype("float32")
    memory = np.random.normal(size=(2, 7, 16)).astype("float32")
    decoder = TransformerDecoder(intermediate_dim=32, num_heads=4)
    outputs, scores = decoder(words, memory, return_attention_scores=True)
    print(outputs.shape, scores["cross_attention"].shape)  # (2, 5, 16) (2, 4, 5, 7)
    ```
    """

    def build(self, inputs_shape, value_shape=None):
        shape = tuple(inputs_shape)
        self._add_self_attention(shape)
        self.cross_attention = None
        self.value_size = None
        if value_shape is not None:
            _check_value(shape, value_shape)
            self.value_size = value_shape[-1]
            self._add_attention("cross_attention", shape, tuple(value_shape))
        self._add_feed_forward(shape)

    def call(
        self,
        inputs,
        value=None,
        inputs_mask=None,
        value_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        mask=None,
    ):
        mask = mask if inputs_mask is None else inputs_mask
        self._check_call(inputs, value, mask, value_mask)
        options = {"return_attention_scores": return_attention_scores, "training": training}
        scores = {}

        def attend_to_itself(x):
            result = self.self_attention(
                x,
                x,
                query_mask=mask,
                value_mask=mask,
                attention_mask=attention_mask,
                use_causal_mask=True,
                **options,
            )
            return result if return_attention_scores else (result,)

        def attend_to_memory(x):
            result = self.cross_attention(
                x, self._cast(value), query_mask=mask, value_mask=value_mask, **options
            )
            return result if return_attention_scores else (result,)

        x, *weights = self._residual(
            self._cast(inputs), self.self_attention_norm, attend_to_itself, training
        )
        scores["self_attention"] = weights
        if value is not None:
            x, *weights = self._residual(x, self.cross_attention_norm, attend_to_memory, training)
            scores["cross_attention"] = weights
        x = self._feed(x, training)
        if not return_attention_scores:
            return x
        return x, {name: weights[0] for name, weights in scores.items()}

    def prepare_memory(self, value=None, value_mask=None):
        """Project the memory's keys and values, which every step reads.

        Args:
            value: `(B, S, Dv)`, or `None` for a block without cross-attention.
            value_mask: Boolean `(B, S)`, True = attend, or `None`.

        Returns:
            What `step` takes as `memory`: tensors with the batch first, or `None`.
        """
        self._check_built()
        self._check_memory(value)
        if value is None:
            return None
        return self.cross_attention.prepare_memory(self._cast(value), mask=value_mask)

    def initial_state(self, batch_size, max_length: int) -> dict:
        """Return the state before the first step, with room for `max_length` steps."""
        self._check_built()
        return self.self_attention.initial_state(batch_size, max_length)

    def step(self, inputs, memory, state, index):
        """Decode one step.

        Args:
            inputs: `(B, D)`.
            memory: What `prepare_memory` gave.
            state: What `initial_state` or the step before gave.
            index: The step's number, an integer or a scalar tensor.

        Returns:
            The output `(B, D)`; the weights by name, as of a call, `(B, H, L)` over the `L` steps
            that the state has room for and `(B, H, S)`; and the state after the step.
        """
        self._check_built()
        scores = {}

        def attend_to_itself(x):
            return self.self_attention.step(x, None, state, index)

        def attend_to_memory(x):
            return self.cross_attention.step(x, memory, {}, index)

        x, scores["self_attention"], state = self._residual(
            self._cast(inputs), self.self_attention_norm, attend_to_itself, False
        )
        if self.cross_attention is not None:
            x, scores["cross_attention"], _ = self._residual(
                x, self.cross_attention_norm, attend_to_memory, False
            )
        return self._feed(x, False), scores, state

    def compute_output_spec(
        self,
        inputs,
        value=None,
        inputs_mask=None,
        value_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        mask=None,
    ):
        self._check_call(inputs, value, mask if inputs_mask is None else inputs_mask, value_mask)
        outputs = keras.KerasTensor(inputs.shape, self.compute_dtype)
        if not return_attention_scores:
            return outputs
        batch_size, steps = inputs.shape[:2]

        def weights(memory_steps):
            shape = (batch_size, self.num_heads, steps, memory_steps)
            return keras.KerasTensor(shape, self.compute_dtype)

        scores = {"self_attention": weights(steps)}
        if value is not None:
            scores["cross_attention"] = weights(value.shape[1])
        return outputs, scores

    def _check_call(self, inputs, value, inputs_mask, value_mask):
        self._check_inputs(inputs, inputs_mask)
        if value is None and value_mask is not None:
            raise ValueError(
                "`value_mask` belongs to a memory, `value`, and would be ignored without. "
                f"Received: value=None, value_mask of shape {tuple(value_mask.shape)}"
            )
        if value is not None:
            _check_value(inputs.shape, value.shape)
            check_mask(value_mask, tuple(value.shape[:2]), "value_mask")
        if self.built:
            self._check_memory(value)

    def _check_memory(self, value):
        if (value is None) != (self.cross_attention is None):
            built = "without" if self.cross_attention is None else "with"
            raise ValueError(
                f"This block was built {built} a memory to attend to, and is called so ever "
                f"after. Received: value={'None' if value is None else tuple(value.shape)}"
            )
        if value is not None and value.shape[-1] != self.value_size:
            raise ValueError(
                f"The block was built for a memory of {self.value_size} features. "
                f"Received: value of shape {tuple(value.shape)}"
            )

    def _check_built(self):
        if not self.built:
            raise ValueError(
                "TransformerDecoder has no weights yet. Call it once, or "
                "`build(inputs_shape, value_shape)`, before it takes steps."
            )


def _check_value(inputs, value):
    shapes = f"Received: inputs {tuple(inputs)}, value {tuple(value)}"
    if len(value) != 3 or value[-1] is None:
        raise ValueError(
            f"The memory must have the shape (batch, steps, features), the features known. {shapes}"
        )
    if None not in (inputs[0], value[0]) and inputs[0] != value[0]:
        raise ValueError(f"Inputs and memory must have the same batch size. {shapes}")
