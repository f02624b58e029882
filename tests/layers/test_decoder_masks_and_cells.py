"""The decoder at masked steps, and cells whose output is not their first state."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_attention.layers import (
    AttentionDecoder,
    BahdanauAttention,
    CoverageAttention,
    LocalAttention,
    LuongAttention,
)
from tests.contracts.backend import BACKEND, gradients_of, random, to_numpy
from tests.contracts.kinds import randomise

BATCH, STEPS, LENGTH, INPUT, VALUE, UNITS = 3, 5, 7, 2, 6, 11

DECODERS = {
    "fused-gru": lambda: AttentionDecoder(layers.GRUCell(UNITS), BahdanauAttention(5)),
    "fused-stack-feeding": lambda: AttentionDecoder(
        [layers.LSTMCell(4), layers.GRUCell(UNITS)],
        LuongAttention("general"),
        query="current",
        input_feeding=True,
    ),
    "fused-coverage": lambda: AttentionDecoder(
        layers.LSTMCell(UNITS), CoverageAttention(5, loss_weight=1.0), attention_size=4
    ),
    "steps-local": lambda: AttentionDecoder(
        layers.SimpleRNNCell(UNITS), LocalAttention(1, score="general")
    ),
    "steps-coverage": lambda: AttentionDecoder(layers.SimpleRNNCell(UNITS), CoverageAttention(5)),
    "steps-residual": lambda: AttentionDecoder(
        Residual(layers.GRUCell(INPUT + VALUE)), BahdanauAttention(5)
    ),
}


@keras.saving.register_keras_serializable("keras_attention_tests")
class Residual(layers.Layer):
    """A cell that adds its input to the output of another."""

    def __init__(self, cell, **kwargs):
        super().__init__(**kwargs)
        self.cell = cell
        self.state_size, self.output_size = cell.state_size, cell.units

    def build(self, shape):
        self.cell.build(shape)

    def call(self, inputs, states):
        output, states = self.cell(inputs, states)
        return output + inputs, states


@keras.saving.register_keras_serializable("keras_attention_tests")
class Turned(layers.Layer):
    """An LSTM whose states come in the order c, h, with another size each."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.state_size, self.output_size = [4, UNITS], UNITS

    def build(self, shape):
        self.first = layers.Dense(4, activation="tanh")
        self.first.build((None, shape[-1] + 4))
        self.second = layers.Dense(UNITS, activation="tanh")
        self.second.build((None, 4 + UNITS))

    def call(self, inputs, states):
        carry, hidden = states
        carry = self.first(ops.concatenate([inputs, carry], axis=1))
        hidden = self.second(ops.concatenate([carry, hidden], axis=1))
        return hidden, [carry, hidden]


@keras.saving.register_keras_serializable("keras_attention_tests")
class Projected(layers.Layer):
    """A GRU whose output is a projection of its state."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.state_size, self.output_size = UNITS, 4

    def build(self, shape):
        self.cell = layers.GRUCell(UNITS)
        self.cell.build(shape)
        self.projection = layers.Dense(4)
        self.projection.build((None, UNITS))

    def call(self, inputs, states):
        hidden, states = self.cell(inputs, states)
        return self.projection(hidden), states


CELLS = {
    # The cell, and the first query from the first states.
    "c-h": (Turned, lambda states: states[1]),
    "projected": (Projected, lambda states: np.zeros((BATCH, 4), "float32")),
    "residual": (lambda: Residual(layers.GRUCell(INPUT + VALUE)), lambda states: states[0]),
    "residual-on-top": (
        lambda: [layers.LSTMCell(UNITS), Residual(layers.GRUCell(UNITS))],
        lambda states: states[2],
    ),
    "c-h-on-top": (lambda: [layers.GRUCell(3), Turned()], lambda states: states[2]),
}


def made(make):
    decoder = make()
    decoder.build((None, None, INPUT), (None, None, VALUE))
    return randomise(decoder)


def arrays():
    return random(1, BATCH, STEPS, INPUT), random(2, BATCH, LENGTH, VALUE)


def padded(x, before, after, filling=np.nan):
    """Inputs between padding, and their mask."""
    inputs = np.full((BATCH, before + STEPS + after, INPUT), filling, "float32")
    mask = np.zeros(inputs.shape[:2], bool)
    inputs[:, before : before + STEPS], mask[:, before : before + STEPS] = x, True
    return inputs, mask


def results(decoder, *args, **options):
    names = ("outputs", "contexts", "scores", "state")
    flags = {"return_context": True, "return_attention_scores": True, "return_state": True}
    return dict(zip(names, decoder(*args, **flags, **options), strict=True))


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("name", DECODERS)
def test_padding_on_either_side_changes_nothing(name, before):
    decoder = made(DECODERS[name])
    x, memory = arrays()
    expected = results(decoder, x, memory)
    losses = [to_numpy(loss) for loss in decoder.losses]
    inputs, mask = padded(x, before, 3)
    found = results(decoder, inputs, memory, inputs_mask=mask)
    np.testing.assert_allclose([to_numpy(loss) for loss in decoder.losses], losses, rtol=1e-5)
    for key in ("outputs", "contexts", "scores"):
        got, real = to_numpy(found[key]), to_numpy(expected[key])
        np.testing.assert_allclose(got[:, before : before + STEPS], real, atol=1e-5)
        if key != "outputs":
            assert not np.any(got[~mask])
            continue
        after = got[:, before + STEPS :]
        np.testing.assert_allclose(after, np.repeat(real[:, -1:], 3, axis=1), atol=1e-5)
        assert not np.any(got[:, :before])
    keras.tree.map_structure(
        lambda one, other: np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-5),
        found["state"],
        expected["state"],
    )


def test_a_row_without_a_real_step_keeps_its_state():
    decoder = made(DECODERS["fused-gru"])
    x, memory = arrays()
    mask = np.ones((BATCH, STEPS), bool)
    mask[1] = False
    state = results(decoder, x, memory)["state"]
    after = results(decoder, x, memory, initial_state=state, inputs_mask=mask)["state"]
    for name in ("context", "cell"):
        one, other = (keras.tree.flatten(each[name])[0] for each in (after, state))
        np.testing.assert_array_equal(to_numpy(one)[1], to_numpy(other)[1])
        assert np.any(to_numpy(one)[0] != to_numpy(other)[0])


@pytest.mark.parametrize("name", DECODERS)
def test_no_nan_in_padding_reaches_a_gradient(name):
    decoder = made(DECODERS[name])
    x, memory = arrays()
    factors = ops.convert_to_tensor(random(9, BATCH, STEPS, decoder.output_size))

    def loss_of(before, after):
        def loss(inputs, memory):
            mask = padded(x, before, after)[1]
            found = results(decoder, inputs, memory, inputs_mask=mask, training=True)
            state = sum(ops.sum(part) for part in keras.tree.flatten(found["state"]["cell"]))
            return state + ops.sum(found["outputs"][:, before : before + STEPS] * factors)

        return loss

    expected = gradients_of(loss_of(0, 0), x, memory, layer=decoder)
    found = gradients_of(loss_of(2, 3), padded(x, 2, 3)[0], memory, layer=decoder)
    expected[-2] = padded(expected[-2], 2, 3, 0)[0]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", CELLS)
def test_the_query_is_the_output_of_the_cell(name):
    make, first_query = CELLS[name]
    decoder = made(lambda: AttentionDecoder(make(), BahdanauAttention(5)))
    x, memory = arrays()
    sizes = keras.tree.flatten(decoder.cell.state_size)
    first = [random(5 + place, BATCH, size, scale=0.5) for place, size in enumerate(sizes)]
    prepared = decoder.attention.prepare_memory(memory)
    states, query, expected = [ops.convert_to_tensor(s) for s in first], first_query(first), []
    for step in range(STEPS):
        context, _, _ = decoder.attention.step(query, prepared, {})
        inputs = ops.concatenate([x[:, step], context], axis=1)
        nested = keras.tree.pack_sequence_as(decoder.cell.state_size, states)
        nested = nested if keras.tree.is_nested(decoder.cell.state_size) else [nested]
        query, states = decoder.cell(inputs, nested)
        states = keras.tree.flatten(states)
        expected.append(to_numpy(query))
    found, state = decoder(x, memory, first, return_state=True)
    np.testing.assert_allclose(to_numpy(found), np.stack(expected, axis=1), atol=1e-5)
    halves = decoder(x[:, :2], memory, first, return_state=True)
    rest = decoder(x[:, 2:], memory, halves[1])
    np.testing.assert_allclose(to_numpy(rest), to_numpy(found)[:, 2:], atol=1e-5)
    spec = decoder.compute_output_spec(
        keras.KerasTensor(x.shape), keras.KerasTensor(memory.shape), return_state=True
    )
    assert set(spec[1]) == set(state)


def test_an_output_of_another_size_than_is_said_is_refused():
    cell = Projected()
    cell.output_size = 5
    with pytest.raises(ValueError, match="output_size"):
        made(lambda: AttentionDecoder(cell, BahdanauAttention(5)))


@pytest.mark.parametrize(
    ("cell", "instead"),
    [
        (lambda: layers.GRU(8), r"keras\.layers\.GRUCell\(8\)"),
        (lambda: [layers.LSTMCell(4), layers.LSTM(8)], r"keras\.layers\.LSTMCell\(8\)"),
        (lambda: layers.RNN(layers.GRUCell(8)), "its `cell`"),
    ],
)
def test_a_recurrent_layer_is_no_cell(cell, instead):
    with pytest.raises(ValueError, match=instead):
        AttentionDecoder(cell(), BahdanauAttention(5))


@pytest.mark.skipif(BACKEND != "tensorflow", reason="only TensorFlow leaves lengths open")
@pytest.mark.parametrize("alignment", ["monotonic", "predictive"])
def test_local_attention_trains_in_a_decoder_under_xla_with_open_lengths(alignment):
    import tensorflow as tf

    attention = LocalAttention(1, alignment=alignment, score="general")
    decoder = made(lambda: AttentionDecoder(layers.GRUCell(UNITS), attention))

    def gradients(x, memory):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(decoder(x, memory)))
        return tape.gradient(loss, [weight.value for weight in decoder.trainable_weights])

    signature = [tf.TensorSpec((None, None, size)) for size in (INPUT, VALUE)]
    compiled = tf.function(gradients, input_signature=signature, jit_compile=True)
    for length in (LENGTH, 13):  # 13 > 4 windows of 3
        x, memory = arrays()[0], random(3, BATCH, length, VALUE)
        pairs = zip(compiled(x, memory), gradients(x, memory), strict=True)
        for one, other in pairs:
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
