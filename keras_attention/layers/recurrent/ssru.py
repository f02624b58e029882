"""The simpler simple recurrent unit (Kim et al. 2019), a decoder's cheap self-attention."""

from typing import Any

import keras
from keras import ops

from ...ops.loops import run_given, run_steps, swap_time, with_loop_gradient
from ...ops.masks import check_mask, zero_masked
from ...ops.shapes import reshaped
from ...ops.types import Tensor, accumulator_dtype
from .. import arguments
from ..lora_and_quantization import AdaptableKernels
from .recurrence import shift


@keras.saving.register_keras_serializable("keras_attention")
class SSRU(AdaptableKernels, keras.layers.Layer):
    """Simpler simple recurrent unit: a recurrence without a product of its state.

    $$\\begin{aligned}
    f_t &= \\sigma(W_f x_t + b_f) \\\\
    c_t &= f_t \\odot c_{t-1} + (1 - f_t) \\odot W x_t, \\qquad c_0 = 0 \\\\
    h_t &= \\mathrm{ReLU}(c_t)
    \\end{aligned}$$

    The products of all steps are one; only additions and products of single numbers go step by
    step. In place of a decoder's self-attention a step costs the same at the end of a sentence as
    at its beginning: `TransformerDecoder(..., autoregression="ssru")`.

    Weights: `kernel (D, 2U)`, those of `f` and of the candidates side by side, and `bias (U,)`.

    Args:
        units: Size `U` of the state and of the outputs.
        kernel_initializer: Initializer of the kernel's two halves.
        bias_initializer: Initializer of the bias of `f`.
        **kwargs: The arguments of every Keras layer.

    Call arguments:
        inputs: `(B, T, D)`.
        inputs_mask: Boolean `(B, T)`, True = real; a step that is not keeps the state. Default:
            Keras' implicit mask. Padding at the end needs none.

    Returns:
        The outputs `(B, T, U)`.

    Raises:
        ValueError: Where an argument is out of its range, or shapes or masks do not fit.

    Reference:
        Kim et al. 2019, "From research to production and back: ludicrously fast neural machine
        translation", section 3.1; without the output gates of Lei et al. 2018.

    Example:

    ```python
    import keras
    from keras_attention.layers import SSRU

    model = keras.Sequential([
        keras.layers.Embedding(1000, 64, mask_zero=True),
        SSRU(32),
    ])
    print(model(keras.ops.array([[5, 6, 7, 0]])).shape)  # (1, 4, 32)
    ```
    """

    kernels_side_by_side = 2

    def __init__(
        self,
        units: int,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.units = arguments.check_integer("units", units)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.supports_masking = True

    def build(self, inputs_shape):
        arguments.check_shapes(inputs=(tuple(inputs_shape), arguments.SEQUENCE))
        self.input_size = inputs_shape[-1]
        halves = arguments.side_by_side(self.kernel_initializer, 2)
        self._make_weight("kernel", (self.input_size, 2 * self.units), halves)
        self._make_weight("bias", (self.units,), self.bias_initializer)
        self.restore_quantization()

    def call(self, inputs: Tensor, inputs_mask: Tensor = None, mask: Tensor = None) -> Tensor:
        mask = mask if inputs_mask is None else inputs_mask
        self._check_call(inputs, mask)
        inputs = zero_masked(inputs, mask)  # no NaN in the padding reaches a gradient
        shape = ops.shape(inputs)
        forget, candidate = self._products(ops.reshape(inputs, (-1, shape[-1])))
        added = (1 - forget) * candidate
        forget, added = (reshaped(x, (*shape[:2], self.units)) for x in (forget, added))
        if mask is not None:
            real = ops.expand_dims(ops.cast(mask, "bool"), 2)
            forget = ops.where(real, forget, ops.ones_like(forget))
            added = ops.where(real, added, ops.zeros_like(added))
        return self._output(linear_recurrence(forget, added))

    def initial_state(self, batch_size: Tensor) -> dict:
        """Return the state before the first step."""
        batch_size = arguments.as_integer("batch_size", batch_size)
        return {"cell": ops.zeros((batch_size, self.units), self._state_dtype)}

    def step(self, inputs: Tensor, state: dict) -> tuple:
        """Return the output `(B, U)` of one step's inputs `(B, D)`, and the state after it."""
        arguments.check_built(self, "inputs_shape")
        inputs = self.cast(inputs)
        arguments.check_step("inputs", inputs.shape, self.input_size)
        shape = (inputs.shape[0], self.units)
        arguments.check_parts("state", state, "`initial_state`", cell=shape)
        forget, candidate = self._products(inputs)
        cell = candidate + forget * (state["cell"] - candidate)
        return self._output(cell), {"cell": cell}

    @property
    def _state_dtype(self):
        # A half loses what a step adds where `f` is near 1.
        return accumulator_dtype(self.compute_dtype)

    def _products(self, rows):
        """Return the forget gates and the candidates `(N, U)` of `(N, D)`."""
        products = ops.matmul(self.cast(rows), self.cast(self.kernel))
        forget, candidate = ops.split(ops.cast(products, self._state_dtype), 2, axis=-1)
        return ops.sigmoid(forget + ops.cast(self.bias, self._state_dtype)), candidate

    def _output(self, cell):
        return ops.cast(ops.relu(cell), self.compute_dtype)

    def _check_call(self, inputs, mask):
        self._check_shape(inputs.shape)
        check_mask(mask, tuple(inputs.shape[:2]), "inputs_mask")

    def _check_shape(self, shape):
        arguments.check_shapes(inputs=(shape, arguments.SEQUENCE))
        if self.built:
            arguments.check_features("inputs", shape, self.input_size)

    @arguments.for_own_call
    def compute_output_spec(self, *args, **kwargs):
        of = arguments.call_arguments(self, args, kwargs)
        self._check_call(of.inputs, of.mask if of.inputs_mask is None else of.inputs_mask)
        return keras.KerasTensor((*of.inputs.shape[:2], self.units), self.compute_dtype)

    def compute_output_shape(self, inputs_shape) -> tuple:
        self._check_shape(inputs_shape)
        return (*inputs_shape[:2], self.units)


def linear_recurrence(forget, added):
    """Return `c_t = f_t c_(t-1) + added_t` of all steps, `(B, T, U)`, from a state of zeros."""
    if added.shape[1] == 0:  # a loop of no step gives no shape
        return added

    def run(given, again=False):
        def step(index, cell, given):
            cell = given["forget"][index] * cell + given["added"][index]
            return cell, cell

        steps, *shape = ops.shape(given["forget"])
        zeros = ops.zeros(shape, given["forget"].dtype)
        return run_given(step, steps, zeros, given, ("forget", "added"), again)[0]

    def forward(given):
        return run(given), None

    def plain(given):
        return run(given, again=True)

    def backward(given, cells, _, upstream):
        def step(index, gradient):
            gradient = gradient + upstream[index]
            return gradient, given["forget"][index] * gradient

        steps, *shape = ops.shape(cells)
        zeros = ops.zeros(shape, cells.dtype)
        found, _ = run_steps(step, steps, zeros, reverse=True)
        return {"forget": found * shift(zeros, cells), "added": found}

    given = {"forget": swap_time(forget), "added": swap_time(added)}
    return swap_time(with_loop_gradient(forward, backward, given, plain))
