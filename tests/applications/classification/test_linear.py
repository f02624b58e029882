"""A linear model beside a network: its equation, and that it joins after training alone."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.applications.base.train import train_task
from keras_attention.applications.classification import (
    ClassificationConfig,
    DataConfig,
    LinearScores,
    ModelConfig,
    TextClassifier,
    TrainingConfig,
    build_model,
)
from keras_attention.applications.classification.linear import KINDS, rows_of
from keras_attention.applications.errors import UserError
from keras_attention.applications.text import END_ID

TEXTS = ["not bad", "so good", "bad fun", "not good"] * 3
LABELS = ["yes", "yes", "no", "no"] * 3


def grams(sentences):
    """The words of a text, and each with the one before it, 0 where a sentence begins."""
    pairs = [pair for each in sentences for pair in zip([0, *each], each, strict=False)]
    return [word for each in sentences for word in each] + pairs


def expected(train, targets, text, weight):
    """The scores in plain Python, from the docstring."""
    known = [set(grams(each)) for each in train]
    words = sum(map(len, text))
    scores = []
    for label in range(targets.shape[1]):
        has = targets[:, label] > 0
        seen = set().union(*known)
        p = {
            g: 1 + sum(g in each for each, one in zip(known, has, strict=True) if one) for g in seen
        }
        q = {
            g: 1 + sum(g in each for each, one in zip(known, has, strict=True) if not one)
            for g in seen
        }
        of_all = math.log(sum(q.values()) / sum(p.values()))
        found = [math.log(p[g] / q[g]) + of_all for g in grams(text) if g in seen]
        scores.append(weight * sum(found) / math.sqrt(words))
    return scores


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_counts_as_often_as_its_weight_says(kind):
    draw = np.random.default_rng(1)
    texts = [draw.integers(4, 9, draw.integers(2, 9)).tolist() for _ in range(30)]
    targets = draw.integers(0, 2, (30, 1))

    def scores(*given):
        layer = LinearScores(11, 1, kind)
        layer.count(*given)
        return [np.array(weight) for weight in layer.weights]

    weights = np.arange(30) % 3
    often = np.repeat(np.arange(30), weights)
    # The machine stops near its optimum.
    tolerance = {"naive_bayes": 1e-6, "nb_svm": 0.05}[kind]
    repeated = scores([texts[row] for row in often], targets[often])
    for one, other in zip(scores(texts, targets, weights), repeated, strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance)
    for one, other in zip(scores(texts, targets), scores(texts, targets, np.ones(30)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_nb_svm_is_the_machine_of_its_ratios():
    """Its scores are those of scikit-learn's machine, on features made here in plain Python."""
    from sklearn.svm import LinearSVC

    draw = np.random.default_rng(0)
    texts = [draw.integers(4, 9, draw.integers(2, 9)).tolist() for _ in range(30)]
    labels = np.array([sum(text) % 3 for text in texts])
    targets, (plain, machine) = np.eye(3)[labels], (LinearScores(9, 3, each) for each in KINDS)
    plain.count(texts, targets)
    machine.count(texts, targets)
    every = sorted({gram for text in texts for gram in grams([text])}, key=str)
    for label in range(3):
        ratios = {}
        for gram in every:
            ids, alone = (gram, 4) if isinstance(gram, tuple) else ((0, gram), gram)
            pairs, words = np.array(plain.pairs)[:, label], np.array(plain.words)[:, label]
            is_pair = isinstance(gram, tuple)
            ratios[gram] = pairs[rows_of(*map(np.array, ids))] if is_pair else words[alone]
        x = np.array(
            [
                [grams([text]).count(g) * ratios[g] / math.sqrt(len(text)) for g in every]
                for text in texts
            ]
        )
        wanted = LinearSVC(C=10.0, random_state=0).fit(x, labels == label).decision_function(x)
        found = [ops.convert_to_numpy(machine(np.array([text])))[0, label] for text in texts]
        np.testing.assert_allclose(found, wanted, atol=2e-2)


@pytest.mark.parametrize("targets", [[[1, 0], [0, 1], [1, 0]], [[1, 1], [0, 1], [0, 0]]])
def test_its_scores_are_the_equation(targets):
    train = [[[4, 5], [5, 6, 4]], [[5, 4, 4]], [[7], [4, 5]]]
    text, targets = [[4, 5, 9], [6, 4, 5]], np.array(targets, "float32")
    layer = LinearScores(12, 2, weight=0.5)
    flat = [[token for row in each for token in (END_ID, *row)][1:] for each in train]
    layer.count(flat, targets)
    ids = np.array([[*text[:1], *text[1:], [0, 0, 0]], [[8, 0, 0], [0] * 3, [0] * 3]])
    scores = ops.convert_to_numpy(layer(ids))
    np.testing.assert_allclose(scores[0], expected(train, targets, text, 0.5), rtol=1e-5)
    assert (scores[1] == 0).all()  # a word that no text has


def test_the_scores_of_a_network_have_it_but_for_training():
    config = ModelConfig(
        encoder="none",
        embedding_size=3,
        units=3,
        dropout=0.0,
        linear="naive_bayes",
        linear_weight=2.0,
    )
    model = build_model(config, 9, 2)
    assert all("prior" not in variable.path for variable in model.trainable_variables)
    inputs = {"text": np.array([[4, 5, 0]])}
    plain = ops.convert_to_numpy(model(inputs))
    model.prior.count([[4, 5], [6]], np.eye(2))
    added = ops.convert_to_numpy(model.prior(inputs["text"]))
    assert added[0, 0] > 0 > added[0, 1]
    np.testing.assert_allclose(model(inputs), plain + added, rtol=1e-5)
    np.testing.assert_allclose(model(inputs, training=True), plain, rtol=1e-5)


@pytest.mark.parametrize("architecture", ["pooling", "han"])
@pytest.mark.by_default("pooling")
def test_fit_counts_the_texts_and_files_keep_it(architecture, tmp_path, traced_nowhere):
    options = {"units": 4, "architecture": architecture, "encoder": "none"}
    linear = {"linear": "naive_bayes", "linear_weight": 50.0}
    task = TextClassifier.from_texts(TEXTS, LABELS, **linear, **options)
    task.fit(TEXTS, LABELS, epochs=1, verbose=0)
    assert task.evaluate_text(TEXTS, LABELS)["accuracy"] == 1.0
    assert task.classify("not bad").label == "yes"  # which its words alone do not say
    task.save(tmp_path / "task.keras")
    task.save_to_preset(tmp_path / "preset")
    for again in (
        keras.saving.load_model(tmp_path / "task.keras"),
        TextClassifier.from_preset(tmp_path / "preset"),
    ):
        found = again.classify("not bad").probabilities
        assert found == pytest.approx(task.classify("not bad").probabilities, abs=1e-6)


@pytest.mark.parametrize("architecture", ["pooling", "han"])
@pytest.mark.by_default("pooling")
def test_an_exported_model_has_it(architecture, tmp_path, traced_nowhere):
    import tensorflow as tf

    options = {"units": 4, "architecture": architecture, "encoder": "none"}
    task = TextClassifier.from_texts(TEXTS, LABELS, linear="nb_svm", **options)
    task.fit(TEXTS, LABELS, epochs=1, verbose=0)
    task.export(tmp_path / "exported")
    serve = tf.saved_model.load(str(tmp_path / "exported")).signatures["serving_default"]
    found = serve(text=tf.constant(["not bad"]))
    wanted = task.classify("not bad").probabilities
    names = [name.decode() for name in found["labels"][0].numpy()]
    served = dict(zip(names, found["probabilities"][0].numpy(), strict=True))
    assert served == pytest.approx(dict(wanted), abs=1e-5)


def test_a_network_without_it_is_described_as_before():
    model = build_model(ModelConfig(encoder="none", embedding_size=3, units=3), 9, 2)
    assert model.prior is None and "prior" not in model.get_config()


@pytest.mark.slow
def test_the_command_counts_too(tmp_path):
    table = tmp_path / "train.csv"
    rows = (f"{text},{label}" for text, label in zip(TEXTS, LABELS, strict=True))
    table.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    config = ClassificationConfig(
        data=DataConfig(train=str(table), dev=str(table)),
        model=ModelConfig(
            embedding_size=3, units=4, encoder="none", linear="nb_svm", linear_weight=50.0
        ),
        training=TrainingConfig(epochs=1, tensorboard=False),
    )
    train_task(TextClassifier, config, tmp_path / "run")
    task = TextClassifier.from_preset(tmp_path / "run")
    assert task.evaluate_text(TEXTS, LABELS)["accuracy"] == 1.0


def test_a_dataset_is_refused_as_nothing_counts_it():
    import tensorflow as tf

    task = TextClassifier.from_texts(TEXTS, LABELS, units=4, encoder="none", linear="nb_svm")
    with pytest.raises(ValueError, match="A linear model counts texts before training"):
        task.fit(tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(4), verbose=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ModelConfig(linear="nb_svm", linear_weight=-1.0),
            "model.linear_weight must be above 0",
        ),
        (lambda: ModelConfig(linear_weight=2.0), "linear_weight goes with model.linear only"),
        (lambda: ModelConfig(architecture="cross", linear="nb_svm"), "linear goes with model.arch"),
        (lambda: LinearScores(9, 2, "svm"), "kind must be one of naive_bayes, nb_svm"),
        (
            lambda: ClassificationConfig(
                data=DataConfig(labels="number"), model=ModelConfig(linear="nb_svm")
            ).check(),
            "model.linear does not go with data.labels number. Received: nb_svm",
        ),
    ],
)
def test_values_that_do_not_go_together_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()
