"""The mechanisms: padding of any content, inputs in a list, shapes, and sizes of zero."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import (
    AttentionPooling,
    BahdanauAttention,
    HierarchicalAttention,
    LuongAttention,
)
from tests.contracts.backend import (
    BACKEND,
    gradients_of,
    input_gradients,
    random,
    tensors_of,
    to_numpy,
)
from tests.contracts.kinds import BATCH, STEPS, VALUE_SIZE, Mechanism, value_mask
from tests.contracts.registry import CASES, RECURRENT
from tests.contracts.test_calls import built, called, results_of

MECHANISMS = [name for name in RECURRENT if isinstance(CASES[name], Mechanism)]
every_mechanism = pytest.mark.parametrize("name", MECHANISMS)
QUERY_MASK = np.arange(STEPS) < np.array([STEPS, 3, 1])[:, None]


def spoiled(array, mask):
    """The array with NaN and infinities where it is masked."""
    bad = np.resize(np.array([np.nan, np.inf, -np.inf], "float32"), array.shape)
    return np.where(mask.reshape(*mask.shape, *(1,) * (array.ndim - mask.ndim)), array, bad)


@every_mechanism
def test_nothing_in_the_padding_reaches_a_context_or_a_gradient(name):
    case, layer = CASES[name], built(name)
    clean = case.inputs() | {"query_mask": QUERY_MASK}
    bad = clean | {"query": spoiled(clean["query"], QUERY_MASK)}
    bad |= {k: spoiled(clean[k], clean["value_mask"]) for k in ("value", "key") if k in clean}
    expected = results_of(lambda x: case.call(layer, x), clean)
    results = results_of(lambda x: case.call(layer, x), bad)
    for key, value in results.items():
        np.testing.assert_allclose(value, expected[key], atol=1e-6)

    names = ["query", "value", *(["key"] if "key" in clean else [])]

    def loss(*arrays):
        values = case.call(layer, tensors_of(bad) | dict(zip(names, arrays, strict=True)))
        return sum(ops.sum(value**2) for value in values.values())

    gradients = gradients_of(loss, *(bad[key] for key in names), layer=layer)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


@every_mechanism
def test_nothing_in_the_padding_reaches_a_step(name):
    case, layer = CASES[name], built(name)
    clean = case.inputs()
    bad = {k: spoiled(v, clean["value_mask"]) for k, v in clean.items() if k in ("value", "key")}
    expected, results = (
        results_of(lambda x: case.run_steps(layer, x), x) for x in (clean, clean | bad)
    )
    for key, value in results.items():
        np.testing.assert_allclose(value, expected[key], atol=1e-6)


def test_nothing_in_the_padding_reaches_pooling_and_hierarchical_attention():
    x, mask = random(1, BATCH, 7, 13), value_mask()
    pool = AttentionPooling(5)
    expected = to_numpy(pool(x, mask=ops.convert_to_tensor(mask)))
    bad = spoiled(x, mask)
    np.testing.assert_allclose(to_numpy(pool(bad, mask=ops.convert_to_tensor(mask))), expected)
    (gradient,) = input_gradients(lambda x: ops.sum(pool(x, mask=mask) ** 2), bad)
    assert np.all(np.isfinite(gradient))

    query, words = random(2, BATCH, STEPS, 11), random(3, BATCH, 3, 4, 13)
    word_mask = np.resize([True, True, False], words.shape[:3])
    layer = HierarchicalAttention(BahdanauAttention(5), LuongAttention("general"))

    def call(query, words):
        return layer(query, words, word_mask=word_mask, query_mask=QUERY_MASK)

    expected = to_numpy(call(query, words))
    bad = spoiled(query, QUERY_MASK), spoiled(words, word_mask)
    np.testing.assert_allclose(to_numpy(call(*bad)), expected, atol=1e-6)
    for gradient in input_gradients(lambda *x: ops.sum(call(*x) ** 2), *bad):
        assert np.all(np.isfinite(gradient))


@every_mechanism
def test_inputs_in_a_list_are_the_same_inputs(name):
    case, layer = CASES[name], built(name)
    inputs = tensors_of(case.inputs())
    listed = [inputs[key] for key in ("query", "value", "key") if key in inputs]
    context = layer(listed, mask=[None, inputs["value_mask"]])
    np.testing.assert_allclose(to_numpy(context), called(name)["context"], atol=1e-6)
    fresh = case.layer(**case.options)
    symbols = [keras.Input(tensor.shape[1:]) for tensor in listed]
    model = keras.Model(symbols, fresh(symbols))
    assert model.output_shape == (None, STEPS, VALUE_SIZE)
    assert tuple(model(listed).shape) == (BATCH, STEPS, VALUE_SIZE)


def test_masks_of_inputs_in_a_list_arrive_by_themselves():
    ids = np.array([[3, 5, 0, 0], [2, 0, 0, 0]])
    symbols = keras.Input((4,), dtype="int32"), keras.Input((3, 6))
    embedded = keras.layers.Embedding(7, 6, mask_zero=True)(symbols[0])
    layer = BahdanauAttention(5)
    _, listed = layer([symbols[1], embedded], return_attention_scores=True)
    _, named = layer(symbols[1], embedded, return_attention_scores=True)
    for scores in keras.Model(symbols, [listed, named])([ids, random(1, 2, 3, 6)]):
        assert np.all((to_numpy(scores) > 0) == (ids != 0)[:, None])


def test_a_list_and_a_value_are_refused():
    x = random(1, 2, 3, 5)
    with pytest.raises(ValueError, match="Received: a list of 2, and a value"):
        LuongAttention()([x, x], x)
    with pytest.raises(ValueError, match="Received: a list of 4"):
        LuongAttention()([x, x, x, x])
    with pytest.raises(ValueError, match="`value_mask` must be boolean .*, an array.*Received"):
        LuongAttention()(x, x, value_mask="nope")


@every_mechanism
def test_a_memory_of_another_width_is_not_prepared(name):
    layer, inputs = built(name), CASES[name].inputs()
    value, key = inputs["value"], inputs.get("key", inputs["value"])
    wider = np.concatenate([key, key[..., :1]], axis=-1)
    with pytest.raises(ValueError, match="key.*Received: key of shape"):
        layer.prepare_memory(value, wider)
    with pytest.raises(ValueError, match="value.*Received: value of shape"):
        layer.prepare_memory(np.concatenate([value, value[..., :1]], axis=-1), key)


@every_mechanism
def test_output_shapes(name):
    case, layer = CASES[name], built(name)
    inputs = case.inputs()
    shapes = [inputs[key].shape for key in ("query", "value", "key") if key in inputs]
    context, scores = layer.compute_output_shape(*shapes, return_attention_scores=True)
    assert (context, scores) == tuple(called(name)[k].shape for k in ("context", "scores"))
    assert layer.compute_output_shape(shapes) == context


def test_output_shapes_of_hierarchical_attention():
    layer = HierarchicalAttention(BahdanauAttention(5), LuongAttention("general"))
    results = layer(
        random(1, BATCH, STEPS, 11), random(2, BATCH, 3, 4, 13), return_attention_scores=True
    )
    shapes = layer.compute_output_shape(
        (BATCH, STEPS, 11), (BATCH, 3, 4, 13), return_attention_scores=True
    )
    assert shapes == tuple(tuple(result.shape) for result in results)


def test_a_mechanism_over_time_distributed():
    inputs = keras.Input((2, 3, 6))
    outputs = keras.layers.TimeDistributed(BahdanauAttention(4))(inputs)
    assert outputs.shape == (None, 2, 3, 6)
    assert keras.Model(inputs, outputs)(random(1, 5, 2, 3, 6)).shape == (5, 2, 3, 6)


@pytest.mark.parametrize("empty", ["batch", "steps", "memory"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_sizes_of_zero(name, empty):
    case, layer = CASES[name], built(name)
    inputs = case.inputs() | {"query_mask": QUERY_MASK}
    for key, array in inputs.items():
        if empty == "batch":
            inputs[key] = array[:0]
        elif (key in ("query", "query_mask")) == (empty == "steps"):
            inputs[key] = array[:, :0]
    results = results_of(lambda x: case.call(layer, x), inputs)
    shapes = results["context"].shape, results["scores"].shape
    assert shapes[0][:2] == shapes[1][:2] == inputs["query"].shape[:2]
    assert shapes[1][2] == inputs["value"].shape[1]
    assert not np.any(results["context"])


@pytest.mark.parametrize("name", ["luong-dot", "luong-general", "luong-concat", "bahdanau"])
@pytest.mark.skipif(BACKEND == "torch", reason="half products on a CPU round before they add")
def test_large_inputs_in_float16_stay_finite(name):
    case = CASES[name]
    keras.config.set_dtype_policy("mixed_float16")
    layer = case.build()
    inputs = case.inputs()
    inputs |= {
        key: 3e4 * np.sign(inputs[key]) for key in ("query", "value", "key") if key in inputs
    }
    results = case.call(layer, tensors_of(inputs))
    assert all(np.all(np.isfinite(to_numpy(value))) for value in results.values())
