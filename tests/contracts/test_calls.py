"""Every form of a call agrees with the float64 oracle: eager, symbolic, compiled, stepwise.

Shapes and masks that do not fit are refused by name, before a backend fails in its own words.
"""

import functools
import inspect

import keras
import numpy as np
import pytest
from keras import ops, tree

from tests.contracts.backend import (
    BACKEND,
    OPEN,
    at_once,
    compiled,
    symbols_of,
    tensors_of,
    to_numpy,
)
from tests.contracts.kinds import BATCH, model_of, randomise, weight_of
from tests.contracts.registry import CASES, RECURRENT, STEPPED

# Batch, steps and lengths of other inputs: JAX compiles every operation for each.
SIZES = [(2, 3, (11, 2)), (1, 1, (1,)), (2, 2, (29, 23))][: 1 if BACKEND == "jax" else 3]
every_case = pytest.mark.parametrize("name", CASES)
every_stepped_case = pytest.mark.parametrize("name", STEPPED)


@functools.cache
def built(name):
    """One float32 layer a case, for the checks that change nothing in it."""
    return CASES[name].build()


@functools.cache
def functional(name):
    """The functional model of `built(name)`."""
    return model_of(CASES[name], built(name), CASES[name].inputs())


def weights_of(case, layer):
    """The pinned weights in float64."""
    return {path: np.float64(to_numpy(weight_of(layer, path))) for path in case.weights}


def arrays_from(function, inputs):
    """NumPy results of a function of a dictionary of tensors."""
    return {name: to_numpy(value) for name, value in function(tensors_of(inputs)).items()}


def results_of(function, inputs):
    """As `arrays_from`, where JAX compiles the function."""
    return arrays_from(at_once(function), inputs)


@functools.cache
def called(name):
    """What `built(name)` gives for the inputs of its case."""
    return arrays_from(lambda x: CASES[name].call(built(name), x), CASES[name].inputs())


def assert_close(results, expected, atol=1e-5):
    """Every expected result is there, in its shape, and near."""
    assert set(results) == set(expected)
    for name, value in expected.items():
        assert results[name].shape == value.shape, name
        np.testing.assert_allclose(results[name], value, atol=atol, rtol=1e-4, err_msg=name)


@every_case
def test_eager_call_agrees_with_the_oracle(name):
    case, layer = CASES[name], built(name)
    unmasked = {k: v for k, v in case.inputs().items() if "mask" not in k}
    alone = arrays_from(lambda x: case.call(layer, x), unmasked)
    for inputs, results in ((case.inputs(), called(name)), (unmasked, alone)):
        expected = case.oracle(weights_of(case, layer), inputs)
        assert_close(results, expected)
        # An oracle of constants would prove nothing.
        scores = [value for key, value in expected.items() if key.startswith("scores")]
        assert all(np.std(value) > 1e-3 for value in scores)
        assert np.std(expected[case.output]) > 1e-2


@every_case
def test_symbolic_call_agrees_and_knows_its_shapes(name):
    """One model serves every batch and length."""
    case, layer = CASES[name], built(name)
    for inputs in (*(case.inputs(9, *sizes) for sizes in SIZES[:2]), case.inputs()):
        results = results_of(functional(name), inputs)
        assert_close(results, case.oracle(weights_of(case, layer), inputs))
    for key, symbol in functional(name).output.items():
        assert len(symbol.shape) == results[key].ndim, key
        for known, size in zip(symbol.shape, results[key].shape, strict=True):
            assert known is None or known == size, key
        assert symbol.shape[0] is None
        assert keras.backend.standardize_dtype(symbol.dtype) == str(results[key].dtype)
    for key, symbol in case.call(layer, symbols_of(inputs)).items():
        assert tuple(symbol.shape) == results[key].shape, key


@every_case
def test_a_model_that_is_written_as_a_class_has_a_summary(name, capsys):
    """Keras hands the shapes that a layer was built with to `compute_output_shape`, by name."""

    class Holder(keras.Model):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer
            self.built = True

    Holder(built(name)).summary(expand_nested=True)
    assert type(built(name)).__name__ in capsys.readouterr().out


@pytest.mark.by_default(
    "local-m-dot", "positions", "linear", "delta", "decoder-previous-gru", "multi-head"
)
@every_case
def test_a_layer_that_holds_it_knows_its_shapes(name):
    """Keras calls the layer within with sizes that are open: on JAX with symbols."""
    case, layer = CASES[name], built(name)

    class Holder(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.layer = layer
            self.built = True

        def call(self, tensors):
            return case.call(self.layer, tensors)

    model = functional(name)
    for key, symbol in Holder()(model.input).items():
        assert symbol.shape == model.output[key].shape, key


@pytest.mark.by_default(
    "bahdanau",
    "decoder-previous-gru",
    "inner-context",
    "multi-head",
    "transformer-decoder-post",
    "pooling",
)
@every_case
def test_one_compiled_function_serves_every_batch_and_length(name):
    case, layer = CASES[name], built(name)
    function = compiled(lambda x: case.call(layer, x), case.inputs(), case.axes)
    for inputs in (case.inputs(7), *(case.inputs(7, *sizes) for sizes in SIZES)):
        assert_close(results_of(function, inputs), case.oracle(weights_of(case, layer), inputs))


def of_real_queries(case, key, inputs):
    """Where a result is of no padded step: boolean, broadcasts to it.

    Weights count where they are those of padding, too: there they must be zero.
    """
    real = case.real(key, inputs)
    return real.any(axis=-1, keepdims=True) if key.startswith("scores") else real


def assert_close_where_real(case, results, expected, inputs):
    """As `assert_close`, of the steps that are no padding."""
    results, expected = (
        {key: np.where(of_real_queries(case, key, inputs), a, 0) for key, a in each.items()}
        for each in (results, expected)
    )
    assert_close(results, expected)


@every_stepped_case
def test_steps_agree_with_the_call(name):
    case, layer = CASES[name], built(name)
    inputs = case.inputs(3)
    expected = case.oracle(weights_of(case, layer), inputs)
    steps = functools.partial(case.run_steps, layer)
    for function in {steps, at_once(steps)}:  # JAX compiles them, too
        assert_close_where_real(case, arrays_from(function, inputs), expected, inputs)


@every_stepped_case
def test_memory_and_state_are_batch_first_tensors_that_a_search_can_reorder(name):
    case, layer = CASES[name], built(name)
    inputs = case.inputs(4)
    memory, before, after = case.carried(layer, tensors_of(inputs))
    for leaf in tree.flatten((memory, before, after)):
        assert ops.is_tensor(leaf) and leaf.shape[0] == BATCH
    tree.assert_same_structure(before, after)
    for first, second in zip(tree.flatten(before), tree.flatten(after), strict=True):
        assert first.shape == second.shape and first.dtype == second.dtype
    order = np.array([2, 0, 2, 1])
    reordered = {key: value[order] for key, value in inputs.items()}
    wanted = case.carried(layer, tensors_of(reordered))
    for given, leaf in zip(
        tree.flatten((memory, before, after)), tree.flatten(wanted), strict=True
    ):
        taken = to_numpy(ops.take(given, order, axis=0))
        np.testing.assert_allclose(taken, to_numpy(leaf), atol=1e-6)


@every_case
def test_the_layer_keeps_nothing_between_calls(name):
    """Memory and state are arguments and results: another call in between changes nothing."""
    case, layer = CASES[name], built(name)
    inputs = case.inputs()
    first = called(name)
    case.call(layer, tensors_of(case.inputs(8)))
    attributes = set(vars(layer))
    if name in STEPPED:
        case.run_steps(layer, tensors_of(case.inputs(8)))
    assert set(vars(layer)) == attributes
    kept = {k: v for k, v in vars(layer).items() if not isinstance(v, keras.Variable)}
    assert not [key for key, value in kept.items() if ops.is_tensor(value)]
    assert_close(arrays_from(lambda x: case.call(layer, x), inputs), first, atol=0)


@every_case
def test_without_more_asked_for_a_call_returns_one_tensor(name):
    case, layer = CASES[name], built(name)
    accepted = inspect.signature(case.layer.call).parameters
    inputs = {key: value for key, value in case.inputs().items() if key in accepted}
    full = case.call(layer, tensors_of(inputs))
    first, *others = tensors_of(inputs).items()
    alone = layer(first[1], **dict(others), **getattr(case, "fixed", {}))
    np.testing.assert_allclose(to_numpy(alone), to_numpy(full[case.output]), atol=1e-6)


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].one_input_suffices])
def test_model_add_gives_the_layer_its_one_input(name):
    """Self-attention, where a layer reads two sequences; masked by what comes before it."""
    layer, case = CASES[name].self_attention()
    x = case.inputs()[case.first]
    model = keras.Sequential()
    model.add(keras.Input((None,) * (x.ndim - 2) + x.shape[-1:]))
    model.add(keras.layers.Masking(mask_value=5.0))
    model.add(layer)
    randomise(layer)
    weights, mask = weights_of(case, layer), sequence_mask(case)
    expected = case.oracle(weights, case.of_one_input(x, np.ones_like(mask)))[case.output]
    np.testing.assert_allclose(to_numpy(model(x)), expected, atol=2e-5, rtol=1e-4)
    letters = case.axes[case.output]
    assert model.output_shape == tuple(
        None if letter in OPEN else size
        for letter, size in zip(letters, expected.shape, strict=True)
    )
    assert tuple(layer.compute_output_shape(x.shape)) == expected.shape
    padded = np.where(mask[..., None], x, np.float32(5.0))
    expected = case.oracle(weights, case.of_one_input(padded, mask))[case.output]
    result = to_numpy(model(padded))
    assert result.shape == expected.shape
    steps = mask if result.ndim == x.ndim else np.ones(len(x), bool)  # else no step is left
    np.testing.assert_allclose(result[steps], expected[steps], atol=2e-5, rtol=1e-4)


def sequence_mask(case):
    """The mask of the one input, also where its case masks nothing."""
    x = case.inputs()[case.first]
    lengths = np.array([x.shape[-2], 4, 1])
    return np.broadcast_to(
        np.arange(x.shape[-2]) < lengths.reshape(-1, *[1] * (x.ndim - 2)), x.shape[:-1]
    )


WRONG = [
    (name, label, inputs) for name, case in CASES.items() for label, inputs in case.wrong_inputs()
]


@pytest.mark.parametrize(
    ("name", "inputs"),
    [(name, inputs) for name, _, inputs in WRONG],
    ids=[f"{name}-{label}" for name, label, _ in WRONG],
)
def test_inputs_that_do_not_fit_are_refused(name, inputs):
    for given in (tensors_of(inputs), symbols_of(inputs)):
        with pytest.raises(ValueError, match="Received: "):
            CASES[name].call(built(name), given)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("luong-dot")])
def test_a_dot_score_of_unequal_sizes_names_the_way_out(name):
    layer = CASES[name].layer(**CASES[name].options)
    with pytest.raises(ValueError, match="general.*Received: .*11.*13"):
        layer.build((None, None, 11), (None, None, 13))


@pytest.mark.parametrize("name", RECURRENT)
def test_a_memory_cannot_be_prepared_before_the_weights_exist(name):
    layer, case = CASES[name].self_attention()
    with pytest.raises(ValueError, match="no weights yet"):
        layer.prepare_memory(tensors_of(case.inputs())["value"])
