"""Positions added to a sequence: sinusoids (Vaswani et al. 2017), or learned vectors."""

import numbers
from typing import Any

import keras
from keras import ops

from ...ops.masks import check_mask, zero_masked
from ...ops.positions import gather_rows, real_positions, sinusoids, step_positions
from ...ops.shapes import size_of
from ...ops.types import Tensor, accumulator_dtype
from .. import arguments

LAYOUTS = ("interleaved", "halves")


class _AddedPositions(arguments.Configured, keras.layers.Layer):
    """Adds an encoding of each step's position; a subclass computes the encodings."""

    def __init__(self, scale=False, **kwargs):
        super().__init__(**kwargs)
        self.scale = arguments.check_flag("scale", scale)
        self.supports_masking = True

    def build(self, inputs_shape):
        """Check the shape, which Keras' `summary` passes to `compute_output_shape` by this name."""
        self._check_sequence(inputs_shape)

    def encodings(self, positions, size):
        """Return the encodings of integer positions `(...)`: `(..., size)`."""
        raise NotImplementedError(f"{type(self).__name__} must define `encodings`.")

    def call(
        self,
        inputs: Tensor,
        start_index: Tensor = 0,
        inputs_mask: Tensor = None,
        mask: Tensor = None,
    ) -> Tensor:
        mask = mask if inputs_mask is None else inputs_mask
        # Keras makes up numbers for open sizes when it infers shapes on PyTorch.
        is_inferred = getattr(inputs, "is_meta", False)
        shape = (None, None, *inputs.shape[2:]) if is_inferred else inputs.shape
        self._check_sequence(shape, start_index, mask)
        size = inputs.shape[2]
        # In float32, rounded once: half precision would lose small changes of large positions.
        dtype = accumulator_dtype(self.compute_dtype)
        x = ops.cast(zero_masked(inputs, mask), dtype)
        x = x * size**0.5 if self.scale else x
        encodings = self.encodings(step_positions(size_of(inputs, 1), start_index), size)
        if mask is not None:  # a step's position does not count the padding before it
            encodings = gather_rows(encodings, real_positions(mask, inputs))
        return ops.cast(x + ops.cast(encodings, dtype), self.compute_dtype)

    def step(self, x: Tensor, position: Tensor) -> Tensor:
        """Add the encoding of a position, a number, scalar tensor or `(B,)`, to a step `(B, D)`."""
        arguments.check_shapes(x=(x.shape, "batch, features"))
        return ops.squeeze(self(ops.expand_dims(x, 1), start_index=position), 1)

    def compute_output_shape(self, inputs_shape):
        self._check_sequence(inputs_shape)
        return tuple(inputs_shape)

    @arguments.for_own_call
    def compute_output_spec(self, *args, **kwargs):
        given = arguments.call_arguments(self, args, kwargs)
        mask = given.mask if given.inputs_mask is None else given.inputs_mask
        self._check_sequence(given.inputs.shape, given.start_index, mask)
        return keras.KerasTensor(given.inputs.shape, self.compute_dtype)

    def _check_sequence(self, shape, start_index=0, mask=None):
        arguments.check_shapes(inputs=(shape, arguments.SEQUENCE))
        check_mask(mask, tuple(shape[:2]), "inputs_mask")


@keras.saving.register_keras_serializable("keras_attention")
class PositionalEncoding(_AddedPositions):
    """Add sinusoids of many wavelengths, so that equal words at different positions differ.

    `y_p = x_p + PE(p)`, `PE(p, 2i) = sin(p / w^(2i/D))`, `PE(p, 2i + 1) = cos(p / w^(2i/D))`

    There are no weights, and the length is not limited. Sines and cosines are computed in at least
    float32. Positions do not count padding.

    With `layout="halves"` all sines come first, `PE(p) = [sin(p r_i)], [cos(p r_i)]` for `i` from 0
    to `D/2 - 1`. Trained weights need the layout and the frequencies `r_i` of their training:

    - Vaswani et al.'s formula, interleaved: `r_i = w^(-2i/D)`, the default;
    - tensor2tensor and Marian: `layout="halves"`, `r_i = w^(-i/(D/2 - 1))`;
    - Marian's models in Hugging Face's form: `layout="halves", endpoint=False`, `r_i = w^(-2i/D)`.

    An odd `D` has one sine more than cosines.

    Args:
        max_wavelength: `w`; the wavelengths run from `2 pi` towards `2 pi w`.
        scale: Whether to multiply the inputs by `sqrt(D)` first, as the paper does with embeddings.
        layout: `"interleaved"`, each sine followed by its cosine, or `"halves"`.
        endpoint: Whether the longest wavelength is `2 pi w` itself, as in `np.geomspace`, so that
            `r_i = w^(-i/(D/2 - 1))`. Default: True for `"halves"`, else False.
        **kwargs: Arguments of every Keras layer.

    Call arguments:
        inputs: `(B, T, D)`.
        start_index: The position of the first step: a number, a scalar tensor, or integers `(B,)`.
        inputs_mask: Boolean `(B, T)`, True = real. Default: Keras' implicit mask. A step's position
            is `start_index` and the number of real steps before it; padding is zeroed first.
        mask: Keras' implicit mask; `inputs_mask` takes precedence.

    Returns:
        `(B, T, D)`. `step(x, position)` returns one step, `(B, D)`.

    Raises:
        ValueError: If an argument is out of its range.

    Reference:
        Vaswani et al. 2017, "Attention is all you need", section 3.5; the scaling, section 3.4.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import PositionalEncoding

    embeddings = np.zeros((1, 4, 6), "float32")
    encoded = np.asarray(PositionalEncoding()(embeddings))
    assert np.allclose(encoded[0, 0], [0, 1, 0, 1, 0, 1])
    assert np.allclose(encoded[0, 3, :2], [np.sin(3), np.cos(3)])
    halves = np.asarray(PositionalEncoding(layout="halves")(embeddings))
    assert np.allclose(halves[0, 0], [0, 0, 0, 1, 1, 1])
    ```
    """

    def __init__(
        self,
        max_wavelength: float = 10_000.0,
        scale: bool = False,
        layout: str = "interleaved",
        endpoint: bool | None = None,
        **kwargs: Any,
    ):
        super().__init__(scale, **kwargs)
        self.max_wavelength = arguments.check_number("max_wavelength", max_wavelength, above=True)
        self.layout = arguments.check_choice("layout", layout, LAYOUTS)
        given = layout == "halves" if endpoint is None else endpoint
        self.endpoint = arguments.check_flag("endpoint", given)

    def encodings(self, positions, size):
        dtype = accumulator_dtype(self.compute_dtype)
        options = self.max_wavelength, self.layout, self.endpoint
        return sinusoids(positions, size, *options, dtype)


@keras.saving.register_keras_serializable("keras_attention")
class LearnedPositions(_AddedPositions):
    """Add a learned vector for each position: `y_p = x_p + P_p`.

    A known length beyond `max_length` raises a ValueError. Where only the graph knows the length,
    the steps beyond it become NaN.

    Weights: `embeddings` `P (max_length, D)`.

    Args:
        max_length: Number of positions.
        embeddings_initializer: Initializer of `P`.
        scale: Whether to multiply the inputs by `sqrt(D)` first.
        **kwargs: Arguments of every Keras layer.

    Call arguments and output are those of `PositionalEncoding`.

    Reference:
        Gehring et al. 2017, "Convolutional sequence to sequence learning", section 3.1.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import LearnedPositions

    layer = LearnedPositions(max_length=50)
    assert tuple(layer(np.ones((2, 7, 12))).shape) == (2, 7, 12)
    assert tuple(layer.embeddings.shape) == (50, 12)
    ```
    """

    def __init__(
        self,
        max_length: int,
        embeddings_initializer: Any = "uniform",
        scale: bool = False,
        **kwargs: Any,
    ):
        super().__init__(scale, **kwargs)
        self.max_length = arguments.check_integer("max_length", max_length)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, inputs_shape):
        self._check_sequence(inputs_shape)
        shape = (self.max_length, inputs_shape[2])
        self._make_weight("embeddings", shape, self.embeddings_initializer)

    def encodings(self, positions, size):
        known = ops.logical_and(positions >= 0, positions < self.max_length)
        rows = ops.take(self.embeddings, ops.clip(positions, 0, self.max_length - 1), axis=0)
        return ops.where(ops.expand_dims(known, -1), rows, float("nan"))

    def _check_sequence(self, shape, start_index=0, mask=None):
        super()._check_sequence(shape, start_index, mask)
        if self.built:
            arguments.check_features("inputs", shape, self.embeddings.shape[1])
        if not all(isinstance(number, numbers.Integral) for number in (shape[1], start_index)):
            return
        if start_index < 0 or start_index + shape[1] > self.max_length:
            raise ValueError(
                f"Positions must be less than `max_length`, {self.max_length}; shorten the "
                "sequence, or build the layer with a larger `max_length`. "
                f"Received: {shape[1]} steps from position {start_index} on"
            )
