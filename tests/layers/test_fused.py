"""The decoder's own loop with its own gradients gives what the loop of steps gives."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import (
    AttentionDecoder,
    AttentionMechanism,
    BahdanauAttention,
    CoverageAttention,
    LoopScore,
    LuongAttention,
)
from keras_attention.layers.recurrent import attention_decoder
from keras_attention.layers.recurrent.fused import fused
from keras_attention.ops.normalizers import masked_softmax
from tests.contracts.backend import (
    at_once,
    gradients_of,
    random,
    tensors_of,
    to_numpy,
    weighted_sum,
)
from tests.contracts.kinds import randomise

B, T, S, E, V, C, U = 3, 4, 7, 2, 13, 3, 17
MASK = np.arange(S) < np.array([7, 4, 0])[:, None]
ARRAYS = {"x": random(1, B, T, E), "value": random(2, B, S, V)}

CELLS = {
    "gru": lambda: keras.layers.GRUCell(C),
    "gru-no-bias": lambda: keras.layers.GRUCell(C, use_bias=False),
    "gru-reset-before": lambda: keras.layers.GRUCell(C, reset_after=False),
    "gru-reset-before-no-bias": lambda: keras.layers.GRUCell(C, reset_after=False, use_bias=False),
    "lstm": lambda: keras.layers.LSTMCell(C),
    "lstm-no-bias": lambda: keras.layers.LSTMCell(C, use_bias=False),
    "lstm-stack": lambda: [keras.layers.LSTMCell(5), keras.layers.LSTMCell(C)],
    "mixed-stack": lambda: [
        keras.layers.GRUCell(5, reset_after=False),
        keras.layers.LSTMCell(11, use_bias=False),
        keras.layers.GRUCell(C),
    ],
}
MECHANISMS = {
    "additive": lambda **options: BahdanauAttention(U, use_bias=True, **options),
    "coverage": lambda **options: CoverageAttention(U, use_bias=True, **options),
    "general": lambda **options: LuongAttention("general", **options),
    "concat": lambda **options: LuongAttention("concat", units=U, **options),
    "location": lambda **options: LuongAttention("location", max_length=6, **options),
}
ORDERS = {
    "previous": {},
    "previous-vector": {"attention_size": 7},
    "current": {"query": "current"},
    "feeding": {"query": "current", "attention_size": 7, "input_feeding": True},
    "linear": {
        "query": "current",
        "attention_size": 7,
        "input_feeding": True,
        "attention_activation": None,
    },
    "previous-linear": {"attention_size": 7, "attention_activation": "linear"},
}


def results_and_gradients(make, training=False):
    """Everything that a call gives, and the gradients of a weighted sum of all of it."""
    layer = make()
    layer.build((None, None, E), (None, None, V))
    randomise(layer)
    sizes = keras.tree.flatten(layer.cell.state_size)
    states = [random(5 + i, B, size) for i, size in enumerate(sizes)]

    def call(x, value, *states):
        sequences = layer(
            x,
            value,
            initial_state=list(states),
            value_mask=ops.convert_to_tensor(MASK),
            return_context=True,
            return_attention_scores=True,
            return_state=True,
            training=training,
        )
        return keras.tree.flatten(sequences)

    def loss(*tensors):
        results = call(*tensors)
        return sum(
            weighted_sum(result, random(20 + i, *result.shape)) for i, result in enumerate(results)
        )

    arrays = [*ARRAYS.values(), *states]
    results = at_once(lambda tensors: call(*tensors))([*map(ops.convert_to_tensor, arrays)])
    return [to_numpy(result) for result in results] + gradients_of(loss, *arrays, layer=layer)


def step_by_step(monkeypatch):
    """Makes every decoder take the loop of steps."""
    monkeypatch.setattr(attention_decoder, "fused", lambda *args: None)


def assert_both_agree(monkeypatch, make, training=False, **options):
    taken = []
    loop = attention_decoder.fused
    monkeypatch.setattr(
        attention_decoder,
        "fused",
        lambda *args: taken.append(loop(*args)) or taken[-1],
    )
    results = results_and_gradients(make, training)
    assert taken and None not in taken, "the decoder did not take its own loop"
    step_by_step(monkeypatch)
    expected = results_and_gradients(make, training)
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)


# The order does not know the mechanism: by default, a few of both.
@pytest.mark.by_default("coverage-feeding", "concat-feeding", "coverage-current", "general-linear")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_loops_agree_for_every_mechanism_and_order(monkeypatch, mechanism, order):
    cell = {"previous": "gru", "previous-vector": "lstm", "current": "gru"}.get(order, "lstm-stack")
    assert_both_agree(
        monkeypatch,
        lambda: AttentionDecoder(CELLS[cell](), MECHANISMS[mechanism](), **ORDERS[order]),
    )


# The stack has both kinds, without a bias and with the reset gate before the product.
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.by_default("gru", "lstm", "mixed-stack")
def test_loops_agree_for_every_cell(monkeypatch, cell):
    options = ORDERS["feeding"]
    assert_both_agree(
        monkeypatch, lambda: AttentionDecoder(CELLS[cell](), MECHANISMS["general"](), **options)
    )


@pytest.mark.parametrize("mechanism", ["additive", "coverage", "general"])
def test_loops_agree_with_dropout_of_the_weights(monkeypatch, mechanism):
    assert_both_agree(
        monkeypatch,
        lambda: AttentionDecoder(CELLS["gru"](), MECHANISMS[mechanism](dropout=0.4, seed=3)),
        training=True,
    )


@pytest.mark.parametrize("order", ["previous", "feeding"])
def test_loops_agree_with_dropout_in_cells(monkeypatch, order):
    def make():
        cells = [keras.layers.GRUCell(5, dropout=0.4, seed=1)]
        cells += [keras.layers.LSTMCell(C, dropout=0.3, seed=2)]
        return AttentionDecoder(cells, MECHANISMS["general"](), **ORDERS[order])

    assert_both_agree(monkeypatch, make, training=True)


def test_loops_agree_for_a_dot_score(monkeypatch):
    """Queries and keys of one size, and no weight between them."""
    assert_both_agree(
        monkeypatch, lambda: AttentionDecoder(keras.layers.GRUCell(V), LuongAttention("dot"))
    )


def test_an_attentional_vector_of_another_activation_takes_the_loop_of_steps():
    """Only of tanh and of none the fast loop knows the derivative."""
    layer = AttentionDecoder(
        CELLS["gru"](), MECHANISMS["general"](), query="current", attention_activation="relu"
    )
    layer.build((None, None, E), (None, None, V))
    parts = layer.cell, layer.attention
    assert fused(*parts, layer.attention_activation) is None
    assert fused(*parts, keras.activations.linear) is not None


class SharpAttention(BahdanauAttention):
    """A user's subclass, with a score of its own."""

    def score(self, query, key, positions):
        return 3.0 * super().score(query, key, positions) + ops.cast(positions, query.dtype)


class NamedAttention(BahdanauAttention):
    """A user's subclass, which scores as its parent does."""

    def get_config(self):
        return super().get_config()


class OwnScore(LoopScore):
    """`e_s = f q . k_s - d p_s`, where `p_s` says how much was read of a place before."""

    summed = ("price",)

    def score(self, query, key, state, weights):
        fit = ops.squeeze(ops.matmul(key, ops.expand_dims(query, 2)), 2)
        return weights["factor"] * fit - weights["price"] * state["read"]

    def query_gradient(self, upstream, query, key, state, weights):
        by_query = ops.squeeze(ops.matmul(ops.expand_dims(upstream, 1), key), 1)
        sums = {"price": -ops.sum(upstream * state["read"])}
        return weights["factor"] * by_query, {"read": -weights["price"] * upstream}, sums

    def memory_gradients(self, upstream, query, key, weights, sums):
        by_key = ops.matmul(ops.swapaxes(upstream, 1, 2), query)
        by_factor = ops.sum(by_key * key)
        return {"key": weights["factor"] * by_key, "factor": by_factor, **sums}

    def keep(self, state, attention):
        return {"read": 0.5 * state["read"] + attention * attention}

    def keep_gradients(self, upstream, state, attention):
        return {"read": 0.5 * upstream["read"]}, 2.0 * attention * upstream["read"]


class OwnAttention(AttentionMechanism):
    """A user's mechanism with a state and a gradient of its own."""

    def build_score(self, query_size, key_size):
        self.query_kernel = self.add_weight((query_size, key_size), name="query_kernel")
        self.factor = self.add_weight((), initializer="ones", name="factor")
        self.price = self.add_weight((), initializer="ones", name="price")

    def initial_state(self, memory):
        return {"read": ops.zeros_like(memory["value"][:, :, 0])}

    def attend(self, query, memory, state, query_mask=None, return_attention_scores=True):
        """Take one query, as a decoder's step gives it."""
        query = ops.matmul(query, self.cast(self.query_kernel))
        scores = ops.matmul(query, ops.swapaxes(memory["key"], 1, 2)) * self.cast(self.factor)
        scores = scores - self.cast(self.price) * ops.expand_dims(state["read"], 1)
        weights = masked_softmax(scores, ops.expand_dims(memory["mask"], 1))
        after = {"read": 0.5 * state["read"] + weights[:, 0] ** 2}
        return self.read(weights, memory), weights, after

    def loop_score(self):
        weights = {"factor": self.cast(self.factor), "price": self.cast(self.price)}
        return OwnScore(self.cast(self.query_kernel), **weights)


@pytest.mark.parametrize("order", ["previous", "feeding"])
def test_loops_agree_for_a_mechanism_with_its_own_gradient(monkeypatch, order):
    assert_both_agree(
        monkeypatch, lambda: AttentionDecoder(CELLS["gru"](), OwnAttention(), **ORDERS[order])
    )


class OnlyFirst(LuongAttention):
    """A user's subclass, with a mask of its own."""

    def score_mask(self, positions):
        return positions < 1


class DoublingCell(keras.layers.GRUCell):
    """A user's subclass, with a step of its own."""

    def call(self, inputs, states, training=False):
        output, states = super().call(inputs, states, training=training)
        return 2.0 * output, states


@pytest.mark.parametrize(
    ("cell", "attention", "is_fast"),
    [
        (keras.layers.GRUCell, lambda: NamedAttention(U), True),
        (keras.layers.GRUCell, lambda: OnlyFirst("general"), True),
        (keras.layers.GRUCell, lambda: SharpAttention(U), False),
        (DoublingCell, lambda: BahdanauAttention(U), False),
    ],
    ids=["inherits", "mask", "score", "cell"],
)
def test_a_subclass_is_as_fast_as_it_declares_and_gives_its_own_result(cell, attention, is_fast):
    """A loop that knows the parent's equations must not be taken for the subclass's."""
    layer = AttentionDecoder(cell(C), attention(), query="current")
    x, value = tensors_of(ARRAYS).values()
    layer.build(x.shape, value.shape)
    outputs, scores = randomise(layer)(x, value, return_attention_scores=True)
    assert (fused(layer.cell, layer.attention) is not None) == is_fast
    memory = layer.prepare_memory(value)
    state = layer.initial_state(memory)
    for t in range(T):
        output, weights, state = layer.step(x[:, t], memory, state)
        np.testing.assert_allclose(to_numpy(output), to_numpy(outputs)[:, t], atol=1e-5)
        np.testing.assert_allclose(to_numpy(weights), to_numpy(scores)[:, t], atol=1e-5)


def test_numbers_that_are_none_in_padding_reach_no_gradient():
    layer = AttentionDecoder(CELLS["lstm-stack"](), MECHANISMS["additive"](), query="current")
    layer.build((None, None, E), (None, None, V))
    randomise(layer)
    poisoned = np.where(MASK[..., None], ARRAYS["value"], np.float32(np.nan))
    factors = random(9, B, T, C)

    def gradients(value):
        def loss(x, value):
            outputs = layer(x, value, value_mask=ops.convert_to_tensor(MASK))
            return weighted_sum(outputs, factors)

        return gradients_of(loss, ARRAYS["x"], value)

    for poison, clean in zip(gradients(poisoned), gradients(ARRAYS["value"]), strict=True):
        np.testing.assert_array_equal(poison, clean)
