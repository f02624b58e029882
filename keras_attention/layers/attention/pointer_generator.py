"""The pointer-generator's mixture (See, Liu and Manning 2017)."""

from typing import Any

import keras
from keras import ops, tree

from ...ops.crossentropy import smoothed_crossentropy
from ...ops.masks import check_mask, zero_masked
from ...ops.types import Tensor, at_least_float32
from .. import arguments

# The least probability, of a word that neither part can give.
SMALLEST = 1e-30


@keras.saving.register_keras_serializable("keras_attention")
class PointerGenerator(arguments.Configured, keras.layers.Layer):
    """Mix words from the vocabulary with words copied from the source.

    `p_gen = sigmoid(w_h . c_t + w_s . s_t + w_x . x_t + b)`,
    `P(w) = p_gen P_vocab(w) + (1 - p_gen) sum_(s: x_s = w) a_ts`

    `P_vocab` is the softmax of the logits, `a_t` the attention weights, `c_t` the context, `s_t`
    the decoder's state and `x_t` its input. The ids `V`, `V + 1`, ... number the unknown words of
    each source. Under mixed precision give it `dtype="float32"`, as any last layer.

    Weights: `context_vector` `w_h (Dc,)`, `state_vector` `w_s (Ds,)`, `input_vector` `w_x (Dx,)`,
    `bias` `b ()`.

    Args:
        kernel_initializer, bias_initializer: Of `w_h`, `w_s` and `w_x`, and of `b`.
        **kwargs: Arguments of every Keras layer, and a regularizer and a constraint beside each
            initializer, such as `kernel_regularizer`.

    Call arguments:
        logits: Scores of the vocabulary's words `(B, T, V)`.
        scores: Attention weights `(B, T, S)`, zero at padding.
        source_ids: Integer ids of the source's words in the extended vocabulary `(B, S)`. Positions
            whose id lies outside (-1, for instance) are never copied.
        context, state, inputs: `(B, T, Dc)`, `(B, T, Ds)` and `(B, T, Dx)`; the inputs are most
            often the embedded word before.
        mask: Boolean `(B, T)`, True = real; what padding holds reaches no gradient. Default:
            the mask that the logits carry, which Keras passes as `logits_mask`.
        extra_size, return_p_gen: How many ids follow the vocabulary; whether to return `p_gen` too.

    Returns:
        Log probabilities `(B, T, V + extra_size)`; with `return_p_gen` also `p_gen` `(B, T)`. The
        probabilities add up to 1 if the weights of the positions that can be copied do; to `p_gen`
        if there is nothing to copy.

    Reference:
        See, Liu and Manning 2017, "Get to the point: summarization with pointer-generator
        networks", section 2.2, equations 8 and 9. Their `w_h*`, `w_s`, `w_x`, `b_ptr` are
        `context_vector`, `state_vector`, `input_vector`, `bias`.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import PointerGenerator

    logits = np.random.normal(size=(1, 2, 5))              # two steps, five known words
    scores = np.array([[[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]]])
    source_ids = np.array([[5, 3, 0]])                     # unknown, known, padding
    context, state, inputs = (np.random.normal(size=(1, 2, size)) for size in (4, 6, 3))
    log_p, p_gen = PointerGenerator()(
        logits, scores, source_ids, context, state, inputs, extra_size=1, return_p_gen=True
    )
    assert tuple(log_p.shape) == (1, 2, 6)
    np.testing.assert_allclose(np.exp(log_p[0, 0, 5]), 0.9 * (1 - p_gen[0, 0]), rtol=1e-4)
    ```
    """

    has_weight_options = True

    def __init__(
        self,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.supports_masking = True

    def build(
        self, logits_shape, scores_shape, source_ids_shape, context_shape, state_shape, inputs_shape
    ):
        steps = {"logits": logits_shape, "context": context_shape}
        steps |= {"state": state_shape, "inputs": inputs_shape}
        _check_shapes(steps, scores_shape, source_ids_shape)
        self.sizes = {name: shape[-1] for name, shape in steps.items()}
        # Not cast to the compute dtype: gate and gradient are at least float32.
        for name, of in (("context", "context"), ("state", "state"), ("input", "inputs")):
            shape, initializer = (self.sizes[of],), arguments.fresh(self.kernel_initializer)
            self._make_weight(f"{name}_vector", shape, initializer, "kernel", autocast=False)
        self._make_weight("bias", (), self.bias_initializer, "bias", autocast=False)

    def call(
        self,
        logits: Tensor,
        scores: Tensor,
        source_ids: Tensor,
        context: Tensor,
        state: Tensor,
        inputs: Tensor,
        extra_size: int = 0,
        return_p_gen: bool = False,
        mask: Tensor = None,
        logits_mask: Tensor = None,
    ) -> Tensor:
        mask = logits_mask if mask is None else mask
        self._check_call(logits, scores, source_ids, context, state, inputs, extra_size, mask)
        parts = (logits, scores, context, state, inputs)
        logits, scores, context, state, inputs = (zero_masked(part, mask) for part in parts)
        size = logits.shape[2] + extra_size
        p_gen = ops.sigmoid(self._gate(context, state, inputs))
        generated = ops.expand_dims(p_gen, 2) * ops.softmax(at_least_float32(logits), axis=2)
        generated = ops.pad(generated, [[0, 0], [0, 0], [0, extra_size]])
        copying = ops.expand_dims(1 - p_gen, 2) * at_least_float32(scores)
        mixed = generated + copy_distribution(copying, ops.cast(source_ids, "int32"), size)
        log_p = ops.cast(ops.log(ops.maximum(mixed, SMALLEST)), self.compute_dtype)
        return (log_p, ops.cast(p_gen, self.compute_dtype)) if return_p_gen else log_p

    def step(
        self,
        logits: Tensor,
        scores: Tensor,
        source_ids: Tensor,
        context: Tensor,
        state: Tensor,
        inputs: Tensor,
        extra_size: int = 0,
        return_p_gen: bool = False,
    ) -> Tensor:
        """Mix one step: the arguments and results of a call, without the axis `T`."""
        at_step = [ops.expand_dims(part, 1) for part in (logits, scores, context, state, inputs)]
        logits, scores, context, state, inputs = at_step
        options = {"extra_size": extra_size, "return_p_gen": return_p_gen}
        results = self(logits, scores, source_ids, context, state, inputs, **options)
        return tree.map_structure(lambda result: ops.squeeze(result, 1), results)

    def log_likelihood(
        self,
        targets: Tensor,
        logits: Tensor,
        scores: Tensor,
        source_ids: Tensor,
        context: Tensor,
        state: Tensor,
        inputs: Tensor,
        mask: Tensor = None,
    ) -> Tensor:
        """Return `log P(y_t)` of integer targets `(B, T)`, a tensor `(B, T)`, for training.

        It picks the call's result at the targets, ids in the extended vocabulary, but costs less.
        """
        if not self.built:
            parts = (logits, scores, source_ids, context, state, inputs)
            self.build(*(part.shape for part in parts))
        self._check_call(logits, scores, source_ids, context, state, inputs, 0, mask)
        steps = (logits, scores, context, state, inputs)
        logits, scores, context, state, inputs = (zero_masked(part, mask) for part in steps)
        size = logits.shape[2]
        gate = self._gate(context, state, inputs)
        targets = ops.cast(targets, "int32")
        is_known = ops.logical_and(targets >= 0, targets < size)
        index = ops.where(is_known, targets, ops.zeros_like(targets))
        generated = ops.exp(
            -smoothed_crossentropy(ops.expand_dims(index, 2), at_least_float32(logits))
        )
        generated = ops.where(is_known, generated, ops.zeros_like(generated))
        ids, wanted = ops.cast(source_ids, "int32"), ops.expand_dims(targets, 2)
        same = ops.logical_and(ops.expand_dims(ids, 1) == wanted, wanted >= 0)  # -1: no word
        copied = ops.sum(
            ops.where(same, at_least_float32(scores), ops.zeros_like(same, scores.dtype)), axis=2
        )
        mixed = ops.sigmoid(gate) * generated + ops.sigmoid(-gate) * copied
        return ops.log(ops.maximum(mixed, SMALLEST))

    def _gate(self, context, state, inputs):
        """Return the logit of `p_gen`, `(B, T)`."""
        vectors = (self.context_vector, self.state_vector, self.input_vector)
        pairs = zip((context, state, inputs), vectors, strict=True)
        logits = [
            ops.matmul(at_least_float32(part), ops.expand_dims(at_least_float32(w), 1))
            for part, w in pairs
        ]
        return ops.squeeze(sum(logits), 2) + at_least_float32(self.bias)

    @arguments.for_own_call
    def compute_output_spec(self, *args, **kwargs):
        of = arguments.call_arguments(self, args, kwargs)
        parts = (of.logits, of.scores, of.source_ids, of.context, of.state, of.inputs)
        self._check_call(*parts, of.extra_size, of.logits_mask if of.mask is None else of.mask)
        steps = tuple(of.logits.shape[:2])
        size = of.logits.shape[2] + of.extra_size
        shapes = [(*steps, size), *([steps] if of.return_p_gen else [])]
        return arguments.specs(shapes, self.compute_dtype)

    def _check_call(self, logits, scores, source_ids, context, state, inputs, extra_size, mask):
        parts = {"logits": logits, "context": context, "state": state, "inputs": inputs}
        steps = {name: part.shape for name, part in parts.items()}
        _check_shapes(steps, scores.shape, source_ids.shape)
        for name, size in self.sizes.items() if self.built else ():
            arguments.check_features(name, steps[name], size)
        arguments.check_integer("extra_size", extra_size, minimum=0)
        check_mask(mask, tuple(logits.shape[:2]), "mask")


def _check_shapes(steps, scores, source_ids):
    """Raise a ValueError unless all are of the same steps, and weights and ids of one memory."""
    arguments.check_shapes(
        **{name: (shape, arguments.SEQUENCE) for name, shape in steps.items()},
        scores=(scores, "batch, steps, memory steps"),
        source_ids=(source_ids, "batch, memory steps"),
    )


def copy_distribution(scores: Tensor, ids: Tensor, size: int) -> Tensor:
    """Add up weights `(B, T, S)` by the ids `(B, S)` of their positions, those below `size`."""
    batch_size, steps, length = ops.shape(scores)
    inside = ops.logical_and(ids >= 0, ids < size)
    ids = ops.expand_dims(ops.where(inside, ids, ops.zeros_like(ids)), 1)
    scores = scores * ops.cast(ops.expand_dims(inside, 1), scores.dtype)
    rows = ops.reshape(ops.arange(batch_size * steps, dtype="int32"), (batch_size, steps, 1))
    indices = ops.reshape(rows * size + ids, (batch_size * steps * length,))
    total = ops.segment_sum(
        ops.reshape(scores, (batch_size * steps * length,)),
        indices,
        num_segments=batch_size * steps * size,
    )
    return ops.reshape(total, (batch_size, steps, size))
