"""Coverage: the oracle over long runs, what the coverage is, and its loss in layer and decoder."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import AttentionDecoder, BahdanauAttention, CoverageAttention
from keras_attention.losses import coverage_loss
from tests.contracts import oracles, oracles_summarization
from tests.contracts.backend import (
    gradients_of,
    input_gradients,
    random,
    to_numpy,
)
from tests.contracts.kinds import randomise
from tests.layers.test_bahdanau import attend

B, T, S, D, V, U = 3, 5, 7, 11, 13, 17
MASK = np.arange(S) < np.array([7, 4, 1])[:, None]
REAL = np.arange(T) < np.array([5, 3, 0])[:, None]
WEIGHTS = ("query_kernel", "key_kernel", "score_vector", "coverage_vector")


def built(**options):
    """A layer with random weights."""
    layer = CoverageAttention(U, **options)
    layer.build((None, None, D), (None, None, V))
    step = getattr(layer, "loss_step", None)
    randomise(layer)
    if step is not None:
        step.assign(0)
    return layer


def oracle(layer, inputs):
    """Contexts and scores in float64."""
    weights = {name: np.float64(to_numpy(getattr(layer, name))) for name in WEIGHTS}
    attend = oracles_summarization.Remembering(oracles_summarization.coverage)
    return oracles.mechanism(attend, weights, {}, inputs)


def test_eighty_steps_agree_with_the_oracle():
    layer = built()
    inputs = {"query": random(1, 2, 80, D), "value": random(2, 2, S, V), "value_mask": MASK[:2]}
    expected = oracle(layer, inputs)
    context, scores = attend(layer, *list(inputs.values())[:2], value_mask=MASK[:2])
    np.testing.assert_allclose(scores, expected["scores"], atol=1e-4)
    np.testing.assert_allclose(context, expected["context"], atol=1e-3)
    assert expected["scores"].sum(axis=1).max() > 20  # much was covered


def test_a_memory_may_have_one_feature():
    layer = CoverageAttention(U)
    layer.build((None, None, D), (None, None, 1))
    randomise(layer)
    inputs = {"query": random(1, B, T, D), "value": random(2, B, S, 1), "value_mask": MASK}
    context, scores = attend(layer, *list(inputs.values())[:2], value_mask=MASK)
    np.testing.assert_allclose(scores, oracle(layer, inputs)["scores"], atol=1e-5)


def test_energies_of_fifty_stay_finite_forward_and_backward():
    layer = built()
    layer.score_vector.assign(np.full(U, 50.0 / U))
    query, value = 20 * random(3, 2, 23, D), 20 * random(4, 2, S, V)

    def loss(query, value):
        context, scores = layer(query, value, return_attention_scores=True)
        return ops.sum(context**2) + coverage_loss(scores)

    context, scores = attend(layer, query, value)
    assert np.all(np.isfinite(context)) and np.all(np.isfinite(scores))
    np.testing.assert_allclose(scores.sum(axis=2), 1.0, atol=1e-4)
    gradients = gradients_of(loss, query, value, layer=layer)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


def test_the_state_is_the_sum_of_the_weights_and_the_memory_stays():
    """Coverage joins the score; added to the memory it would change what is read."""
    layer = built(use_bias=True)
    query, value = random(5, B, T, D), random(6, B, S, V)
    _, scores = attend(layer, query, value, value_mask=MASK)
    memory = layer.prepare_memory(ops.convert_to_tensor(value), mask=ops.convert_to_tensor(MASK))
    before = {name: to_numpy(tensor) for name, tensor in memory.items()}
    state = layer.initial_state(memory)
    assert np.all(to_numpy(state["coverage"]) == 0.0)
    for t in range(T):
        _, weights, state = layer.step(ops.convert_to_tensor(query[:, t]), memory, state)
        np.testing.assert_allclose(to_numpy(weights), scores[:, t], atol=1e-5)
        total = scores[:, : t + 1].sum(axis=1)
        np.testing.assert_allclose(to_numpy(state["coverage"]), total, atol=1e-5)
    assert all(np.array_equal(before[name], to_numpy(memory[name])) for name in before)


def test_without_its_vector_it_is_additive_attention():
    layer, plain = built(), BahdanauAttention(U)
    plain.build((None, None, D), (None, None, V))
    for name in WEIGHTS[:3]:
        getattr(plain, name).assign(getattr(layer, name))
    query, value = random(7, B, T, D), random(8, B, S, V)
    with_coverage = attend(layer, query, value, value_mask=MASK)[1]
    layer.coverage_vector.assign(np.zeros(U))
    expected = attend(plain, query, value, value_mask=MASK)[1]
    np.testing.assert_allclose(attend(layer, query, value, value_mask=MASK)[1], expected, atol=1e-5)
    np.testing.assert_allclose(with_coverage[:, 0], expected[:, 0], atol=1e-5)  # nothing covered
    assert np.abs(with_coverage[0, 1:] - expected[0, 1:]).max() > 1e-2


def test_a_masked_query_covers_nothing():
    layer = built()
    real = np.array([[True, False, True, False, True]] * B)
    query, value = random(9, B, T, D), random(10, B, S, V)
    scores = attend(layer, query, value, value_mask=MASK, query_mask=real)[1]
    alone = attend(layer, query[:, ::2], value, value_mask=MASK)[1]
    np.testing.assert_allclose(scores[:, ::2], alone, atol=1e-5)
    assert np.all(scores[:, 1::2] == 0.0)


def test_coverage_is_summed_in_float32_under_half_precision():
    keras.config.set_dtype_policy("mixed_float16")
    layer = built()
    memory = layer.prepare_memory(random(11, B, S, V))
    state = {"coverage": ops.full((B, S), 3000.0)}  # the next half after it is 3002
    _, _, after = layer.step(random(12, B, D), memory, state)
    np.testing.assert_allclose(to_numpy(after["coverage"]).sum(axis=1), 3000.0 * S + 1, atol=0.1)


@pytest.mark.parametrize("mask", [None, REAL, REAL[:, ::-1].copy()], ids=["none", "end", "start"])
def test_the_loss_agrees_with_the_oracle(mask):
    scores = np.exp(random(13, B, T, S))
    scores = scores / scores.sum(axis=2, keepdims=True)
    expected = oracles_summarization.coverage_loss(
        scores, np.ones((B, T), bool) if mask is None else mask
    )
    np.testing.assert_allclose(to_numpy(coverage_loss(scores, mask)), expected, rtol=1e-5)
    assert expected < 0.95  # with `c` that contains `a` it would be 1


def test_the_loss_of_known_weights():
    again = np.tile(np.eye(3, dtype="float32")[:1], (1, 4, 1))  # the same place four times
    np.testing.assert_allclose(to_numpy(coverage_loss(again)), 3 / 4)  # the first time is free
    never = np.eye(4, dtype="float32")[None]
    np.testing.assert_allclose(to_numpy(coverage_loss(never)), 0.0)
    long = np.tile(again, (1, 50, 1))
    np.testing.assert_allclose(to_numpy(coverage_loss(long)), 199 / 200, rtol=1e-6)


def test_each_example_counts_alike_and_padding_not_at_all():
    scores = random(14, 2, 9, S) ** 2
    scores = scores / scores.sum(axis=2, keepdims=True)
    mask = np.arange(9) < np.array([9, 2])[:, None]
    parts = [coverage_loss(scores[:1]), coverage_loss(scores[1:, :2])]
    expected = np.mean([to_numpy(part) for part in parts])
    np.testing.assert_allclose(to_numpy(coverage_loss(scores, mask)), expected, rtol=1e-5)
    rows = np.concatenate([scores, scores]), np.concatenate([mask, np.zeros_like(mask)])
    np.testing.assert_allclose(to_numpy(coverage_loss(*rows)), expected, rtol=1e-5)


@pytest.mark.parametrize("shape", [(B, T, 0), (B, 0, S), (0, T, S)])
def test_no_weight_costs_nothing(shape):
    assert to_numpy(coverage_loss(np.zeros(shape, "float32"))) == 0.0


def test_no_real_step_costs_nothing_with_gradients_of_zero():
    scores = np.full((B, T, S), 1 / S, "float32")
    padding = np.zeros((B, T), bool)
    assert to_numpy(coverage_loss(scores, padding)) == 0.0
    (gradient,) = input_gradients(lambda x: coverage_loss(x, padding), scores)
    assert np.all(gradient == 0.0)


@pytest.mark.parametrize(
    ("shape", "mask"),
    [((B, S), None), ((B, T, S), (B, S)), ((B, T, S), (B,))],
    ids=["no steps", "a mask of the memory", "a mask of examples"],
)
def test_the_loss_refuses_what_does_not_fit(shape, mask):
    with pytest.raises(ValueError, match="Received: "):
        coverage_loss(np.ones(shape, "f"), None if mask is None else np.ones(mask, bool))


def test_a_call_adds_its_loss_when_asked():
    query, value = random(15, B, T, D), random(16, B, S, V)
    layer = built(loss_weight=2.5)
    scores = attend(layer, query, value, value_mask=MASK, query_mask=REAL)[1]
    (loss,) = layer.losses
    expected = 2.5 * oracles_summarization.coverage_loss(scores, REAL)
    np.testing.assert_allclose(to_numpy(loss), expected, rtol=1e-4)
    layer(query, value)  # without scores asked for
    assert len(layer.losses) == 1 and to_numpy(layer.losses[0]) > 0.0
    silent = built()
    attend(silent, query, value)
    assert silent.losses == []


def test_the_loss_begins_after_some_training_calls():
    layer = built(loss_weight=1.0, loss_start=2)
    query, value = random(17, B, T, D), random(18, B, S, V)
    seen = []
    for training in (True, False, True, False, True):
        layer(query, value, training=training)
        seen.append(float(to_numpy(layer.losses[0])) > 0.0)
    assert seen == [False, False, False, True, True]
    assert int(to_numpy(layer.loss_step)) == 3
    assert all(weight is not layer.loss_step for weight in layer.trainable_weights)


def decoder_model(**options):
    """A decoder over embedded ids and a memory, whose mechanism adds a loss; and its parts."""
    ids, memory = keras.Input((None,), dtype="int32"), keras.Input((None, V))
    embed = keras.layers.Embedding(9, 8, mask_zero=True)
    decoder = AttentionDecoder(keras.layers.GRUCell(6), CoverageAttention(U, **options))
    model = keras.Model([ids, memory], decoder(embed(ids), memory))
    randomise(decoder)
    return model, embed, decoder


IDS = np.array([[1, 2, 3, 4], [5, 6, 0, 0], [0, 0, 0, 0]])


def test_a_decoder_adds_the_loss_of_its_real_steps():
    _, embed, decoder = decoder_model(loss_weight=3.0)
    value = random(19, B, S, V)
    _, scores = decoder(embed(IDS), value, return_attention_scores=True)
    (loss,) = decoder.losses
    expected = 3.0 * oracles_summarization.coverage_loss(to_numpy(scores), IDS != 0)
    np.testing.assert_allclose(to_numpy(loss), expected, rtol=1e-4)
    decoder(to_numpy(embed(IDS)), value, inputs_mask=IDS != 0)
    np.testing.assert_allclose(to_numpy(decoder.losses[0]), expected, rtol=1e-4)
    decoder(to_numpy(embed(IDS)), value)  # nothing says what is padding
    assert abs(float(to_numpy(decoder.losses[0])) - expected) > 1e-3


def test_a_decoder_refuses_a_mask_of_another_length():
    _, embed, decoder = decoder_model(loss_weight=3.0)
    inputs = to_numpy(embed(IDS))
    with pytest.raises(ValueError, match="`inputs_mask`.*Received: "):
        decoder(inputs, random(20, B, S, V), inputs_mask=IDS[:, 1:] != 0)


def nothing(target, outputs):
    """No loss but those that layers add."""
    return 0.0 * ops.sum(outputs)


def test_training_with_the_loss_lowers_it_and_counts_its_steps(tmp_path):
    model, _, decoder = decoder_model(loss_weight=1.0, loss_start=3)
    decoder.attention.loss_step.assign(0)
    model.compile(keras.optimizers.Adam(0.03), nothing)
    value, target = random(21, B, S, V), np.zeros((B, 4, 6), "float32")
    losses = []
    for _ in range(12):
        model.reset_metrics()  # with Keras 3.12 the mean of all steps would be returned
        losses.append(float(model.train_on_batch([IDS, value], target)))
    assert losses[:3] == [0.0] * 3
    assert 0 < losses[-1] < 0.9 * losses[3]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    assert int(to_numpy(again.layers[-1].attention.loss_step)) == 12
    found = [[to_numpy(each([IDS, value])), *map(to_numpy, each.losses)] for each in (model, again)]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5)
    assert found[0][1] > 0
    assert int(to_numpy(decoder.attention.loss_step)) == 12  # only training counts


@pytest.mark.parametrize(
    "options",
    [
        {"loss_weight": -1.0},
        {"loss_weight": float("nan")},
        {"loss_start": -1},
        {"loss_start": 0.5},
        {"units": 0},
    ],
    ids=str,
)
def test_options_out_of_range(options):
    with pytest.raises(ValueError, match="Received: "):
        CoverageAttention(**{"units": U, **options})
