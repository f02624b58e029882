"""What a call is given: ragged tensors, shapes without tensors, subclasses with other arguments."""

import inspect

import keras
import numpy as np
import pytest

from tests.contracts.backend import BACKEND, symbols_of, tensors_of, to_numpy
from tests.contracts.kinds import Mechanism
from tests.contracts.registry import CASES, FIRST_CASES
from tests.contracts.test_calls import WRONG, built

SHAPES_ALONE = [
    (name, label, inputs)
    for name, label, inputs in WRONG
    if "mask" not in label and "state" not in label and hasattr(CASES[name].layer, "build")
]


def shapes_of(name, inputs):
    """The shapes that a layer's `compute_output_shape` takes."""
    taken = inspect.signature(CASES[name].layer.compute_output_shape).parameters
    return {f"{key}_shape": array.shape for key, array in inputs.items() if f"{key}_shape" in taken}


@pytest.mark.parametrize(
    ("name", "inputs"),
    [(name, inputs) for name, _, inputs in SHAPES_ALONE],
    ids=[f"{name}-{label}" for name, label, _ in SHAPES_ALONE],
)
def test_compute_output_shape_refuses_what_the_call_refuses(name, inputs):
    good, wrong = shapes_of(name, CASES[name].inputs()), shapes_of(name, inputs)
    if not good or wrong == good:
        pytest.skip("The layer's shapes do not show it.")
    built(name).compute_output_shape(**good)
    with pytest.raises(ValueError, match="Received: "):
        built(name).compute_output_shape(**wrong)


def positional(name):
    """The arrays that a case's layer needs at least, in order: the floating point ones."""
    case = CASES[name]
    required = [
        parameter.name
        for parameter in list(inspect.signature(case.layer.call).parameters.values())[1:]
        if parameter.default is parameter.empty
    ]
    inputs = case.inputs()
    if isinstance(case, Mechanism) or "value" in inputs:
        required = [*required, "value"]
    return {key: inputs[key] for key in dict.fromkeys(required)}


@pytest.mark.parametrize("name", sorted(FIRST_CASES))
def test_a_subclass_whose_call_takes_fewer_arguments_works_on_symbols(name):
    """With the shape of what its own call returns."""
    case, given = CASES[name], positional(name)
    names = ", ".join(given)
    space = {"keras": keras, "base": case.layer}
    source = f"""
class Narrow(base):
    def call(self, {names}):
        return keras.ops.concatenate(2 * [super().call({names})], axis=-1)
"""
    exec(source, space)  # noqa: S102
    narrow = space["Narrow"]
    layer = narrow(case.make_cell(), case.make_attention()) if hasattr(case, "make_cell") else None
    if layer is None:
        plain = {k: v for k, v in case.options.items()}
        made = case.new() if hasattr(case, "new") and type(case).__name__ == "OfParts" else None
        options = {"word_attention": made.word_attention} if made else plain
        if made:
            options["sentence_attention"] = made.sentence_attention
        layer = narrow(**options)
    symbols = {
        key: keras.Input(batch_shape=(None, *array.shape[1:]), dtype=str(array.dtype))
        for key, array in given.items()
    }
    outputs = layer(*symbols.values())
    model = keras.Model(list(symbols.values()), outputs)
    result = to_numpy(model([given[key] for key in symbols]))
    assert outputs.shape == (None, *result.shape[1:])
    half = result.shape[-1] // 2
    np.testing.assert_array_equal(result[..., :half], result[..., half:])


@pytest.mark.skipif(BACKEND != "tensorflow", reason="Ragged tensors are TensorFlow's.")
@pytest.mark.parametrize("name", sorted(FIRST_CASES))
def test_ragged_tensors_are_refused(name):
    """Eagerly, in a graph, and in what is prepared for steps."""
    import tensorflow as tf

    case, layer = CASES[name], built(name)
    inputs = case.inputs()
    for key, array in inputs.items():
        if array.ndim < 2 or key in case.masks:
            continue
        lengths = [array.shape[1] - (b % 2) for b in range(len(array))]
        ragged = tf.RaggedTensor.from_tensor(array, lengths)
        given = tensors_of(inputs) | {key: ragged}
        with pytest.raises(ValueError, match="dense tensor with a mask.*Received: .*ragged"):
            case.call(layer, given)
        with pytest.raises(ValueError, match="dense tensor with a mask.*Received: .*ragged"):
            tf.function(lambda given=given: case.call(layer, given))()
    if hasattr(layer, "prepare_memory") and "value" in inputs:
        value = tf.RaggedTensor.from_tensor(inputs["value"], [7, 4, 1])
        with pytest.raises(ValueError, match="dense tensor with a mask.*Received: .*ragged"):
            layer.prepare_memory(value)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="Ragged tensors are TensorFlow's.")
def test_ragged_symbols_are_refused():
    name = "ssru"
    symbol = keras.KerasTensor((None, None, CASES[name].inputs()["inputs"].shape[2]), ragged=True)
    with pytest.raises(ValueError, match="dense tensor with a mask"):
        built(name)(symbol)


def test_symbols_are_no_ragged_tensors():
    case = CASES["multi-head"]
    case.call(built("multi-head"), symbols_of(case.inputs()))
