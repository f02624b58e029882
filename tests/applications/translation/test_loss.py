"""The loss that takes a translation model's logits itself, against that of the logits."""

import numpy as np
import pytest
import tensorflow as tf

from keras_attention.applications.translation import RNNSearch, Transformer, Translator
from keras_attention.applications.translation.networks.base import WordCrossentropy
from keras_attention.distribute import GlobalMean, make_strategy
from keras_attention.losses import MaskedSparseCategoricalCrossentropy
from tests.applications.translation_runs import randomize

B, S, T, SOURCE, TARGET, R = 3, 5, 7, 23, 29, 5
SIZES = {"embedding_size": 7, "units": 11}
MODELS = {
    "rnnsearch": lambda: RNNSearch(SOURCE, TARGET, readout_size=R, **SIZES),
    "rnnsearch-tied": lambda: RNNSearch(SOURCE, TARGET, tie_embeddings=True, **SIZES),
    "transformer": lambda: Transformer(
        SOURCE, TARGET, embedding_size=8, layers=2, feed_forward_size=11, heads=2
    ),
}


@pytest.fixture(scope="module")
def inputs():
    random = np.random.default_rng(5)
    source = random.integers(4, SOURCE, (B, S)).astype("int32")
    source[1, 3:] = 0
    return {"source": source, "target": random.integers(4, TARGET, (B, T)).astype("int32")}


@pytest.fixture(scope="module")
def labels(inputs):
    labels = np.roll(inputs["target"], -1, axis=1)
    labels[0, 2:] = 0
    return labels


@pytest.mark.by_default("transformer")
@pytest.mark.parametrize("name", ["rnnsearch", "rnnsearch-tied", "transformer"])
def test_the_loss_that_takes_the_logits_itself_is_the_loss_of_the_logits(name, inputs, labels):
    model = MODELS[name]()
    randomize(model)
    weight = np.random.default_rng(1).uniform(0.2, 2.0, labels.shape).astype("float32")
    plain = MaskedSparseCategoricalCrossentropy(0.1)
    with tf.GradientTape() as tape:
        expected = plain(labels, model(inputs, training=True), weight)
    gradients = tape.gradient(expected, model.trainable_variables)
    fused = WordCrossentropy(model, 0.1)
    with tf.GradientTape() as tape:
        features = model.features(inputs, training=True)
        loss = fused(labels, features, weight)
    assert features.shape[-1] == model.feature_size
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    received = tape.gradient(loss, model.trainable_variables)
    for variable, a, b in zip(model.trainable_variables, received, gradients, strict=True):
        a, b = (tf.convert_to_tensor(gradient).numpy() for gradient in (a, b))
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5, err_msg=variable.path)
    total, counted = fused.total_and_weight(labels, features, weight)  # what replicas add up
    np.testing.assert_allclose(counted, weight[labels != 0].sum(), rtol=1e-5)
    np.testing.assert_allclose(total / counted, loss, rtol=1e-5)
    assert fused(np.zeros_like(labels), features) == 0.0


@pytest.mark.by_default("logits")
@pytest.mark.parametrize("kind", ["features", "logits"])
def test_shares_of_replicas_add_up_to_that_loss(inputs, labels, kind):
    """One token, none, and the rest: parts with very different weights."""
    model = MODELS["transformer"]()
    loss = WordCrossentropy(model, 0.1)
    predictions = model(inputs) if kind == "logits" else model.features(inputs)
    weight = np.random.default_rng(1).uniform(0.2, 2.0, labels.shape).astype("float32")
    labels = np.stack([np.eye(T, dtype="int32")[0] * 5, np.zeros(T, "int32"), labels[2]])
    strategy = make_strategy("mirrored", [f"CPU:{replica}" for replica in range(B)])

    @tf.function
    def shares():
        def share():
            row = tf.distribute.get_replica_context().replica_id_in_sync_group
            label, part, scale = map(tf.convert_to_tensor, (labels, predictions, weight))
            return GlobalMean(loss)(label[row, None], part[row, None], scale[row, None])

        return strategy.experimental_local_results(strategy.run(share))

    received = [float(share) for share in shares()]
    expected = float(loss(labels, predictions, weight))
    assert expected > 0.1 and received[0] > 0 and received[1] == 0
    assert sum(received) == pytest.approx(expected, rel=1e-5)


def test_features_as_wide_as_the_vocabulary_leave_the_loss_as_it_was():
    network = RNNSearch(SOURCE, R, readout_size=R, **SIZES)
    assert Translator(network).feature_loss(MaskedSparseCategoricalCrossentropy()) is None


def test_the_task_takes_that_loss_in_training_alone(inputs, labels, traced_nowhere):
    task = Translator(MODELS["transformer"]())
    task.compile("sgd")
    assert task(inputs, training=True).shape[-1] == task.backbone.feature_size
    assert task(inputs).shape[-1] == TARGET
    expected = MaskedSparseCategoricalCrossentropy(0.1)(labels, task(inputs))
    assert task.evaluate(inputs, labels, verbose=0) == pytest.approx(float(expected), rel=1e-5)
    trained = task.fit(inputs, labels, verbose=0).history["loss"][0]
    assert trained == pytest.approx(float(expected), rel=1e-5)
    task.compile("sgd", metrics=["accuracy"])
    assert task(inputs, training=True).shape[-1] == TARGET
