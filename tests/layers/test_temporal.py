"""Temporal attention: long runs of large energies, and what is remembered."""

import numpy as np
import pytest
from keras import ops

from keras_attention.layers import LuongAttention, TemporalAttention
from keras_attention.layers.attention.temporal import EMPTY, is_empty, log_add_exp
from tests.contracts import oracles, oracles_summarization
from tests.contracts.backend import (
    gradients_of,
    input_gradients,
    random,
    to_numpy,
)
from tests.layers.test_bahdanau import attend

B, T, S, D = 2, 60, 7, 5
MASK = np.arange(S) < np.array([7, 4])[:, None]


def built(kernel=None):
    """A layer for queries and keys of one size."""
    layer = TemporalAttention()
    layer.build((None, None, D), (None, None, D))
    layer.score_kernel.assign(random(1, D, D) if kernel is None else kernel)
    return layer


def oracle(layer, query, value, mask):
    """Scores in float64, by sums of exponentials."""
    step = oracles_summarization.Remembering(oracles_summarization.temporal)
    weights = {"score_kernel": np.float64(to_numpy(layer.score_kernel))}
    inputs = {"query": query, "value": value, "value_mask": mask}
    return oracles.mechanism(step, weights, {}, inputs)["scores"]


@pytest.mark.parametrize("largest", [1.0, 50.0])
def test_sixty_steps_agree_with_the_oracle(largest):
    """Energies of 50: their exponentials' sum, 3e23, and its inverse are far out of float16, and
    a product of two out of float32."""
    layer = built(np.eye(D))
    query, value = random(2, B, T, D), random(3, B, S, D)
    query *= largest / np.abs(np.einsum("btd,bsd->bts", query, value)).max()
    scores = attend(layer, query, value, value_mask=MASK)[1]
    np.testing.assert_allclose(scores, oracle(layer, query, value, MASK), atol=1e-3)
    np.testing.assert_allclose(scores.sum(axis=2), 1.0, atol=1e-4)


@pytest.mark.parametrize("energy", [50.0, -50.0, 1e4])
def test_constant_energies_overflow_nowhere(energy):
    layer = built(np.eye(D))
    query = np.zeros((B, T, D), "float32")
    query[:, :, 0] = energy
    value = np.ones((B, S, D), "float32")
    np.testing.assert_allclose(attend(layer, query, value)[1], 1 / S, rtol=1e-4)

    def loss(query, value):
        context, scores = layer(query, value, return_attention_scores=True)
        return ops.sum(context * ops.convert_to_tensor(random(4, B, T, D))) + ops.sum(scores**2)

    gradients = gradients_of(loss, query, value, layer=layer)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


def test_the_first_query_is_a_softmax_and_the_second_of_equal_ones_is_even():
    layer, plain = built(), LuongAttention("general")
    query, value = np.repeat(random(5, B, 1, D), 3, axis=1), random(6, B, S, D)
    attend(plain, query, value)
    plain.score_kernel.assign(layer.score_kernel)
    scores = attend(layer, query, value)[1]
    np.testing.assert_allclose(scores[:, 0], attend(plain, query, value)[1][:, 0], atol=1e-5)
    assert np.ptp(scores[:, 0]) > 0.1
    np.testing.assert_allclose(scores[:, 1:], 1 / S, rtol=1e-3)


def test_a_masked_query_leaves_no_trace():
    layer = built()
    query, value = random(7, B, 5, D), random(8, B, S, D)
    real = np.array([[False, True, False, True, True]] * B)
    scores = attend(layer, query, value, value_mask=MASK, query_mask=real)[1]
    alone = attend(layer, query[:, real[0]], value, value_mask=MASK)[1]
    np.testing.assert_allclose(scores[:, real[0]], alone, atol=1e-5)
    assert np.all(scores[:, ~real[0]] == 0.0)


def test_sums_of_exponentials_by_logarithms():
    first, second = np.array([0.0, 50, -50, 1e4, EMPTY]), np.array([0.0, -50, -50, 1e4, 3.0])
    expected = np.logaddexp(first, second)
    result = log_add_exp(
        ops.convert_to_tensor(first.astype("f")), ops.convert_to_tensor(second.astype("f"))
    )
    np.testing.assert_allclose(to_numpy(result), expected, rtol=1e-6)
    np.testing.assert_array_equal(to_numpy(is_empty(first)), [False] * 4 + [True])


def test_the_gradient_of_equal_summands_is_shared():
    """`maximum` passes the gradient of a tie on to one side; half to each is right."""
    gradients = input_gradients(
        lambda a, b: ops.sum(log_add_exp(a, b)), np.ones(3, "f"), np.ones(3, "f")
    )
    np.testing.assert_allclose(gradients, 0.5)
