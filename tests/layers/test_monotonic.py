"""Monotonic attention: exact at any probability, hard in inference, over any mechanism's score."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import (
    AttentionDecoder,
    BahdanauAttention,
    CoverageAttention,
    LuongAttention,
    MonotonicAttention,
    TemporalAttention,
)
from keras_attention.ops.monotonic import linear_recurrence, monotonic_weights
from tests.contracts.backend import BACKEND, gradients_of, random, to_numpy
from tests.contracts.kinds import randomise

B, T, S, Q, V = 3, 5, 7, 11, 13
QUERY, VALUE = random(1, B, T, Q), random(2, B, S, V)
MASK = np.array([[True] * S, [False, True, True, False, True, True, False], [True] + [False] * 6])


def reference(scores, before, mask, hard=False):
    """The weights of one query, one position after the other, in float64."""
    stop = (scores > 0) * 1.0 if hard else 1 / (1 + np.exp(-np.float64(scores)))
    stop = np.where(mask, stop, 0.0)
    weights, reached = np.zeros(scores.shape), np.zeros(len(scores))
    for s in range(scores.shape[1]):
        reached = reached * (1 - stop[:, s - 1] if s else 0) + before[:, s]
        weights[:, s] = stop[:, s] * reached
    return weights


def layer_of(mechanism=None, **options):
    layer = MonotonicAttention(mechanism or LuongAttention("general", scale=True), **options)
    layer.build((None, None, Q), (None, None, V))
    return randomise(layer)


@pytest.mark.parametrize("size", [1, 2, 3, 64, 1001])
@pytest.mark.parametrize("scale", [1.0, 30.0, 3000.0])
def test_the_recurrence_is_exact_for_probabilities_near_0_and_1(size, scale):
    scores = random(3, B, size, scale=scale)
    before = np.abs(random(4, B, size)) / size
    mask = np.random.default_rng(0).random((B, size)) < 0.9
    with np.errstate(over="ignore"):
        wanted = reference(scores, before, mask)
    found = monotonic_weights(scores, before, mask)
    np.testing.assert_allclose(to_numpy(found), wanted, rtol=2e-5, atol=1e-9)
    found = monotonic_weights(scores, before, mask, hard=True)
    np.testing.assert_allclose(to_numpy(found), reference(scores, before, mask, True), rtol=1e-6)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="only TensorFlow leaves lengths open")
@pytest.mark.parametrize("xla", [False, True])
def test_the_recurrence_of_open_length_and_its_gradients(xla):
    import tensorflow as tf

    given = [tf.constant(np.abs(random(i, B, S)) / 2) for i in (5, 6)]

    def gradients(decay, inputs):
        with tf.GradientTape() as outer:
            outer.watch([decay, inputs])
            with tf.GradientTape() as inner:
                inner.watch([decay, inputs])
                total = tf.reduce_sum(linear_recurrence(decay, inputs) ** 3)
            first = inner.gradient(total, [decay, inputs])
            squares = sum(tf.reduce_sum(x**2) for x in first)
        return [*first, *outer.gradient(squares, [decay, inputs])]

    signature = [tf.TensorSpec((None, None))] * 2
    found = tf.function(gradients, signature, jit_compile=xla)(*given)
    for one, other in zip(found, gradients(*given), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_query_in_inference_stops_at_the_first_position_over_a_half():
    layer = MonotonicAttention(LuongAttention("dot"), energy_bias_initializer="zeros")
    one_hot = np.eye(5, dtype="float32")
    memory = one_hot[[0, 1, 0, 2, 1]][None] - 0.5
    context, scores = layer(one_hot[[1, 1, 0, 1, 2]][None], memory, return_attention_scores=True)
    # The first 1, the same again, then the 0 behind it, the second 1; no 2 is left, nor later.
    assert to_numpy(scores)[0].argmax(axis=1).tolist() == [1, 1, 2, 4, 0]
    assert to_numpy(scores)[0].sum(axis=1).tolist() == [1, 1, 1, 1, 0]
    np.testing.assert_allclose(to_numpy(context)[0, :4], memory[0, [1, 1, 2, 4]], atol=1e-6)
    assert not np.any(to_numpy(context)[0, 4])


def test_soft_in_training_hard_in_inference_and_as_the_mode_says():
    options = {"value_mask": MASK, "return_attention_scores": True}
    soft = to_numpy(layer_of()(QUERY, VALUE, training=True, **options)[1])
    hard = to_numpy(layer_of()(QUERY, VALUE, **options)[1])
    assert set(np.unique(hard)) == {0.0, 1.0} and 1e-3 < soft[0, 0, 1] < 0.999
    for mode, wanted in (("soft", soft), ("hard", hard)):
        for training in (True, False):
            found = layer_of(mode=mode)(QUERY, VALUE, training=training, **options)[1]
            np.testing.assert_allclose(to_numpy(found), wanted, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: BahdanauAttention(4, normalize=True),
        lambda: LuongAttention("location", max_length=5),
        lambda: CoverageAttention(4, loss_weight=1.0),
        TemporalAttention,
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_over_any_score_steps_are_those_of_the_call(make, training):
    layer = layer_of(make())
    context, scores = (
        to_numpy(part)
        for part in layer(
            QUERY, VALUE, value_mask=MASK, return_attention_scores=True, training=training
        )
    )
    assert len(layer.losses) == isinstance(layer.mechanism, CoverageAttention)
    memory = layer.prepare_memory(VALUE, mask=MASK, training=training)
    state = layer.initial_state(memory)
    for t in range(T):
        before = to_numpy(state["alignment"])
        energies = layer.scores(layer.queries(QUERY[:, t : t + 1]), memory, add_step(state))
        found, weights, state = layer.step(QUERY[:, t], memory, state)
        real = to_numpy(memory["mask"])  # of "location", without the words past `max_length`
        wanted = reference(to_numpy(energies)[:, 0], before, real, not training)
        np.testing.assert_allclose(to_numpy(weights), wanted, atol=1e-6)
        np.testing.assert_allclose(scores[:, t], wanted, atol=1e-6)
        np.testing.assert_allclose(to_numpy(found), context[:, t], atol=1e-6)


def add_step(state):
    """The state of one step, with an axis of steps."""
    return {name: ops.expand_dims(part, 1) for name, part in state.items()}


def test_noise_is_drawn_in_training_alone_and_anew_at_each_step():
    layer = layer_of(sigmoid_noise=2.0, mode="soft", seed=3)
    plain = layer_of(mode="soft")
    options = {"return_attention_scores": True}
    same = np.repeat(QUERY[:, :1], T, axis=1)
    first, second = (to_numpy(layer(same, VALUE, training=True, **options)[1]) for _ in "12")
    assert np.abs(first - second).max() > 1e-2
    wanted = to_numpy(plain(same, VALUE, **options)[1])
    np.testing.assert_allclose(to_numpy(layer(same, VALUE, **options)[1]), wanted, atol=1e-6)
    memory = layer.prepare_memory(VALUE, training=True)
    state = add_step(layer.initial_state(memory))
    drawn = to_numpy(layer.scores(layer.queries(np.repeat(same, 60, 1)[:, :60]), memory, state))
    exact = to_numpy(plain.scores(plain.queries(same[:, :1]), plain.prepare_memory(VALUE), state))
    np.testing.assert_allclose(np.std(drawn - exact), 2.0, atol=0.2)


def test_a_decoder_trains_softly_and_its_gradients_are_those_of_single_steps(monkeypatch):
    from keras_attention.layers.recurrent import attention_decoder

    attention = MonotonicAttention(BahdanauAttention(4, normalize=True))
    decoder = AttentionDecoder(keras.layers.GRUCell(6), attention)
    decoder.build((None, None, Q), (None, None, V))
    randomise(decoder)

    def loss(inputs, value):
        options = {"return_attention_scores": True, "training": True}
        outputs, scores = decoder(inputs, value, value_mask=MASK, **options)
        return ops.sum(outputs**2) + ops.sum(scores**3)

    whole = gradients_of(loss, QUERY, VALUE, layer=decoder)
    monkeypatch.setattr(attention_decoder, "whole_loop", lambda *parts: None)
    single = gradients_of(loss, QUERY, VALUE, layer=decoder)
    for one, other in zip(whole, single, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert all(np.abs(gradient).max() > 0 for gradient in whole)
