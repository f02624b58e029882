"""Masks implicit and explicit, in and out; padding changes nothing; no memory gives zeros."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.contracts.backend import (
    gradients_of,
    input_gradients,
    open_shape,
    random,
    tensors_of,
    to_numpy,
    weighted_sum,
)
from tests.contracts.kinds import BATCH, STEPS
from tests.contracts.registry import CASES, RECURRENT
from tests.contracts.test_calls import (
    assert_close,
    built,
    called,
    every_case,
    results_of,
    weights_of,
)

every_mask = pytest.mark.parametrize(
    ("name", "mask"), [(name, mask) for name, case in CASES.items() for mask in case.masks]
)
SOURCES = ("embedding", "masking")


def of_real_steps(case, results, inputs, like=None):
    """Results at the steps that are no padding, cut to the shapes of `like`."""
    cut = {
        key: value[tuple(slice(size) for size in (like or results)[key].shape)]
        for key, value in results.items()
    }
    return {key: np.where(case.real(key, inputs), value, 0) for key, value in cut.items()}


def assert_no_weight_on_padding(case, results, inputs):
    """Attention weights are exactly zero where a mask hides what they weigh."""
    for key, value in results.items():
        if key.startswith("scores"):
            hidden = ~np.broadcast_to(case.attended(key, inputs), value.shape)
            assert np.all(value[hidden] == 0.0), key


@pytest.mark.parametrize("extra", [0, 4, 24])
@every_case
def test_more_padding_changes_nothing(name, extra):
    case, layer = CASES[name], built(name)
    inputs = case.inputs()
    expected = called(name)
    longer = case.padded(inputs, extra)
    results = results_of(lambda x: case.call(layer, x), longer)
    for given, arrays in ((expected, inputs), (results, longer)):
        assert_no_weight_on_padding(case, given, arrays)
    assert_close(
        of_real_steps(case, results, inputs, expected), of_real_steps(case, expected, inputs)
    )


@every_case
def test_an_example_alone_gives_what_it_gives_in_a_batch(name):
    """No trace of the other examples, of their lengths or of the batch's padding."""
    case, layer = CASES[name], built(name)
    inputs = case.inputs()
    for b in range(BATCH):
        example = case.example(inputs, b)
        results = results_of(lambda x: case.call(layer, x), example)
        expected = {key: value[b : b + 1] for key, value in called(name).items()}
        expected = of_real_steps(case, expected, example, results)
        assert_close(of_real_steps(case, results, example), expected)


@pytest.mark.parametrize("name", RECURRENT)
def test_later_queries_do_not_change_earlier_ones(name):
    case, layer = CASES[name], built(name)
    inputs, main = case.inputs(), case.main_inputs[0]
    shorter = inputs | {main: inputs[main][:, :3]}
    results = results_of(lambda x: case.call(layer, x), shorter)
    for key in {case.output, case.context, "scores"}:
        np.testing.assert_allclose(results[key], called(name)[key][:, :3], atol=1e-5)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
@every_mask
def test_a_fully_masked_row_agrees_with_the_oracle_and_has_finite_gradients(name, mask, policy):
    keras.config.set_dtype_policy(policy)
    case, tolerance = CASES[name], {"float32": 1e-5, "mixed_float16": 2e-2}.get(policy, 8e-2)
    layer, inputs = case.build(), case.inputs()
    inputs[mask] = inputs[mask].copy()
    inputs[mask][1] = False
    expected = case.oracle(weights_of(case, layer), inputs)
    results = results_of(lambda x: case.call(layer, x), inputs)
    assert_no_weight_on_padding(case, results, inputs)
    for key, value in results.items():
        np.testing.assert_allclose(value, expected[key], atol=tolerance, rtol=tolerance)
    moving = [key for key, array in inputs.items() if array.dtype == np.float32]

    def loss(*arrays):
        given = tensors_of(inputs) | dict(zip(moving, arrays, strict=True))
        values = case.call(layer, given).values()
        return sum(ops.sum(ops.cast(value, "float32") ** 2) for value in values)

    gradients = gradients_of(loss, *(inputs[key] for key in moving), layer=layer)
    for gradient in gradients:
        assert gradient is not None and np.all(np.isfinite(gradient))
    if name in RECURRENT:  # a memory without an entry reads as zeros, and learns nothing
        of_value = gradients[moving.index("value") - len(moving)]
        assert np.all(results[case.context][1] == 0.0) and np.all(of_value[1] == 0.0)


@every_case
def test_padding_has_no_gradient(name):
    """A loss of the real results has a gradient of zero at every padded place of the inputs."""
    case, layer = CASES[name], built(name)
    inputs = case.inputs(2)
    factors = {
        key: np.where(case.real(key, inputs), random(40 + place, *value.shape), 0)
        for place, (key, value) in enumerate(called(name).items())  # of these shapes
    }
    moving = [key for key, array in inputs.items() if array.dtype == np.float32]

    def loss(*arrays):
        given = tensors_of(inputs) | dict(zip(moving, arrays, strict=True))
        results = case.call(layer, given)
        return sum(weighted_sum(results[key], factors[key]) for key in results)

    gradients = input_gradients(loss, *(inputs[key] for key in moving))
    for key, gradient in zip(moving, gradients, strict=True):
        assert np.any(gradient != 0.0), key
        padding = ~np.broadcast_to(case.real(key, inputs), gradient.shape)
        assert np.all(gradient[padding] == 0.0), key


class MaskProbe(keras.layers.Layer):
    """Gives the mask that reaches it, as numbers."""

    def __init__(self):
        super().__init__()
        self.supports_masking = True

    def call(self, inputs, mask=None):
        if mask is None:
            return ops.full_like(inputs[..., 0], -1, dtype="int32")
        return ops.cast(mask, "int32")


def masked_source(kind, array, mask, seed):
    """A layer from inputs to a masked sequence of the array's shape, and its inputs."""
    if kind == "embedding":
        layer = keras.layers.Embedding(19, array.shape[-1], mask_zero=True)
        layer.build()
        layer.embeddings.assign(random(seed + 30, 19, array.shape[-1]))
        ids = np.random.default_rng(seed).integers(1, 19, mask.shape)
        return layer, np.where(mask, ids, 0).astype("int32")
    return keras.layers.Masking(0.0), np.where(mask[..., None], array, 0).astype("float32")


@pytest.mark.parametrize("kind", ["embedding", "masking"])
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.masks])
def test_implicit_masks_flow_in_and_out(name, kind):
    case, layer = CASES[name], built(name)
    inputs, carriers, output_mask = case.inputs(2), case.masks, case.output_mask()
    if name in RECURRENT:  # the mask of the queries is that of the result
        output_mask = "query_mask"
        inputs[output_mask] = np.arange(STEPS) < np.array([2, STEPS, 3])[:, None]
        carriers = {output_mask: case.main_inputs[0]} | carriers
    sources = {
        carrier: masked_source(kind, inputs[carrier], inputs[mask], seed)
        for seed, (mask, carrier) in enumerate(carriers.items())
    }
    rest = {key: a for key, a in inputs.items() if key not in sources and key not in carriers}
    given = {key: source(ops.convert_to_tensor(array)) for key, (source, array) in sources.items()}
    explicit = inputs | {key: to_numpy(tensor) for key, tensor in given.items()}
    expected = case.oracle(weights_of(case, layer), explicit)

    eager = case.call(layer, in_order(case, given | tensors_of(rest)))
    assert_close({key: to_numpy(value) for key, value in eager.items()}, expected)

    raw = {key: array for key, (_, array) in sources.items()} | rest
    symbols = {
        key: keras.Input(
            batch_shape=open_shape(case.axes[key][: array.ndim], array),
            dtype=str(array.dtype),
            name=key,
        )
        for key, array in raw.items()
    }
    masked = {key: source(symbols[key]) for key, (source, _) in sources.items()}
    results = case.call(layer, in_order(case, symbols | masked))
    probe = MaskProbe()(results[case.output])
    model = keras.Model(symbols, {**results, "probe": probe})
    outputs = results_of(model, raw)
    flag = outputs.pop("probe")
    if output_mask is None:
        assert np.all(flag == -1), "the main result carries a mask of steps that it has not"
    else:
        np.testing.assert_array_equal(flag, inputs[output_mask])
    assert_close(outputs, expected)


def in_order(case, given):
    """The tensors in the order of the case's arrays, the first input first."""
    return {key: given[key] for key in case.inputs() if key in given}


@every_mask
def test_an_explicit_mask_is_the_one_that_counts(name, mask):
    """A mask that is passed replaces the one that its input carries."""
    case, layer = CASES[name], built(name)
    inputs, carrier = case.inputs(), case.masks[mask]
    other = np.roll(inputs[mask], 1, axis=0)
    source, array = masked_source("masking", inputs[carrier], other, 0)
    expected = case.oracle(weights_of(case, layer), inputs | {carrier: array})
    given = tensors_of(inputs) | {carrier: source(ops.convert_to_tensor(array))}
    results = case.call(layer, given)
    assert_close({key: to_numpy(value) for key, value in results.items()}, expected)
