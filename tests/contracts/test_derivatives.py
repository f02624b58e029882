"""Second derivatives and forward mode, of every layer: the cells of the table in derivatives.md."""

import contextlib
import warnings

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import automatic_derivatives
from keras_attention.losses import (
    coverage_loss,
    masked_linear_crossentropy,
    masked_sparse_categorical_crossentropy,
)
from tests.contracts.backend import (
    BACKEND,
    input_gradients,
    open_shape,
    random,
    tensors_of,
    to_numpy,
    weighted_sum,
)
from tests.contracts.registry import CASES, FIRST_CASES
from tests.contracts.test_calls import built, every_case

# Each loop of a layer is compiled for seconds: these are computed in other ways than the rest.
COMPILED = {
    *FIRST_CASES,
    "decoder-current-gru-local-p-feeding",
    "decoder-previous-own-cell",
    "hierarchical-remembering",
    "local-p-concat",
    "multi-head-relative-entmax",
    "temporal",
}


# What XLA cannot differentiate twice with open lengths, unless the backend does all of it.
AUTOMATIC = {
    *("bahdanau", "coverage", "decoder-previous-gru"),
    *("hierarchical", "hierarchical-remembering", "monotonic-soft"),
}


def moving_of(inputs):
    """The names of the inputs that have a gradient."""
    return [name for name, array in inputs.items() if array.dtype == np.float32]


class Penalty:
    """A gradient penalty: the squares of a layer's gradients by its inputs."""

    def __init__(self, name):
        self.case, self.layer = CASES[name], built(name)
        self.inputs = self.case.inputs(5)
        self.moving = moving_of(self.inputs)
        results = self.case.call(self.layer, tensors_of(self.inputs))
        self.factors = {
            key: random(60 + len(key), *value.shape) for key, value in sorted(results.items())
        }

    def value(self, tensors):
        """The weighted sum of the layer's results."""
        results = self.case.call(self.layer, tensors)
        return sum(weighted_sum(results[key], self.factors[key]) for key in results)

    def gradients(self, tensors):
        """The gradients of the penalty by weights and inputs, a list of arrays."""
        return [to_numpy(gradient) for gradient in GRADIENTS[BACKEND](self, tensors)]


def squares(gradients):
    return sum(ops.sum(ops.square(gradient)) for gradient in gradients)


def by_tensorflow(penalty, tensors):
    import tensorflow as tf

    weights = [variable.value for variable in penalty.layer.trainable_weights]
    xs = [tensors[name] for name in penalty.moving]
    with tf.GradientTape() as outer:
        outer.watch(xs)
        with tf.GradientTape() as inner:
            inner.watch(xs)
            value = penalty.value(tensors)
        total = squares(inner.gradient(value, xs))
    return outer.gradient(total, [*weights, *xs], unconnected_gradients="zero")


def by_jax(penalty, tensors):
    import jax

    variables = penalty.layer.trainable_weights
    fixed = {name: tensor for name, tensor in tensors.items() if name not in penalty.moving}

    def value(xs, weights):
        with keras.StatelessScope(state_mapping=list(zip(variables, weights, strict=True))):
            return penalty.value(fixed | dict(zip(penalty.moving, xs, strict=True)))

    def total(weights, xs):
        return squares(jax.grad(value)(xs, weights))

    xs = [tensors[name] for name in penalty.moving]
    of_weights, of_xs = jax.grad(total, argnums=(0, 1))([v.value for v in variables], xs)
    return [*of_weights, *of_xs]


def by_torch(penalty, tensors):
    import torch

    weights = [variable.value for variable in penalty.layer.trainable_weights]
    xs = [tensors[name].detach().requires_grad_() for name in penalty.moving]
    value = penalty.value(tensors | dict(zip(penalty.moving, xs, strict=True)))
    total = squares(torch.autograd.grad(value, xs, create_graph=True))
    if not total.requires_grad:  # the layer is linear and has no weights
        return [torch.zeros_like(tensor) for tensor in [*weights, *xs]]
    found = torch.autograd.grad(total, [*weights, *xs], allow_unused=True)
    pairs = zip([*weights, *xs], found, strict=True)
    return [torch.zeros_like(tensor) if one is None else one for tensor, one in pairs]


GRADIENTS = {"tensorflow": by_tensorflow, "jax": by_jax, "torch": by_torch}


def assert_same(found, expected):
    scale = np.sqrt(sum(np.sum(np.square(each)) for each in expected))
    assert np.isfinite(scale)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-5 * max(scale, 1))


@every_case
def test_second_derivatives_are_those_that_the_backend_takes_by_itself(name):
    penalty = Penalty(name)
    tensors = tensors_of(penalty.inputs)
    found = penalty.gradients(tensors)
    with automatic_derivatives():
        expected = penalty.gradients(tensors)
    assert_same(found, expected)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="only TensorFlow leaves lengths open")
@pytest.mark.by_default("bahdanau-graph", "latent-graph", "local-p-concat-graph", "multi-head-xla")
@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
@pytest.mark.parametrize("name", sorted(COMPILED))
def test_second_derivatives_are_the_same_compiled_with_open_lengths(name, jit):
    import tensorflow as tf

    if jit and name in ("decoder-current-gru-local-p-feeding", "crf"):
        pytest.skip("XLA takes no second derivative of this loop with open lengths")
    penalty = Penalty(name)
    tensors = tensors_of(penalty.inputs)
    signature = {
        key: tf.TensorSpec(open_shape(penalty.case.axes[key], array), array.dtype)
        for key, array in penalty.inputs.items()
    }
    compiled = tf.function(
        lambda tensors: by_tensorflow(penalty, tensors),
        input_signature=[signature],
        jit_compile=jit,
    )
    with automatic_derivatives() if jit and name in AUTOMATIC else contextlib.nullcontext():
        found = list(map(to_numpy, compiled(tensors)))
    assert_same(found, penalty.gradients(tensors))


def slopes(function, xs, directions):
    """The derivative of a scalar along directions, in forward mode."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.autodiff.ForwardAccumulator(xs, directions) as accumulator:
            value = function(*xs)
        return accumulator.jvp(value)
    with automatic_derivatives():
        if BACKEND == "jax":
            import jax

            return jax.jvp(function, xs, directions)[1]
        import torch

        with warnings.catch_warnings():  # PyTorch compiles parts of it by `torch.jit.script`
            warnings.simplefilter("ignore", DeprecationWarning)
            return torch.func.jvp(function, tuple(xs), tuple(directions))[1]


@every_case
def test_forward_mode_gives_the_slope_of_the_gradient(name):
    if name == "crf" and BACKEND == "torch":
        pytest.skip("The layer's output is a gradient, which PyTorch does not take inside of jvp.")
    penalty = Penalty(name)
    tensors = tensors_of(penalty.inputs)
    xs = [tensors[key] for key in penalty.moving]
    directions = [ops.convert_to_tensor(random(81, *x.shape)) for x in xs]

    def value(*xs):
        return penalty.value(tensors | dict(zip(penalty.moving, xs, strict=True)))

    found = float(to_numpy(slopes(value, xs, directions)))
    gradients = input_gradients(value, *(penalty.inputs[key] for key in penalty.moving))
    pairs = zip(gradients, directions, strict=True)
    expected = sum(np.sum(gradient * to_numpy(each)) for gradient, each in pairs)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


IDS = np.array([[3, 0, 5], [1, 6, 0]])  # 0 is padding
LOSSES = {
    "crossentropy": (
        lambda logits: masked_sparse_categorical_crossentropy(IDS, logits, 0.1),
        [(2, 3, 7)],
    ),
    "linear-crossentropy": (
        lambda features, kernel, bias: masked_linear_crossentropy(
            IDS, features, kernel, bias, label_smoothing=0.1
        ),
        [(2, 3, 5), (5, 7), (7,)],
    ),
    "coverage": (lambda scores: coverage_loss(ops.softmax(scores)), [(2, 3, 7)]),
}


@pytest.mark.skipif(BACKEND != "tensorflow", reason="the layers' cases try the other backends")
@pytest.mark.parametrize("how", ["eager", "graph", "xla"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_have_second_derivatives_and_forward_mode(name, how):
    import tensorflow as tf

    loss, shapes = LOSSES[name]
    arrays = [ops.convert_to_tensor(random(90 + i, *shape)) for i, shape in enumerate(shapes)]

    def penalty(*xs):
        with tf.GradientTape() as outer:
            outer.watch(xs)
            with tf.GradientTape() as inner:
                inner.watch(xs)
                value = ops.sum(ops.square(loss(*xs)))
            total = squares(inner.gradient(value, xs))
        return outer.gradient(total, xs)

    run = penalty if how == "eager" else tf.function(penalty, jit_compile=how == "xla")
    is_automatic = (name, how) == ("linear-crossentropy", "xla")
    with automatic_derivatives() if is_automatic else contextlib.nullcontext():
        found = list(map(to_numpy, run(*arrays)))
    with automatic_derivatives():
        expected = list(map(to_numpy, penalty(*arrays)))
    assert_same(found, expected)
    directions = [ops.convert_to_tensor(random(95 + i, *shape)) for i, shape in enumerate(shapes)]
    slope = slopes(lambda *xs: ops.sum(ops.square(loss(*xs))), arrays, directions)
    with tf.GradientTape() as tape:
        tape.watch(arrays)
        value = ops.sum(ops.square(loss(*arrays)))
    pairs = zip(tape.gradient(value, arrays), directions, strict=True)
    along = sum(np.sum(to_numpy(one) * to_numpy(other)) for one, other in pairs)
    np.testing.assert_allclose(to_numpy(slope), along, rtol=1e-4)
