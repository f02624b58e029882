"""Mechanisms and decoders: masks in and out; padding changes nothing; no memory gives zeros."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.contracts.backend import (
    gradients_of,
    random,
    tensors_of,
    to_numpy,
)
from tests.contracts.kinds import BATCH, LENGTH, STEPS, VALUE_SIZE, Mechanism
from tests.contracts.registry import CASES, RECURRENT
from tests.contracts.test_calls import (
    assert_close,
    built,
    called,
    results_of,
    weights_of,
)

HUGE = 1e18  # its square is still a float32

every_recurrent_case = pytest.mark.parametrize("name", RECURRENT)


def padded(inputs, extra):
    """The same examples in a longer batch: everything past each length is garbage."""
    garbage = np.random.default_rng(5)
    mask = np.pad(inputs["value_mask"], ((0, 0), (0, extra)))
    result = {**inputs, "value_mask": mask}
    for name in ("value", "key"):
        if name in inputs:
            longer = np.pad(inputs[name], ((0, 0), (0, extra), (0, 0)))
            noise = HUGE * garbage.choice([-1.0, 1e-9, 1.0], longer.shape)
            result[name] = np.where(mask[:, :, None], longer, noise).astype("float32")
    return result


@pytest.mark.parametrize("extra", [0, 4, 24])
@every_recurrent_case
def test_more_padding_changes_nothing(name, extra):
    case, layer = CASES[name], built(name)
    inputs = case.inputs()
    results = results_of(lambda x: case.call(layer, x), padded(inputs, extra))
    assert np.all(results["scores"][:, :, LENGTH:] == 0.0)
    hidden = ~np.broadcast_to(inputs["value_mask"][:, None], (BATCH, STEPS, LENGTH))
    results["scores"] = results["scores"][:, :, :LENGTH]
    assert np.all(results["scores"][hidden] == 0.0)
    assert_close(results, called(name))


@every_recurrent_case
def test_an_example_alone_gives_what_it_gives_in_a_batch(name):
    """No trace of the other examples, of their lengths or of the batch's padding."""
    case, layer = CASES[name], built(name)
    inputs = case.inputs()
    for b, length in enumerate(inputs["value_mask"].sum(axis=1)):
        alone = {key: array[b : b + 1] for key, array in inputs.items()}
        del alone["value_mask"]
        alone |= {key: alone[key][:, :length] for key in ("value", "key") if key in alone}
        results = results_of(lambda x: case.call(layer, x), alone)
        expected = {key: value[b : b + 1] for key, value in called(name).items()}
        expected["scores"] = expected["scores"][:, :, :length]
        assert_close(results, expected)


@every_recurrent_case
def test_later_queries_do_not_change_earlier_ones(name):
    case, layer = CASES[name], built(name)
    inputs, main = case.inputs(), case.main_inputs[0]
    shorter = inputs | {main: inputs[main][:, :3]}
    results = results_of(lambda x: case.call(layer, x), shorter)
    for key in {case.output, case.context, "scores"}:
        np.testing.assert_allclose(results[key], called(name)[key][:, :3], atol=1e-5)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
@every_recurrent_case
def test_an_empty_memory_gives_zeros_and_finite_gradients(name, policy):
    keras.config.set_dtype_policy(policy)
    case = CASES[name]
    layer = case.build()
    inputs = case.inputs()
    inputs["value_mask"] = inputs["value_mask"].copy()
    inputs["value_mask"][1] = False
    results = case.call(layer, tensors_of(inputs))
    assert np.all(to_numpy(results["scores"])[1] == 0.0)
    assert np.all(to_numpy(results[case.context])[1] == 0.0)
    assert all(np.all(np.isfinite(to_numpy(value))) for value in results.values())
    assert np.any(to_numpy(results["scores"])[0] != 0.0)

    def loss(*main):
        given = tensors_of(inputs) | dict(zip(case.main_inputs, main, strict=True))
        values = case.call(layer, given).values()
        return sum(ops.sum(ops.cast(value, "float32") ** 2) for value in values)

    main = [inputs[key] for key in case.main_inputs]
    gradients = gradients_of(loss, *main, layer=layer)
    for gradient in gradients:
        assert gradient is not None and np.all(np.isfinite(gradient))
    assert np.all(gradients[-1][1] == 0.0), "a masked memory has a gradient"


class MaskProbe(keras.layers.Layer):
    """Gives the mask that reaches it, as numbers."""

    def __init__(self):
        super().__init__()
        self.supports_masking = True

    def call(self, inputs, mask=None):
        if mask is None:
            return ops.full_like(inputs[..., 0], -1, dtype="int32")
        return ops.cast(mask, "int32")


def masked_source(kind, size, seed):
    """A layer from inputs to a masked sequence, and inputs whose mask the second result is."""
    mask = np.arange(STEPS if seed else LENGTH) < np.array([2, 5, 3])[:, None]
    if kind == "embedding":
        layer = keras.layers.Embedding(19, size, mask_zero=True)
        layer.build()
        layer.embeddings.assign(random(seed + 30, 19, size))
        ids = np.random.default_rng(seed).integers(1, 19, mask.shape)
        return layer, np.where(mask, ids, 0).astype("int32"), mask
    dense = random(seed + 40, *mask.shape, size)
    return keras.layers.Masking(0.0), np.where(mask[:, :, None], dense, 0).astype("float32"), mask


@pytest.mark.parametrize("kind", ["embedding", "masking"])
@every_recurrent_case
def test_implicit_masks_flow_in_and_out(name, kind):
    case, layer = CASES[name], built(name)
    sizes = case.inputs()[case.main_inputs[0]].shape[-1], VALUE_SIZE
    sources = [masked_source(kind, size, 1 - place) for place, size in enumerate(sizes)]
    (_, query, query_mask), (_, value, mask) = sources
    rest = {
        key: array
        for key, array in case.inputs().items()
        if key not in (*case.main_inputs, "value_mask")
    }
    given = dict(
        zip(case.main_inputs, [s(ops.convert_to_tensor(a)) for s, a, _ in sources], strict=True)
    )
    explicit = (
        {key: to_numpy(tensor) for key, tensor in given.items()} | {"value_mask": mask} | rest
    )
    explicit |= {"query_mask": query_mask} if isinstance(case, Mechanism) else {}
    expected = case.oracle(weights_of(case, layer), explicit)

    eager = case.call(layer, given | tensors_of(rest))
    assert_close({key: to_numpy(value) for key, value in eager.items()}, expected)

    symbols = [keras.Input(a.shape[1:], dtype=str(a.dtype)) for a in (query, value)]
    others = {key: keras.Input(array.shape[1:]) for key, array in rest.items()}
    masked = [source(symbol) for (source, *_), symbol in zip(sources, symbols, strict=True)]
    results = case.call(layer, dict(zip(case.main_inputs, masked, strict=True)) | others)
    probe = MaskProbe()(results[case.output])
    model = keras.Model([*symbols, *others.values()], {**results, "probe": probe})
    outputs = {k: to_numpy(v) for k, v in model([query, value, *rest.values()]).items()}
    np.testing.assert_array_equal(outputs.pop("probe"), query_mask)
    assert_close(outputs, expected)


@every_recurrent_case
def test_an_explicit_mask_is_the_one_that_counts(name):
    """A mask that is passed replaces the one that the memory carries."""
    case, layer = CASES[name], built(name)
    inputs = case.inputs()
    source, array, _ = masked_source("masking", VALUE_SIZE, 0)
    given = tensors_of(inputs) | {"value": source(ops.convert_to_tensor(array))}
    expected = case.oracle(weights_of(case, layer), inputs | {"value": array})
    results = case.call(layer, given)
    assert_close({key: to_numpy(value) for key, value in results.items()}, expected)
