"""Attention pooling against a float64 oracle; its masks, precisions, and place in a model."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import AttentionPooling
from tests.contracts.backend import (
    gradients_of,
    random,
    to_numpy,
    weight_gradients,
)
from tests.contracts.kinds import randomise

B, S, D, U = 3, 7, 13, 5
MASK = np.arange(S) < np.array([7, 4, 1])[:, None]


@pytest.fixture
def layer():
    """A built layer with random weights."""
    layer = AttentionPooling(U)
    layer.build((None, None, D))
    return randomise(layer)


def oracle(layer, inputs, mask):
    """Vectors (B,D) and weights (B,S) in float64, one place at a time."""
    kernel, bias, context = (
        np.float64(to_numpy(w)) for w in (layer.kernel, layer.bias, layer.context_vector)
    )
    vectors, weights = np.zeros((len(inputs), inputs.shape[2])), np.zeros(inputs.shape[:2])
    for b, row in enumerate(np.float64(inputs)):
        places = np.flatnonzero(mask[b])
        energies = [np.exp(np.tanh(row[s] @ kernel + bias) @ context) for s in places]
        for s, energy in zip(places, energies, strict=True):
            weights[b, s] = energy / sum(energies)
            vectors[b] += weights[b, s] * row[s]
    return vectors, weights


def pool(layer, inputs, mask=None):
    """Vectors and weights as arrays."""
    mask = None if mask is None else ops.convert_to_tensor(mask)
    results = layer(ops.convert_to_tensor(inputs), mask=mask, return_attention_scores=True)
    return tuple(to_numpy(result) for result in results)


@pytest.mark.parametrize("mask", [None, MASK, MASK[:, ::-1].copy()], ids=["none", "end", "start"])
def test_it_agrees_with_the_oracle(layer, mask):
    inputs = random(1, B, S, D)
    expected = oracle(layer, inputs, np.ones((B, S), bool) if mask is None else mask)
    for ours, theirs in zip(pool(layer, inputs, mask), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert np.ptp(expected[1][0]) > 0.01  # the weights are not all alike
    if mask is not None:
        assert np.all(pool(layer, inputs, mask)[1][~mask] == 0.0)


def test_padding_changes_nothing(layer):
    inputs = random(2, B, S, D)
    longer = np.concatenate([inputs, np.full((B, 4, D), 1e18, "float32")], axis=1)
    vectors, weights = pool(layer, longer, np.pad(MASK, ((0, 0), (0, 4))))
    expected, expected_weights = pool(layer, inputs, MASK)
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    np.testing.assert_allclose(weights[:, :S], expected_weights, atol=1e-6)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_a_sequence_of_padding_alone_gives_zeros_and_finite_gradients(policy):
    keras.config.set_dtype_policy(policy)
    layer = AttentionPooling(U)
    layer.build((None, None, D))
    randomise(layer)
    mask = MASK & np.array([[True], [False], [True]])
    inputs = random(3, B, S, D)
    vectors, weights = pool(layer, inputs, mask)
    assert np.all(vectors[1] == 0.0) and np.all(weights[1] == 0.0)
    np.testing.assert_allclose(vectors, oracle(layer, inputs, mask)[0], atol=0.05)

    def loss(x):
        results = layer(x, mask=ops.convert_to_tensor(mask), return_attention_scores=True)
        return sum(ops.sum(ops.cast(result, "float32") ** 2) for result in results)

    *gradients, of_inputs = gradients_of(loss, inputs, layer=layer)
    assert all(np.all(np.isfinite(gradient)) for gradient in [*gradients, of_inputs])
    assert all(np.any(gradient != 0.0) for gradient in gradients)
    assert np.all(of_inputs[~mask] == 0.0)


def test_gradients_are_the_slopes_of_the_oracle(layer):
    inputs, factors = random(4, B, S, D), random(5, B, D)

    def total():
        return np.sum(factors * oracle(layer, inputs, MASK)[0])

    gradients = weight_gradients(
        layer,
        lambda: ops.sum(
            layer(ops.convert_to_tensor(inputs), mask=ops.convert_to_tensor(MASK))
            * ops.convert_to_tensor(factors)
        ),
    )
    for weight, gradient in zip(layer.trainable_weights, gradients, strict=True):
        before, direction = to_numpy(weight), random(6, *weight.shape)
        values = []
        for sign in (1, -1):
            weight.assign(before + sign * 1e-3 * direction)
            values.append(total())
        weight.assign(before)
        slope = (values[0] - values[1]) / 2e-3
        np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=1e-2, atol=1e-3)


def test_it_takes_the_mask_of_an_embedding_and_hands_on_none():
    ids = np.array([[3, 1, 2], [4, 0, 0]])
    embed, layer = keras.layers.Embedding(5, D, mask_zero=True), AttentionPooling(U)
    pooled = layer(embed(ids))
    np.testing.assert_allclose(to_numpy(pooled)[1], to_numpy(embed(ids))[1, 0], atol=1e-6)
    assert getattr(pooled, "_keras_mask", None) is None
    model = keras.Sequential([keras.Input((None,), dtype="int32"), embed, layer])
    assert model.output_shape == (None, D)
    np.testing.assert_allclose(to_numpy(model(ids)), to_numpy(pooled), atol=1e-6)


def test_words_then_sentences():
    """Yang's two levels: the layer under `TimeDistributed` makes one vector a sentence."""
    words, sentences = AttentionPooling(U), AttentionPooling(U)
    inputs = keras.Input((None, S, D))
    model = keras.Model(inputs, sentences(keras.layers.TimeDistributed(words)(inputs)))
    document = random(7, B, 2, S, D)
    by_hand = np.stack([pool(words, document[:, n])[0] for n in range(2)], axis=1)
    np.testing.assert_allclose(
        to_numpy(model(document)), pool(sentences, by_hand)[0], atol=1e-5, rtol=1e-5
    )


def test_a_model_trains_reloads_and_knows_its_shapes(tmp_path):
    inputs = keras.Input((None, D))
    pooled, scores = AttentionPooling(U)(inputs, return_attention_scores=True)
    assert pooled.shape == (None, D) and scores.shape == (None, None)
    model = keras.Model(inputs, keras.layers.Dense(2)(pooled))
    model.compile(keras.optimizers.Adam(0.05), "mse")
    x, y = random(8, B, S, D), random(9, B, 2)
    before = [to_numpy(weight) for weight in model.trainable_weights]
    losses = [model.train_on_batch(x, y) for _ in range(5)]
    assert losses[-1] < losses[0]
    for weight, old in zip(model.trainable_weights, before, strict=True):
        assert np.any(to_numpy(weight) != old), weight.path
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(to_numpy(again(x)), to_numpy(model(x)), atol=1e-6)


def test_weights_have_their_names_and_shapes(layer):
    shapes = {weight.path.split("/")[-1]: tuple(weight.shape) for weight in layer.weights}
    assert shapes == {"kernel": (D, U), "bias": (U,), "context_vector": (U,)}


def test_config_round_trip():
    layer = AttentionPooling(
        U, keras.initializers.HeNormal(3), "ones", keras.initializers.RandomNormal(0, 0.3, 4)
    )
    again = AttentionPooling.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()


@pytest.mark.parametrize("units", [0, 2.5, None])
def test_units_must_be_positive(units):
    with pytest.raises(ValueError, match=f"Received: units={units}"):
        AttentionPooling(units)


@pytest.mark.parametrize(
    ("shape", "mask"),
    [
        ((B, D), None),
        ((B, S, D + 1), None),
        ((B, S, D), np.ones((B, S - 1), bool)),
        ((B, S, D), np.zeros((B, S), "float32")),
    ],
    ids=["no steps", "other features", "a shorter mask", "a mask that is added"],
)
def test_what_does_not_fit_is_refused(layer, shape, mask):
    with pytest.raises(ValueError, match="Received: "):
        pool(layer, random(0, *shape), mask)
