"""Masked cross-entropy against a float64 oracle that builds the smoothed one-hot targets."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.losses import (
    MaskedNegativeLogLikelihood,
    MaskedSparseCategoricalCrossentropy,
    masked_linear_crossentropy,
    masked_sparse_categorical_crossentropy,
)
from keras_attention.metrics import Perplexity

B, T, V = 3, 5, 11


def oracle(target, logits, smoothing=0.0, ignore_index=0):
    logits = np.asarray(logits, "float64")
    top = logits.max(-1, keepdims=True)
    log_p = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
    real = target != ignore_index
    labels = np.eye(logits.shape[-1])[np.where(real, target, 0)]
    labels = (1 - smoothing) * labels + smoothing / logits.shape[-1]
    return np.where(real, -(labels * log_p).sum(-1), 0.0)


@pytest.fixture
def batch():
    rng = np.random.default_rng(7)
    target = rng.integers(1, V, (B, T))
    target[0, 3:] = target[2, 1:] = 0
    return target, rng.normal(0, 3, (B, T, V)).astype("float32")


def array(tensor):
    return ops.convert_to_numpy(tensor)


def gradient(function, logits):
    """The gradient of a scalar function of the logits, on whichever backend runs."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        logits = tf.constant(logits)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            value = function(logits)
        return tape.gradient(value, logits).numpy()
    if keras.backend.backend() == "jax":
        import jax

        return np.asarray(jax.grad(function)(logits))
    import torch

    logits = torch.tensor(logits, requires_grad=True)
    function(logits).backward()
    return logits.grad.numpy()


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.37])
def test_each_token_has_the_value_of_the_oracle(batch, smoothing):
    values = masked_sparse_categorical_crossentropy(*batch, label_smoothing=smoothing)
    np.testing.assert_allclose(array(values), oracle(*batch, smoothing), rtol=2e-5, atol=1e-6)
    assert array(values)[0, 3] == 0


def test_the_mean_is_over_real_tokens(batch):
    loss = MaskedSparseCategoricalCrossentropy(label_smoothing=0.1)(*batch)
    expected = oracle(*batch, 0.1).sum() / (batch[0] != 0).sum()
    np.testing.assert_allclose(array(loss), expected, rtol=1e-5)


def test_more_padding_changes_nothing(batch):
    target, logits = batch
    wider = np.pad(target, ((0, 2), (0, 4)))
    noise = np.random.default_rng(1).normal(size=(B + 2, T + 4, V)).astype("float32")
    noise[:B, :T] = logits
    loss = MaskedSparseCategoricalCrossentropy(label_smoothing=0.2)
    np.testing.assert_allclose(array(loss(wider, noise)), array(loss(target, logits)), rtol=1e-6)


@pytest.mark.parametrize("shape", [(B,), (B, 1), (B, T)])
def test_weights_scale_tokens_and_each_reduction_divides_as_it_says(batch, shape):
    target, logits = batch
    weight = np.random.default_rng(3).uniform(0.2, 2.0, shape)
    each = weight[:, None] if len(shape) == 1 else weight
    each = each * (target != 0)
    values = oracle(target, logits) * each
    expected = {
        "mean_with_sample_weight": values.sum() / each.sum(),
        "sum": values.sum(),
        "none": values,
    }
    for reduction, value in expected.items():
        loss = MaskedSparseCategoricalCrossentropy(reduction=reduction)
        received = array(loss(target, logits, sample_weight=weight.astype("float32")))
        np.testing.assert_allclose(received, value, rtol=2e-5, atol=1e-6, err_msg=reduction)


@pytest.mark.parametrize("ignore_index", [-1, -100, 4, None])
def test_any_id_can_be_the_ignored_one(batch, ignore_index):
    target = np.where(batch[0] == 0, 0 if ignore_index is None else ignore_index, batch[0])
    values = masked_sparse_categorical_crossentropy(
        target, batch[1], label_smoothing=0.1, ignore_index=ignore_index
    )
    expected = oracle(target, batch[1], 0.1, ignore_index)
    np.testing.assert_allclose(array(values), expected, rtol=2e-5, atol=1e-6)


def test_an_implicit_mask_leaves_its_tokens_out_of_sum_and_count():
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(V, 5, mask_zero=True),
            keras.layers.Dense(V),
        ]
    )
    model.compile(loss=MaskedSparseCategoricalCrossentropy(0.1))
    rng = np.random.default_rng(2)
    inputs, target = rng.integers(1, V, (2, 4, 7))
    inputs[1, 3:] = inputs[3, 1:] = 0
    target[1, 2:] = target[2, 6:] = 0
    kept = (inputs != 0) & (target != 0)
    values = oracle(target, model.predict(inputs, verbose=0), 0.1)
    measured = model.evaluate(inputs, target, verbose=0)
    np.testing.assert_allclose(measured, values[kept].mean(), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_logits_give_a_float32_loss(batch, dtype):
    target, logits = batch
    low = ops.cast(logits, dtype)
    loss = MaskedSparseCategoricalCrossentropy(label_smoothing=0.1)(target, low)
    exact = array(ops.cast(low, "float32"))
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    expected = oracle(target, exact, 0.1).sum() / (target != 0).sum()
    np.testing.assert_allclose(array(loss), expected, rtol=1e-5)


def test_large_ids_survive_a_low_precision_default():
    keras.config.set_floatx("float16")
    logits = np.zeros((1, 1, 5003), "float32")
    logits[0, 0, 4999] = 20.0
    loss = MaskedSparseCategoricalCrossentropy()(np.array([[4999]]), logits)
    assert array(loss) < 1e-4


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_extreme_logits(smoothing):
    logits = np.array([[[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4]]], "float32")
    target = np.array([[1, 2]])
    values = masked_sparse_categorical_crossentropy(target, logits, smoothing)
    np.testing.assert_allclose(array(values), oracle(target, logits, smoothing), rtol=1e-5)


def test_gradient_is_softmax_minus_smoothed_labels(batch):
    target, logits = batch
    loss = MaskedSparseCategoricalCrossentropy(label_smoothing=0.1)
    exact = np.exp(logits - logits.max(-1, keepdims=True).astype("float64"))
    labels = 0.9 * np.eye(V)[target] + 0.1 / V
    real = (target != 0)[..., None]
    expected = (exact / exact.sum(-1, keepdims=True) - labels) * real / real.sum()
    received = gradient(lambda x: loss(target, x), logits)
    np.testing.assert_allclose(received, expected, atol=1e-6)


@pytest.mark.parametrize("reduction", ["mean_with_sample_weight", "sum"])
def test_a_batch_of_padding_costs_nothing(reduction):
    target = np.zeros((B, T), "int32")
    logits = np.full((B, T, V), 1e4, "float32")
    loss = MaskedSparseCategoricalCrossentropy(label_smoothing=0.1, reduction=reduction)
    assert array(loss(target, logits)) == 0
    np.testing.assert_array_equal(gradient(lambda x: loss(target, x), logits), 0)


def test_config_round_trip():
    loss = MaskedSparseCategoricalCrossentropy(0.2, ignore_index=3, reduction="sum", name="cost")
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert type(again) is MaskedSparseCategoricalCrossentropy
    assert again.get_config() == loss.get_config()
    assert again.get_config() == {
        "name": "cost",
        "reduction": "sum",
        "label_smoothing": 0.2,
        "ignore_index": 3,
        "dtype": "float32",
    }


def test_a_compiled_model_trains_with_it_and_reloads(tmp_path, batch):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((None,), dtype="int32"), keras.layers.Embedding(V, 7), keras.layers.Dense(V)]
    )
    model.compile(keras.optimizers.Adam(0.1), MaskedSparseCategoricalCrossentropy(0.1))
    target = batch[0]
    history = model.fit(target, target, epochs=20, verbose=0).history["loss"]
    assert history[-1] < 0.7 * history[0]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    expected = model.evaluate(target, target, verbose=0)
    np.testing.assert_allclose(again.evaluate(target, target, verbose=0), expected, rtol=1e-6)


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, 3])
def test_smoothing_out_of_range(smoothing):
    with pytest.raises(ValueError, match=f"Received: label_smoothing={smoothing}"):
        MaskedSparseCategoricalCrossentropy(label_smoothing=smoothing)
    with pytest.raises(ValueError, match=f"Received: label_smoothing={smoothing}"):
        masked_sparse_categorical_crossentropy([1], [[0.0, 1.0]], smoothing)


def test_a_mean_over_padding_is_refused():
    with pytest.raises(ValueError, match="Received: reduction='sum_over_batch_size'"):
        MaskedSparseCategoricalCrossentropy(reduction="sum_over_batch_size")


@pytest.mark.parametrize("shape", [(B, T + 1), (B,), (B, T, 1)])
def test_shapes_that_do_not_fit(batch, shape):
    with pytest.raises(ValueError, match="Received: target of shape"):
        MaskedSparseCategoricalCrossentropy()(np.ones(shape, "int32"), batch[1])


def test_weights_of_too_many_axes(batch):
    with pytest.raises(ValueError, match="Received: sample_weight of shape"):
        MaskedSparseCategoricalCrossentropy()(*batch, sample_weight=np.ones((B, T, 1)))


# Of features and a matrix: tests/ops/test_crossentropy.py has the gradients


@pytest.mark.parametrize("shape", [None, (B,), (B, 1), (B, T)])
@pytest.mark.parametrize("ignore_index", [0, -1, None])
def test_features_and_a_matrix_have_the_loss_of_their_logits(batch, shape, ignore_index):
    rng = np.random.default_rng(11)
    target = np.where(batch[0] == 0, ignore_index or 0, batch[0])
    features, kernel = rng.normal(size=(B, T, 7)), rng.normal(size=(7, V))
    bias = rng.normal(size=V)
    weight = None if shape is None else rng.uniform(0.2, 2.0, shape).astype("float32")
    values = oracle(target, features @ kernel + bias, 0.1, ignore_index)
    each = np.ones((B, T)) if shape is None else weight.reshape(B, -1) * np.ones((B, T))
    each = each * (target != ignore_index)
    inputs = (array.astype("float32") for array in (features, kernel, bias))
    loss = masked_linear_crossentropy(target, *inputs, 0.1, ignore_index, weight)
    np.testing.assert_allclose(array(loss), (values * each).sum() / each.sum(), rtol=1e-5)


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype float64")  # which JAX has not
def test_another_default_dtype_changes_nothing_of_features():
    inputs = np.ones((B, T, 3), "float32"), np.ones((3, V), "float32"), np.ones(V, "float32")
    expected = array(masked_linear_crossentropy(np.ones((B, T), int), *inputs))
    keras.config.set_floatx("float64")
    assert array(masked_linear_crossentropy(np.ones((B, T), int), *inputs)) == expected


def test_features_of_padding_alone_cost_nothing():
    inputs = np.ones((B, T, 3), "float32"), np.ones((3, V), "float32"), np.ones(V, "float32")
    assert array(masked_linear_crossentropy(np.zeros((B, T), int), *inputs)) == 0.0


def test_features_and_a_matrix_that_do_not_fit_are_refused():
    target, features, bias = np.ones((B, T), int), np.ones((B, T, 3)), np.ones(V)
    with pytest.raises(ValueError, match=r"features must have the shape.*\(3, 5\).*\(3, 6, 3\)"):
        masked_linear_crossentropy(target, np.ones((B, T + 1, 3)), np.ones((3, V)), bias)
    with pytest.raises(ValueError, match=r"`kernel` must have a row.*\(11, 3\)"):
        masked_linear_crossentropy(target, features, np.ones((V, 3)), bias)
    with pytest.raises(ValueError, match="label_smoothing=1"):
        masked_linear_crossentropy(target, features, np.ones((3, V)), bias, label_smoothing=1.0)


@pytest.mark.parametrize("content", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_what_padding_holds_reaches_no_gradient(batch, content, smoothing):
    target, logits = batch
    real = (target != 0)[..., None]
    dirty = np.where(real, logits, np.float32(content))
    loss = MaskedSparseCategoricalCrossentropy(label_smoothing=smoothing)

    def total(logits):
        return loss(target, logits)

    np.testing.assert_allclose(array(total(dirty)), array(total(logits)), rtol=1e-6)
    found = gradient(total, dirty)
    np.testing.assert_allclose(found, gradient(total, np.where(real, logits, 0)), atol=1e-6)

    def likelihood(log_p):
        return MaskedNegativeLogLikelihood()(target, log_p)

    assert np.all(np.isfinite(gradient(likelihood, dirty)))

    kernel = np.random.default_rng(3).normal(size=(logits.shape[-1], 7)).astype("float32")
    bias = np.zeros(7, "float32")
    ids = target % 7

    def linear(features):
        weights = (target != 0).astype("float32")
        return masked_linear_crossentropy(
            ids, features, kernel, bias, smoothing, None, sample_weight=weights
        )

    found = gradient(linear, dirty)
    np.testing.assert_allclose(found, gradient(linear, np.where(real, logits, 0)), atol=1e-6)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="Keras takes float64 for float32 there"
)
@pytest.mark.parametrize("how", ["policy", "floatx", "argument"])
def test_float64_stays_float64(batch, how):
    target, logits = batch[0], np.float64(batch[1]) * np.pi
    if how == "policy":
        keras.config.set_dtype_policy("float64")
    if how == "floatx":
        keras.config.set_floatx("float64")
    options = {"dtype": "float64"} if how == "argument" else {}
    given = ops.convert_to_tensor(logits, "float64")
    loss = MaskedSparseCategoricalCrossentropy(label_smoothing=0.1, **options)
    values = oracle(target, logits, 0.1)
    expected = values.sum() / np.count_nonzero(target)
    np.testing.assert_allclose(array(loss(target, given)), expected, rtol=1e-12)
    found = masked_sparse_categorical_crossentropy(target, given, 0.1)
    np.testing.assert_allclose(array(found), values, rtol=1e-12)
    metric = Perplexity(dtype="float64")
    metric.update_state(target, given)
    expected = np.exp(oracle(target, logits).sum() / np.count_nonzero(target))
    np.testing.assert_allclose(array(metric.result()), expected, rtol=1e-12)
    again = type(loss).from_config(loss.get_config())
    assert again.dtype == "float64"
