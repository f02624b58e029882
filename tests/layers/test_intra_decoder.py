"""Intra-decoder attention: strictly causal, and the buffer of earlier states."""

import numpy as np
import pytest
from keras import ops

from keras_attention.layers import IntraDecoderAttention
from tests.contracts.backend import input_gradients, random, to_numpy

B, T, D = 2, 7, 5


def built():
    """A layer with random weights."""
    layer = IntraDecoderAttention()
    layer.build((None, None, D))
    layer.score_kernel.assign(random(1, D, D))
    return layer


def test_the_first_step_reads_nothing_and_the_second_reads_the_first():
    states = random(2, B, T, D)
    context, scores = built()(states, return_attention_scores=True)
    assert np.all(to_numpy(context)[:, 0] == 0.0) and np.all(to_numpy(scores)[:, 0] == 0.0)
    np.testing.assert_allclose(to_numpy(context)[:, 1], states[:, 0], rtol=1e-5)
    assert np.all(np.triu(np.ones((T, T), bool)) <= (to_numpy(scores) == 0.0))


def test_no_states_have_no_context():
    context, scores = built()(np.zeros((0, T, D), "float32"), return_attention_scores=True)
    assert to_numpy(context).shape == (0, T, D) and to_numpy(scores).shape == (0, T, T)


def test_a_later_state_changes_nothing_before_it():
    layer, states = built(), random(3, B, T, D)
    changed = states.copy()
    changed[:, 4] += 10
    before, after = to_numpy(layer(states)), to_numpy(layer(changed))
    np.testing.assert_allclose(after[:, :4], before[:, :4], atol=1e-6)
    assert np.abs(after[:, 5:] - before[:, 5:]).max() > 1

    (gradient,) = input_gradients(lambda x: ops.sum(layer(x)[:, 3]), states)
    assert np.all(gradient[:, 4:] == 0.0) and np.any(gradient[:, :3] != 0.0)


@pytest.mark.parametrize("room", [T, 11])
def test_steps_agree_in_a_room_that_is_just_large_enough_or_larger(room):
    layer, states = built(), random(4, B, T, D)
    expected, scores = layer(states, return_attention_scores=True)
    memory = layer.prepare_memory(
        np.full((B, room, D), 9.0, "float32")
    )  # what is in it is not read
    state = layer.initial_state(memory)
    for t in range(T):
        context, weights, state = layer.step(states[:, t], memory, state)
        np.testing.assert_allclose(to_numpy(context), to_numpy(expected)[:, t], atol=1e-5)
        np.testing.assert_allclose(to_numpy(weights)[:, :T], to_numpy(scores)[:, t], atol=1e-6)
    np.testing.assert_allclose(to_numpy(state["states"])[:, :T], states, atol=1e-6)


def test_several_queries_at_once_go_on_from_a_state():
    layer, states = built(), random(4, B, T, D)
    expected = to_numpy(layer(states))
    memory = layer.prepare_memory(np.zeros((B, 11, D), "float32"))
    state, start = layer.initial_state(memory), 0
    for size in (1, 3, 2, 1):
        query = ops.convert_to_tensor(states[:, start : start + size])
        context, _, state = layer.attend(query, memory, state)
        np.testing.assert_allclose(to_numpy(context), expected[:, start : start + size], atol=1e-5)
        start += size
    np.testing.assert_allclose(to_numpy(state["states"])[:, :T], states, atol=1e-6)


def test_a_step_past_the_room_reads_what_had_room():
    layer, states = built(), random(5, B, T, D)
    memory = layer.prepare_memory(np.zeros((B, 3, D), "float32"))
    state = layer.initial_state(memory)
    for t in range(T):
        context, weights, state = layer.step(states[:, t], memory, state)
    kept = states[:, :3]
    energies = np.einsum("bd,de,bse->bs", states[:, -1], to_numpy(layer.score_kernel), kept)
    expected = np.exp(energies) / np.exp(energies).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(to_numpy(weights), expected, atol=1e-4)
    np.testing.assert_allclose(
        to_numpy(context), np.einsum("bs,bsd->bd", expected, kept), atol=1e-4
    )


def test_a_memory_of_other_features_is_refused():
    with pytest.raises(ValueError, match="one size. Received: query size 5, value size 3"):
        IntraDecoderAttention()(random(6, B, T, D), random(7, B, T, 3))


def test_a_masked_state_is_not_read_later():
    """Neither where the mask is of the queries alone, and the buffer has none."""
    layer = built()
    query, real = random(31, 2, 7, 5), np.array([1, 2, 4, 6])
    mask = np.isin(np.arange(7), real)[None].repeat(2, 0)
    padded = np.where(mask[:, :, None], query, np.float32(np.nan))
    buffer = np.zeros((2, 7, 5), "float32")
    context, scores = layer(padded, buffer, query_mask=mask, return_attention_scores=True)
    expected, weights = layer(query[:, real], return_attention_scores=True)
    np.testing.assert_allclose(to_numpy(context)[:, real], to_numpy(expected), atol=1e-5)
    found = to_numpy(scores)[:, real][:, :, real]
    np.testing.assert_allclose(found, to_numpy(weights), atol=1e-6)
