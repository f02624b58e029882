"""The decoder's own loop with its own gradients gives what the loop of steps gives."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import (
    AttentionDecoder,
    BahdanauAttention,
    CoverageAttention,
    LuongAttention,
    attention_decoder,
)
from tests.contracts.backend import (
    input_gradients,
    random,
    tensors_of,
    to_numpy,
    weight_gradients,
    weighted_sum,
)
from tests.contracts.kinds import randomise

B, T, S, E, V, C, U = 3, 5, 7, 2, 13, 3, 17
MASK = np.arange(S) < np.array([7, 4, 0])[:, None]
ARRAYS = {"x": random(1, B, T, E), "value": random(2, B, S, V)}

CELLS = {
    "gru": lambda: keras.layers.GRUCell(C),
    "gru-no-bias": lambda: keras.layers.GRUCell(C, use_bias=False),
    "gru-reset-before": lambda: keras.layers.GRUCell(C, reset_after=False),
    "gru-reset-before-no-bias": lambda: keras.layers.GRUCell(C, reset_after=False, use_bias=False),
    "lstm": lambda: keras.layers.LSTMCell(C),
    "lstm-no-bias": lambda: keras.layers.LSTMCell(C, use_bias=False),
}
MECHANISMS = {
    "additive": lambda **options: BahdanauAttention(U, use_bias=True, **options),
    "coverage": lambda **options: CoverageAttention(U, use_bias=True, **options),
    "general": lambda **options: LuongAttention("general", **options),
    "concat": lambda **options: LuongAttention("concat", units=U, **options),
}
ORDERS = {
    "previous": {},
    "previous-vector": {"attention_size": 7},
    "current": {"query": "current"},
    "feeding": {"query": "current", "attention_size": 7, "input_feeding": True},
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
    tensors = list(tensors_of(dict(enumerate(arrays))).values())
    results = [to_numpy(result) for result in call(*tensors)]
    results += input_gradients(loss, *arrays)
    return results + weight_gradients(layer, lambda: loss(*tensors))


def step_by_step(monkeypatch):
    """Makes every decoder take the loop of steps."""
    monkeypatch.setattr(attention_decoder, "cell_products", lambda *args: None)


def assert_both_agree(monkeypatch, make, training=False):
    taken = []
    loop = attention_decoder.DecoderLoop.__call__
    monkeypatch.setattr(
        attention_decoder.DecoderLoop,
        "__call__",
        lambda self, *args: taken.append(self) or loop(self, *args),
    )
    results = results_and_gradients(make, training)
    assert taken, "the decoder did not take its own loop"
    count = len(taken)
    step_by_step(monkeypatch)
    expected = results_and_gradients(make, training)
    assert len(taken) == count
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_loops_agree_for_every_mechanism_and_order(monkeypatch, cell, mechanism, order):
    assert_both_agree(
        monkeypatch,
        lambda: AttentionDecoder(CELLS[cell](), MECHANISMS[mechanism](), **ORDERS[order]),
    )


@pytest.mark.parametrize("cell", CELLS)
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


def test_loops_agree_for_a_dot_score(monkeypatch):
    """Queries and keys of one size, and no weight between them."""
    assert_both_agree(
        monkeypatch, lambda: AttentionDecoder(keras.layers.GRUCell(V), LuongAttention("dot"))
    )


class SharpAttention(BahdanauAttention):
    """A user's subclass, with a score of its own."""

    def score(self, query, key, positions):
        return 3.0 * super().score(query, key, positions) + ops.cast(positions, query.dtype)


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
    ("cell", "attention"),
    [
        (keras.layers.GRUCell, lambda: SharpAttention(U)),
        (keras.layers.GRUCell, lambda: OnlyFirst("general")),
        (DoublingCell, lambda: BahdanauAttention(U)),
    ],
    ids=["score", "mask", "cell"],
)
def test_what_a_subclass_changes_is_what_runs(monkeypatch, cell, attention):
    """A loop that knows the parent's equations must not be taken for them."""

    def make():
        return AttentionDecoder(cell(C), attention(), query="current")

    results = results_and_gradients(make)
    step_by_step(monkeypatch)
    for result, wanted in zip(results, results_and_gradients(make), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)
