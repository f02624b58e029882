"""Dropout within the decoder: of the cell, of its recurrent part, of the attention."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import AttentionDecoder, BahdanauAttention
from tests.contracts.backend import compiled, random, tensors_of, to_numpy, weight_gradients
from tests.contracts.entries.decoders import LeakyCell
from tests.contracts.kinds import randomise

B, T, S, E, V, C, U = 3, 4, 7, 2, 13, 23, 17
ARRAYS = {"x": random(1, B, T, E), "value": random(2, B, S, V)}

MAKERS = {
    "cell": lambda: (keras.layers.GRUCell(C, dropout=0.5, seed=1), BahdanauAttention(U)),
    "recurrent": lambda: (
        keras.layers.LSTMCell(C, recurrent_dropout=0.5, seed=1),
        BahdanauAttention(U),
    ),
    "stack": lambda: (
        [
            keras.layers.GRUCell(5, dropout=0.4, seed=1),
            keras.layers.LSTMCell(C, dropout=0.4, seed=2),
        ],
        BahdanauAttention(U),
    ),
    "attention": lambda: (keras.layers.GRUCell(C), BahdanauAttention(U, dropout=0.5, seed=1)),
    "simple": lambda: (
        keras.layers.SimpleRNNCell(C, dropout=0.3, recurrent_dropout=0.4, seed=3),
        BahdanauAttention(U),
    ),
}
every_kind = pytest.mark.parametrize("kind", MAKERS)
every_order = pytest.mark.parametrize(
    "options", [{}, {"query": "current", "input_feeding": True}], ids=["previous", "feeding"]
)


def decoder(kind, **options):
    """A decoder with random weights."""
    layer = AttentionDecoder(*MAKERS[kind](), **options)
    layer.build((None, None, E), (None, None, V))
    return randomise(layer)


def outputs(layer, **options):
    """The outputs as an array."""
    return to_numpy(layer(*tensors_of(ARRAYS).values(), **options))


class DroppingCell(LeakyCell):
    """A cell whose `dropout` is a layer, not the rate of Keras' cells."""

    dropout = recurrent_dropout = keras.layers.Dropout(0.5)


def test_a_cell_may_drop_in_its_own_way():
    layer = AttentionDecoder(DroppingCell(C), BahdanauAttention(U))
    assert np.isfinite(outputs(layer, training=True)).all()


@pytest.mark.by_default("recurrent-feeding", "stack-previous", "attention-previous")
@every_order
@every_kind
def test_dropout_acts_in_training_and_anew_each_time(kind, options):
    layer = decoder(kind, **options)
    quiet = outputs(layer)
    # Without `training`, what gradients need is kept: on JAX that program rounds in another order.
    np.testing.assert_allclose(quiet, outputs(layer, training=False), rtol=1e-4, atol=1e-6)
    first, second = outputs(layer, training=True), outputs(layer, training=True)
    assert np.any(first != quiet) and np.any(first != second)
    assert np.all(np.isfinite(first))
    np.testing.assert_array_equal(outputs(layer), quiet)  # no mask stays behind


@pytest.mark.by_default("recurrent-feeding", "stack-previous", "cell-previous")
@every_order
@every_kind
def test_one_mask_serves_all_steps(kind, options):
    """With a constant input, a contracting recurrence settles; new noise a step would not."""
    layer = decoder(kind, **options)
    for weight in layer.weights:
        if "seed" not in weight.path:
            weight.assign(0.3 * weight)
    x = np.repeat(ARRAYS["x"][:, :1], 40, axis=1)
    result = to_numpy(
        layer(ops.convert_to_tensor(x), ops.convert_to_tensor(ARRAYS["value"]), training=True)
    )
    np.testing.assert_allclose(result[:, -1], result[:, -2], atol=1e-4)


@every_kind
def test_gradients_reach_every_weight(kind):
    layer = decoder(kind)
    tensors = tensors_of(ARRAYS).values()
    for gradient in weight_gradients(layer, lambda: ops.sum(layer(*tensors, training=True) ** 2)):
        assert gradient is not None
        assert np.all(np.isfinite(gradient)) and np.any(gradient != 0.0)


@every_kind
@pytest.mark.by_default("stack")
def test_a_compiled_training_step_and_a_plain_call_after_it(kind):
    """No tensor of the compiled function is left in the layer."""
    layer = decoder(kind)
    x, value = (keras.Input((None, size)) for size in (E, V))
    model = keras.Model([x, value], layer(x, value))
    model.compile("sgd", "mse", jit_compile=False if keras.backend.backend() != "jax" else "auto")
    target = random(3, B, T, C)
    losses = [model.train_on_batch(list(ARRAYS.values()), target) for _ in range(2)]
    assert np.all(np.isfinite(losses))
    assert np.all(np.isfinite(outputs(layer, training=True)))
    shorter = compiled(lambda arrays: layer(arrays["x"], arrays["value"]), ARRAYS)(
        tensors_of({"x": ARRAYS["x"][:2, :3], "value": ARRAYS["value"][:2, :4]})
    )
    assert tuple(shorter.shape) == (2, 3, C)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="open lengths are TensorFlow's")
@pytest.mark.parametrize("kind", ["recurrent", "stack", "simple"])
def test_gradients_with_open_lengths_are_those_of_the_masks_that_were_drawn(kind):
    import tensorflow as tf

    layer = decoder(kind)
    seeds = [each for each in layer.non_trainable_variables if "seed" in each.path]
    first = [np.array(each) for each in seeds]
    signature = [tf.TensorSpec((None, None, size), "float32") for size in (E, V)]

    def gradients(x, value):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x, value, training=True) ** 2)
        return tape.gradient(loss, [each.value for each in layer.trainable_variables])

    expected = gradients(*ARRAYS.values())
    for seed, state in zip(seeds, first, strict=True):
        seed.assign(state)
    found = tf.function(gradients, input_signature=signature)(*ARRAYS.values())
    assert seeds and not np.array_equal(first[0], np.array(seeds[0]))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
