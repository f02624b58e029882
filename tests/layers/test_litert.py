"""Layers in a program of LiteRT, as its plain converter makes it."""

import keras
import numpy as np
import pytest

from keras_attention.layers import BahdanauAttention, LocalAttention, LuongAttention
from tests.contracts.backend import BACKEND, random, to_numpy

pytestmark = pytest.mark.skipif(BACKEND != "tensorflow", reason="LiteRT converts TensorFlow")
SIZE = 6


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "steps", "length"),
    [
        (lambda: BahdanauAttention(7, use_bias=True), 3, 5),
        (lambda: BahdanauAttention(7), 13, 11),
        (lambda: LuongAttention("concat", units=7), 3, 5),
        (lambda: LocalAttention(1, score="concat", units=7), 3, 5),
    ],
    ids=["bahdanau", "bahdanau-blocks", "concat", "local"],
)
def test_additive_attention_of_known_lengths_is_converted(make, steps, length, tmp_path):
    import tensorflow as tf

    query = keras.Input((steps, SIZE), name="a")
    memory = keras.Input((length, SIZE), name="b")
    model = keras.Model([query, memory], make()(query, memory))
    model.export(tmp_path / "model", verbose=False)
    program = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / "model")).convert()
    arrays = [random(1, 2, steps, SIZE), random(2, 2, length, SIZE)]
    runner = tf.lite.Interpreter(model_content=program)
    inputs = sorted(runner.get_input_details(), key=lambda each: each["name"])
    for each, array in zip(inputs, arrays, strict=True):
        runner.resize_tensor_input(each["index"], array.shape)
    runner.allocate_tensors()
    for each, array in zip(inputs, arrays, strict=True):
        runner.set_tensor(each["index"], array)
    runner.invoke()
    found = runner.get_tensor(runner.get_output_details()[0]["index"])
    np.testing.assert_allclose(found, to_numpy(model(arrays)), atol=1e-5)
