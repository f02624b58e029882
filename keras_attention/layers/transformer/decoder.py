"""The decoder block of the Transformer (Vaswani et al. 2017)."""

import keras

from ...ops.masks import check_mask
from ...ops.types import Tensor
from .. import arguments
from ..recurrent.ssru import SSRU
from .encoder import TransformerBlock

AUTOREGRESSIONS = ("self-attention", "ssru")
SELF_ATTENTION_OPTIONS = ("positions", "window", "num_sinks", "use_forget_gate")


@keras.saving.register_keras_serializable("keras_attention")
class TransformerDecoder(TransformerBlock):
    """One block of a Transformer decoder: causal self-attention, attention to a memory, network.

    $$\\begin{aligned}
    y_t &= \\mathrm{LayerNorm}(x_t + \\mathrm{Attention}(x_t, x_{\\le t})) \\\\
    z_t &= \\mathrm{LayerNorm}(y_t + \\mathrm{Attention}(y_t, m)) \\\\
    u_t &= \\mathrm{LayerNorm}(z_t + \\mathrm{FeedForward}(z_t))
    \\end{aligned}$$

    with `norm="post"`, as published; for `norm="pre"` see `TransformerEncoder`. A block built
    without a memory `m`, as by `model.add`, is that of a language model: without cross-attention.
    `prepare_memory`, `initial_state` and `step` decode one word at a time.

    With `autoregression="ssru"`, an `SSRU` of width `D` stands in place of the self-attention,
    `y_t = LayerNorm(x_t + SSRU(x_{<= t}))`: a step then takes the same time however long the text.

    Args:
        *args: The arguments of `TransformerEncoder`, in its order. `positions`, `window` and
            `num_sinks` apply to the self-attention alone.
        autoregression: The sublayer that reads the earlier steps: `"self-attention"`, as published,
            or `"ssru"`.
        use_forget_gate: As in `MultiHeadAttention`, for the self-attention.
        **kwargs: The arguments of `TransformerEncoder`, by name.

    Call arguments:
        inputs: `(B, T, D)`.
        value: The memory `(B, S, Dv)`, or `None` for a block without cross-attention.
        inputs_mask: Boolean `(B, T)`, True = attend. Default: Keras' implicit mask. Padding at the
            end needs none.
        value_mask: Boolean `(B, S)`, True = attend. Default: Keras' implicit mask.
        attention_mask: As in `TransformerEncoder`.
        return_attention_scores: As in `TransformerEncoder`.
        training: As in `TransformerEncoder`.

    Returns:
        `(B, T, D)`; with `return_attention_scores` also a dictionary of the weights:
        `"self_attention"` `(B, H, T, T)`, if the block has self-attention, and, with a memory,
        `"cross_attention"` `(B, H, T, S)`.

    Raises:
        ValueError: As `TransformerEncoder`; if only one of build and call has a memory; and for
            options or a mask of the self-attention where there is none.

    Reference:
        Vaswani et al. 2017, section 3.1; Xiong et al. 2020, for `norm="pre"`; Kim et al. 2019,
        section 3.1, for the SSRU in a Transformer.

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

    def __init__(
        self,
        *args,
        autoregression: str = "self-attention",
        use_forget_gate: bool = False,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        self.use_forget_gate = arguments.check_flag("use_forget_gate", use_forget_gate)
        self.autoregression = arguments.check_choice(
            "autoregression", autoregression, AUTOREGRESSIONS
        )
        given = {
            name: getattr(self, name) for name in SELF_ATTENTION_OPTIONS if getattr(self, name)
        }
        if given and autoregression != "self-attention":
            raise ValueError(
                f"{', '.join(f'`{name}`' for name in SELF_ATTENTION_OPTIONS)} are options of the "
                f"self-attention, and autoregression={autoregression!r} has none. Received: {given}"
            )

    def build(self, inputs_shape, value_shape=None):
        shape = tuple(inputs_shape)
        self._note_inputs(shape)
        if self.autoregression == "ssru":
            both = (self.kernel_initializer, self.bias_initializer)
            options = {"name": "ssru", "dtype": self.dtype_policy}
            self._add(SSRU(shape[-1], *map(arguments.fresh, both), **options), shape)
        else:
            forget = {"use_forget_gate": self.use_forget_gate}
            self._add_attention("self_attention", shape, shape, **forget)
        self.cross_attention = None
        self.value_size = None
        if value_shape is not None:
            self._check_shapes(shape, value_shape)
            self.value_size = value_shape[-1]
            self._add_attention("cross_attention", shape, tuple(value_shape))
        self._add_feed_forward(shape)

    def call(
        self,
        inputs: Tensor,
        value: Tensor = None,
        inputs_mask: Tensor = None,
        value_mask: Tensor = None,
        attention_mask: Tensor = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        mask: Tensor = None,
    ) -> Tensor:
        mask = mask if inputs_mask is None else inputs_mask
        self._check_call(inputs, value, mask, value_mask, attention_mask)
        options = {"return_attention_scores": return_attention_scores, "training": training}
        options |= {"query_mask": mask}
        pairs = {"value_mask": mask, "attention_mask": attention_mask, "use_causal_mask": True}
        x, scores = self._cleared(inputs, mask), {}
        if self.autoregression == "ssru":
            (x,) = self._residual("ssru", x, lambda y: (self.ssru(y, mask),), training)
        else:
            x, scores["self_attention"] = self._attend("self_attention", x, **pairs, **options)
        if value is not None:
            x, scores["cross_attention"] = self._attend(
                "cross_attention", x, self._cast(value), value_mask=value_mask, **options
            )
        x = self._feed(x, training)
        return (x, scores) if return_attention_scores else x

    def prepare_memory(self, value: Tensor = None, value_mask: Tensor = None) -> dict | None:
        """Project the memory `(B, S, Dv)` once, for all steps; `None` where there is none."""
        arguments.check_built(self, "inputs_shape, value_shape")
        self._check_memory(None if value is None else value.shape)
        if value is None:
            return None
        return self.cross_attention.prepare_memory(self._cast(value), mask=value_mask)

    def initial_state(self, batch_size: Tensor, max_length: int | None = None) -> dict:
        """Return the state before the first step of at most `max_length`."""
        arguments.check_built(self, "inputs_shape, value_shape")
        if self.autoregression == "ssru":
            return self.ssru.initial_state(batch_size)
        return self.self_attention.initial_state(batch_size, max_length)

    def step(
        self,
        inputs: Tensor,
        memory: dict,
        state: dict,
        index: Tensor,
        attention_mask: Tensor = None,
        copies: int = 1,
    ) -> tuple:
        """Decode step `index` of inputs `(B, D)`, with the arguments of `MultiHeadAttention.step`.

        Returns:
            The output `(B, D)`; the weights by name, `"self_attention"` `(B, H, L)`, where `L` is
            the `max_length` of the state, and `"cross_attention"` `(B, H, S)`; and the state after
            the step.
        """
        arguments.check_built(self, "inputs_shape, value_shape")
        x, scores, cross = self._cast(inputs), {}, self.cross_attention
        if self.autoregression == "ssru":
            x, state = self._residual("ssru", x, lambda y: self.ssru.step(y, state))
        else:
            own = self.self_attention
            x, scores["self_attention"], state = self._residual(
                "self_attention",
                x,
                lambda y: own.step(y, None, state, index, attention_mask, copies=copies),
            )
        if cross is not None:
            x, scores["cross_attention"], _ = self._residual(
                "cross_attention", x, lambda y: cross.step(y, memory, {}, index, copies=copies)
            )
        return self._feed(x, False), scores, state

    @arguments.for_own_call
    def compute_output_spec(self, *args, **kwargs):
        given = arguments.call_arguments(self, args, kwargs)
        mask = given.mask if given.inputs_mask is None else given.inputs_mask
        self._check_call(given.inputs, given.value, mask, given.value_mask, given.attention_mask)
        outputs = keras.KerasTensor(given.inputs.shape, self.compute_dtype)
        if not given.return_attention_scores:
            return outputs
        batch_size, steps = given.inputs.shape[:2]
        read = {} if self.autoregression == "ssru" else {"self_attention": steps}
        read |= {} if given.value is None else {"cross_attention": given.value.shape[1]}
        shape = (batch_size, self.num_heads, steps)
        scores = {k: keras.KerasTensor((*shape, n), self.compute_dtype) for k, n in read.items()}
        return outputs, scores

    def compute_output_shape(self, inputs_shape, value_shape=None) -> tuple:
        if value_shape is not None:
            self._check_shapes(inputs_shape, value_shape)
        if self.built:
            self._check_memory(value_shape)
        return super().compute_output_shape(inputs_shape)

    def _check_call(self, inputs, value, inputs_mask, value_mask, attention_mask):
        self._check_inputs(inputs, inputs_mask)
        if attention_mask is not None and self.autoregression == "ssru":
            raise ValueError(
                "`attention_mask` belongs to the self-attention, which autoregression='ssru' has "
                "not; `inputs_mask` hides steps. Received: `attention_mask` of shape "
                f"{tuple(attention_mask.shape)}"
            )
        if value is None and value_mask is not None:
            raise ValueError(
                "`value_mask` belongs to a memory, `value`, and would be ignored without one. "
                f"Received: value=None, value_mask of shape {tuple(value_mask.shape)}"
            )
        if value is not None:
            self._check_shapes(inputs.shape, value.shape)
            check_mask(value_mask, tuple(value.shape[:2]), "value_mask")
        if self.built:
            self._check_memory(None if value is None else value.shape)

    def _check_shapes(self, inputs, value):
        arguments.check_shapes(inputs=(inputs, arguments.SEQUENCE), value=(value, arguments.MEMORY))

    def _check_memory(self, shape):
        if (shape is None) != (self.cross_attention is None):
            built = "without" if self.cross_attention is None else "with"
            raise ValueError(
                f"This block was built {built} a memory to attend to: call it in the same way. "
                f"Received: value={'None' if shape is None else tuple(shape)}"
            )
        if shape is not None:
            arguments.check_features("value", shape, self.value_size)
