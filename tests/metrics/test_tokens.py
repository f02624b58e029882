"""Streaming token metrics against float64 sums over the real tokens of all batches."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.metrics import MaskedSparseCategoricalAccuracy, Perplexity

V = 13


def token_nll(target, logits):
    logits = np.asarray(logits, "float64")
    top = logits.max(-1, keepdims=True)
    log_p = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
    return -np.take_along_axis(log_p, target[..., None], -1)[..., 0]


@pytest.fixture
def batches():
    rng = np.random.default_rng(11)
    made = []
    for size, length, real in ((2, 7, 9), (3, 5, 4), (1, 3, 3)):
        target = rng.integers(1, V, size * length)
        target[real:] = 0
        target = target.reshape(size, length)
        logits = rng.normal(0, 2, (size, length, V)).astype("float32")
        made.append((target, logits))
    return made


def result(metric):
    return float(ops.convert_to_numpy(metric.result()))


def test_perplexity_counts_tokens_across_batches(batches):
    metric = Perplexity()
    total = count = 0
    for target, logits in batches:
        metric.update_state(target, logits)
        total += token_nll(target, logits)[target != 0].sum()
        count += (target != 0).sum()
        np.testing.assert_allclose(result(metric), np.exp(total / count), rtol=1e-5)
    each = [np.exp(token_nll(y, x)[y != 0].mean()) for y, x in batches]
    assert abs(np.mean(each) - result(metric)) > 0.1  # what a mean of batches would have given


def test_accuracy_counts_real_tokens_across_batches(batches):
    metric = MaskedSparseCategoricalAccuracy()
    right = count = 0
    for target, logits in batches:
        logits = logits.copy()
        hit = np.random.default_rng(len(target)).random(target.shape) < 0.5
        hit[target == 0] = True  # padding predicted right must not count
        logits[hit, target[hit]] = 50
        metric.update_state(target, logits)
        real = target != 0
        right += (logits.argmax(-1) == target)[real].sum()
        count += real.sum()
    np.testing.assert_allclose(result(metric), right / count, rtol=1e-6)


@pytest.mark.parametrize("shape", ["example", "column", "token"])
def test_weights(batches, shape):
    target, logits = batches[1]
    rng = np.random.default_rng(5)
    size = {"example": (3,), "column": (3, 1), "token": (3, 5)}[shape]
    weight = rng.uniform(0.1, 3, size).astype("float32")
    each = np.broadcast_to(weight[:, None] if shape == "example" else weight, target.shape)
    each = each * (target != 0)
    perplexity, accuracy = Perplexity(), MaskedSparseCategoricalAccuracy()
    for metric in (perplexity, accuracy):
        metric.update_state(target, logits, sample_weight=weight)
    expected = np.exp((token_nll(target, logits) * each).sum() / each.sum())
    np.testing.assert_allclose(result(perplexity), expected, rtol=1e-5)
    expected = ((logits.argmax(-1) == target) * each).sum() / each.sum()
    np.testing.assert_allclose(result(accuracy), expected, rtol=1e-5)


def test_padding_holding_anything_changes_nothing(batches):
    target, logits = batches[0]
    wild = logits.copy()
    wild[target == 0] = np.nan
    wild[target == 0, 0] = np.inf
    for kind in (Perplexity, MaskedSparseCategoricalAccuracy):
        plain, padded = kind(), kind()
        plain.update_state(target, logits)
        padded.update_state(target, wild)
        assert result(plain) == result(padded)


@pytest.mark.parametrize("ignore_index", [-1, None])
def test_other_ignored_ids(batches, ignore_index):
    target, logits = batches[0]
    target = target if ignore_index is None else np.where(target == 0, ignore_index, target)
    metric = Perplexity(ignore_index=ignore_index)
    metric.update_state(target, logits)
    counted = target != ignore_index if ignore_index is not None else np.ones_like(target, bool)
    expected = np.exp(token_nll(np.maximum(target, 0), logits)[counted].mean())
    np.testing.assert_allclose(result(metric), expected, rtol=1e-5)


def test_low_precision_and_extreme_logits():
    logits = ops.cast(np.array([[[1e4, 0.0, -1e4], [1.0, 0.0, 0.0]]]), "float16")
    metric = Perplexity(ignore_index=None)
    metric.update_state(np.array([[0, 1]]), logits)
    expected = np.exp(np.log(np.e + 2) / 2)  # the first token is certain
    np.testing.assert_allclose(result(metric), expected, rtol=1e-5)


def test_before_the_first_token_and_after_a_reset(batches):
    perplexity, accuracy = Perplexity(), MaskedSparseCategoricalAccuracy()
    for metric, empty in ((perplexity, 1.0), (accuracy, 0.0)):
        assert result(metric) == empty
        metric.update_state(np.zeros((2, 3), "int32"), np.zeros((2, 3, V)))
        metric.update_state(np.zeros((2, 0), "int32"), np.zeros((2, 0, V)))
        assert result(metric) == empty
        metric.update_state(*batches[0])
        assert result(metric) != empty
        metric.reset_state()
        assert result(metric) == empty


@pytest.mark.parametrize("kind", [Perplexity, MaskedSparseCategoricalAccuracy])
def test_config_round_trip(kind):
    metric = kind(ignore_index=7, name="other", dtype="float16")
    again = keras.metrics.deserialize(keras.metrics.serialize(metric))
    assert type(again) is kind
    assert again.get_config() == metric.get_config()
    assert again.get_config() == {"name": "other", "dtype": "float16", "ignore_index": 7}


def test_in_a_compiled_model_the_implicit_mask_is_respected():
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(V, 5, mask_zero=True),
            keras.layers.Dense(V),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(loss=loss, metrics=[Perplexity(None), MaskedSparseCategoricalAccuracy(None)])
    rng = np.random.default_rng(2)
    inputs = rng.integers(1, V, (4, 7))
    inputs[1, 3:] = inputs[3, 1:] = 0
    target = rng.integers(0, V, (4, 7))
    measured = model.evaluate(inputs, target, batch_size=2, verbose=0, return_dict=True)
    logits = model.predict(inputs, verbose=0)
    kept = inputs != 0
    expected = np.exp(token_nll(target, logits)[kept].mean())
    np.testing.assert_allclose(measured["perplexity"], expected, rtol=1e-5)
    expected = (logits.argmax(-1) == target)[kept].mean()
    np.testing.assert_allclose(measured["token_accuracy"], expected, rtol=1e-5)


@pytest.mark.parametrize("kind", [Perplexity, MaskedSparseCategoricalAccuracy])
def test_shapes_that_do_not_fit(kind):
    with pytest.raises(ValueError, match="Received: target of shape"):
        kind().update_state(np.ones((2, 3)), np.zeros((2, 4, V)))
    with pytest.raises(ValueError, match="Received: sample_weight of shape"):
        kind().update_state(np.ones((2, 3)), np.zeros((2, 3, V)), np.ones((2, 3, 1)))
