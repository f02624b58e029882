"""Classifiers from Python: what `fit` takes, runs, and what is refused."""

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf

from keras_attention.applications.classification import (
    ClassificationPreprocessor,
    Labels,
    ModelConfig,
    PairClassifier,
    TextClassifier,
    build_model,
)
from keras_attention.applications.classification.config import ClassificationConfig
from keras_attention.applications.text import WordTokenizer
from tests.applications.classification.conftest import (
    LABELS,
    REVIEWS,
    TEXTS,
    make_task,
)
from tests.applications.small_tasks import Column

# Each test reads or trains a little by itself: tracing that would be most of it.
pytestmark = pytest.mark.usefixtures("traced_nowhere")


@pytest.mark.slow
def test_a_batch_counts_by_its_texts_where_a_loss_is_measured():
    """Of 33 texts one is long: its bucket has one text, and that of the others 32."""
    texts, labels = [*TEXTS, *TEXTS[:8], "long " * 90], [*LABELS, *LABELS[:8], "no"]
    task = TextClassifier.from_texts(TEXTS, LABELS, units=6)
    task.compile(keras.optimizers.SGD(0.0))
    found = task.classify(texts)
    each = [np.log(one.probabilities[own]) for one, own in zip(found, labels, strict=True)]
    expected = pytest.approx(-np.mean(each), rel=1e-5)
    assert task.evaluate(texts, labels, verbose=0) == expected
    seen = []
    count = keras.callbacks.LambdaCallback(on_test_batch_end=lambda batch, logs: seen.append(batch))
    options = {"validation_data": (texts, labels), "callbacks": [count], "verbose": 0}
    assert task.fit(TEXTS, LABELS, **options).history["val_loss"] == [expected]
    batches = len(seen)
    task.fit(TEXTS, LABELS, validation_batch_size=4, **options)
    assert batches == 2 and len(seen) - batches == 9


@pytest.mark.by_default("labels1-many")
@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (LABELS, "one"),
        ([(each,) for each in LABELS], "many"),
        ([1.5, 2.5, -1.0, 0.5] * 6, "number"),
    ],
)
def test_texts_of_every_kind_of_label_from_lists_and_datasets(labels, kind):
    import tensorflow as tf

    keras.utils.set_random_seed(2)
    task = TextClassifier.from_texts(TEXTS, labels, units=6, dropout=0.0)
    assert task.preprocessor.labels.kind == kind
    before = task.evaluate(TEXTS, labels, verbose=0)
    weights = np.ones(len(TEXTS))
    task.fit(TEXTS, labels, epochs=3, sample_weight=weights, validation_split=0.25, verbose=0)
    if kind != "many":  # tf.data has no column of sets
        task.fit(tf.data.Dataset.from_tensor_slices((TEXTS, labels)).batch(8), verbose=0)
    assert task.evaluate(TEXTS, labels, verbose=0) < before
    result = task.classify(TEXTS[0])
    assert (result.number is None) == (kind != "number")
    assert "good" in result._repr_html_() and "good" in result.show(color=False)


@pytest.mark.slow
def test_keras_hub_preprocesses_nothing_that_a_fit_validates_on(monkeypatch):
    """Its `evaluate` may make ids of texts again, as that of version 0.21 does."""
    import tensorflow as tf

    def evaluate(*_, **__):
        raise AssertionError("KerasHub would preprocess ids")

    task = TextClassifier.from_texts(TEXTS, LABELS, units=4, encoder="none")
    dataset = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(8)
    monkeypatch.setattr(keras_hub.models.Task, "evaluate", evaluate)
    for given, options in (
        ((TEXTS, LABELS), {"validation_split": 0.25}),
        ((TEXTS, LABELS), {"validation_data": dataset}),
        ((dataset,), {"validation_data": dataset}),
        ((dataset,), {"validation_data": (TEXTS, LABELS)}),
    ):
        assert "val_loss" in task.fit(*given, verbose=0, **options).history
    with pytest.raises(ValueError, match="`y` should not be passed"):
        task.fit(dataset, LABELS)
    with pytest.raises(ValueError, match="validation_split"):
        task.fit(dataset, validation_split=0.25)


def test_pairs_from_lists_columns_and_datasets():
    import tensorflow as tf

    pairs, labels = list(zip(TEXTS, TEXTS[::-1], strict=True)), [each == "yes" for each in LABELS]
    task = PairClassifier.from_texts(pairs, labels, units=6, encoder="none")
    task.fit(pairs, labels, verbose=0)
    task.fit((TEXTS, TEXTS[::-1]), labels, verbose=0)
    columns = (tf.constant(TEXTS), tf.constant(TEXTS[::-1]))
    task.fit(
        tf.data.Dataset.from_tensor_slices((columns, tf.cast(labels, "int32"))).batch(8), verbose=0
    )
    one, (same, other) = task.classify(pairs[0]), task.classify(pairs[:2])
    assert one.probabilities == pytest.approx(same.probabilities, abs=1e-6)
    assert len(one.weights) == 2 and set(other.probabilities) == {0, 1}


def test_columns_by_name_and_pairs_in_a_tuple_are_told_apart():
    pairs = [("so good", "good fun"), ("bad", "so")]
    first, second = (list(side) for side in zip(*pairs, strict=True))
    task = PairClassifier.from_texts(pairs * 12, LABELS, units=4, encoder="none")
    expected = task.predict(pairs, verbose=0)
    columns = {"text": first, "second": second}, {"text": tuple(first), "second": iter(second)}
    for x in (tuple(pairs), (first, second), *columns):
        np.testing.assert_allclose(task.predict(x, verbose=0), expected, atol=1e-6)
    labels = [each.label for each in task.classify(pairs)]
    for x in (tuple(pairs), columns[0]):
        assert [each.label for each in task.classify(x)] == labels
        assert task.fit(x, LABELS[1:3], verbose=0).history["loss"]
    for wrong, message in (
        ({"premise": first, "hypothesis": second}, r'columns "text" and "second"\. Received'),
        ({"text": first, "second": second[:1]}, "2 in text, 1 in second"),
    ):
        with pytest.raises(ValueError, match=message):
            task.fit(wrong, LABELS[1:3])
    with pytest.raises(ValueError, match="pairs of texts, each a tuple of two. Received"):
        task.predict(pairs[0], verbose=0)
    single = TextClassifier.from_texts(first * 12, LABELS, units=4, encoder="none")
    expected = single.predict(first, verbose=0)
    np.testing.assert_array_equal(single.predict(tuple(first), verbose=0), expected)


def test_a_graph_reads_texts_and_labels_as_python_does(traced):
    import tensorflow as tf

    for sentences in (None, "punctuation", "lines"):
        labels = Labels("one", ("bad", "good"))
        tokenizer = WordTokenizer.train(REVIEWS, vocabulary_size=100, lowercase=True)
        preprocessor = ClassificationPreprocessor(tokenizer, labels, False, 12, sentences, 4)
        expected, targets = preprocessor(REVIEWS, y=["good", "bad"] * 2)
        in_graph = tf.function(lambda x, y, p=preprocessor: p(x, y=y), autograph=False)
        found, found_targets = in_graph(tf.constant(REVIEWS), tf.constant(["good", "bad"] * 2))
        np.testing.assert_array_equal(found["text"], expected["text"])
        np.testing.assert_array_equal(found_targets, targets)


class Table(Column):
    """A table of pandas, which yields the names of its columns."""

    columns = ("text", "second")

    def to_numpy(self):
        return np.array(self.values, "object")


def test_columns_and_tables_are_read_as_lists_are():
    labels = Column("yes", "no")
    single = ClassificationPreprocessor.adapt(Column("so good", "so bad"), labels)
    np.testing.assert_array_equal(single(Column("so good"))["text"], single(["so good"])["text"])
    columns = Column("a dog", "a cat"), Column("it runs", "it sleeps")
    pairs = ClassificationPreprocessor.adapt(columns, labels)
    assert pairs.pairs
    inputs, targets = pairs(columns, y=labels)
    table = pairs(Table(("a dog", "it runs"), ("a cat", "it sleeps")))
    for name, ids in inputs.items():
        np.testing.assert_array_equal(table[name], ids)
    np.testing.assert_array_equal(targets, [[0, 1], [1, 0]])


def test_iterators_are_read_once_and_whole():
    pairs, labels = list(zip(TEXTS, TEXTS[::-1], strict=True)), LABELS
    task = PairClassifier.from_texts(iter(pairs), iter(labels), units=4, encoder="none")
    again = ClassificationPreprocessor.adapt(iter(pairs), iter(labels))
    assert again.pairs and again.labels == task.preprocessor.labels
    assert again.tokenizer.vocabulary == task.preprocessor.tokenizer.vocabulary
    found, expected = task.classify(zip(TEXTS, TEXTS[::-1], strict=True)), task.classify(pairs)
    assert [each.probabilities for each in found] == [each.probabilities for each in expected]


def test_metrics_leave_rows_of_padding_out():
    """Of 64 rows five are texts."""
    task, texts = make_task(), ["it was good .", "it was bad .", "in the end .", "so", "we came"]
    for labels in (["good"] * 5, ["bad"] * 5, ["so-so"] * 5):
        task.compile(metrics=["categorical_accuracy"], weighted_metrics=["categorical_accuracy"])
        figures = task.evaluate(texts, labels, batch_size=64, return_dict=True, verbose=0)
        accuracy = task.evaluate_text(texts, labels)["accuracy"]
        assert figures["categorical_accuracy"] == pytest.approx(accuracy)
        assert figures["weighted_categorical_accuracy"] == pytest.approx(accuracy)


def test_a_run_refuses_what_the_task_decides(tmp_path):
    fit, run = TextClassifier.from_texts(TEXTS, LABELS, units=3).fit, tmp_path / "run"
    options = {"validation_split": 0.25, "run": run}
    with pytest.raises(ValueError, match="precision=float32: give the network this `dtype`"):
        fit(TEXTS, LABELS, precision="mixed_bfloat16", **options)
    with pytest.raises(ValueError, match="give `sample_weight`, .*Received: class_weights=bal"):
        fit(TEXTS, LABELS, class_weights="balanced", **options)
    with pytest.raises(ValueError, match="`training` goes with `run`"):
        fit(TEXTS, LABELS, training=ClassificationConfig().training)
    assert not run.exists()


def test_executions_end_with_an_epoch():
    task = TextClassifier.from_texts(TEXTS, LABELS, units=3, encoder="none")
    task.compile(steps_per_execution=2)
    dataset = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(8).repeat()
    for given, options in (
        ((TEXTS, LABELS), {"batch_size": 8}),
        ((dataset,), {"steps_per_epoch": 3}),
    ):
        with pytest.raises(ValueError, match="divide the 3 .* steps_per_epoch to 2, say.*ed: 2"):
            task.fit(*given, verbose=0, **options)
    task.fit(TEXTS, LABELS, batch_size=8, steps_per_epoch=2, verbose=0)
    assert int(task.optimizer.iterations) == 2


def test_an_initial_epoch_has_its_own_order():
    def trained(*parts):
        keras.utils.set_random_seed(2)
        task = TextClassifier.from_texts(TEXTS, LABELS, units=3, encoder="none", dropout=0.0)
        for options in parts:
            task.fit(TEXTS, LABELS, batch_size=8, seed=1, verbose=0, **options)
        return task.backbone.get_weights()

    whole = trained({"epochs": 2})
    for weight, other in zip(
        whole, trained({"epochs": 1}, {"epochs": 2, "initial_epoch": 1}), strict=True
    ):
        np.testing.assert_allclose(weight, other, atol=1e-6)


def test_weights_count_by_place_whatever_their_index():
    """As those of a column of pandas, whose index is shuffled."""
    task = make_task(encoder="none")
    labels, weights = ["good", "bad", "so-so", "bad"], Column(1.0, 2.0, 3.0, 4.0)
    examples = task.read_columns(["so"] * 4, labels, weights)
    parts = [task.encode(part).weights.tolist() for part in examples.split(0.25)]
    assert parts == [[1, 2, 3], [4]]


def test_labels_in_tensors_are_read_as_in_lists():
    import tensorflow as tf

    def targets(names, kind, given):
        preprocessor = ClassificationPreprocessor(WordTokenizer(["so"]), Labels(kind, names))
        return preprocessor(tf.constant(["so"] * given.shape[0]), y=given)[1].numpy().tolist()

    assert targets((0, 1), "one", tf.constant([True, False])) == [[0, 1], [1, 0]]
    ragged = tf.ragged.constant([[1], [0, 1], []], dtype=tf.int32)  # padded with no label, not 0
    assert targets((0, 1), "many", ragged) == [[0, 1], [1, 1], [0, 0]]
    assert targets(("a", "b"), "many", tf.constant([["b", ""], ["b", "a"]])) == [[0, 1], [1, 1]]
    for names, kind, given in (
        ((0, 1), "one", tf.constant([2])),
        ((), "number", tf.constant([float("nan")])),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match="a label"):
            targets(names, kind, given)


def test_a_task_without_preprocessor_is_saved(tmp_path):
    task = make_task(encoder="none")
    TextClassifier(task.backbone).save_to_preset(tmp_path / "preset")
    again = TextClassifier.from_preset(tmp_path / "preset", preprocessor=task.preprocessor)
    one, other = (each.classify("it was good").probabilities for each in (task, again))
    assert one == pytest.approx(other, abs=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda task: task.classify(["so", None]), r"texts\[1\]=None"),
        (
            lambda task: TextClassifier.from_texts([], []),
            "Expected at least one text and its label",
        ),
        (
            lambda task: TextClassifier.from_texts(TEXTS, LABELS, tokenizer="words"),
            "Expected a dict for TokenizerConfig. Received: 'words'",
        ),
        (
            lambda task: TextClassifier.from_texts([], [], label_kind="number"),
            "Expected at least one text and its label",
        ),
        (
            lambda task: task.fit(["so", "bad"], ["good", "bad"], sample_weight=[1, None]),
            r"`sample_weight` should hold numbers. Received: \[1, None\]",
        ),
        (lambda task: task.preprocessor({"text": ["so", None]}), r"text\[1\]=None"),
        (
            lambda task: task.preprocessor({"texts": ["so"]}),
            r'the columns "text"\. Received: .*texts',
        ),
        (lambda task: task.classify([("so", "bad")]), r"texts\[0\]=\('so', 'bad'\)"),
        (lambda task: task.fit(["so"], ["good", "bad"]), "1 in x, 2 in y"),
        (lambda task: task.fit(["so", "bad"], [b"good", b"\xff"]), r"UTF-8.*: y\[1\]=b'.xff'"),
        (lambda task: task.fit([], []), "at least one text"),
        (lambda task: task.predict([]), "at least one text"),
        (lambda task: task.classify(np.array("so")), "a sequence of strings"),
        (lambda task: task.fit(["so"], ["bad"], batch_size=2.5), "whole number of .*: 2.5"),
        (lambda task: task.fit(TEXTS, LABELS, sample_weight=["a"]), r"numbers. Received: \['a'"),
        (lambda task: task.fit(TEXTS, LABELS, validation_split="a"), "finite number .*: 'a'"),
        (lambda task: task.fit(TEXTS, LABELS, class_weight={0: 2.0}), "give a `sample_weight` for"),
        (
            lambda task: task.evaluate(
                tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)), verbose=0
            ),
            r"as `dataset.batch\(32\)` gives. Received: elements of shapes \(\), \(\)",
        ),
        (
            lambda task: task.fit(["so", " "], ["good", "bad"]),
            r"x\[1\]: a text should have words. Received: ' '",
        ),
        (
            lambda task: task.evaluate_text(["so"], ["new"]),
            r"x\[0\]: the training data have no label 'new'. Known: good",
        ),
        (lambda task: task.fit(["so"]), "their labels"),
        (lambda task: TextClassifier(task.backbone).classify("so"), "with its preprocessor"),
        (lambda task: TextClassifier.from_texts(["so", "bad"], None), r"labels\[0\]=None"),
        (lambda task: ClassificationPreprocessor.adapt([None, "so"], [0, 1]), r"texts\[0\]=None"),
        (lambda task: TextClassifier.from_texts(TEXTS, LABELS, unit=3), "Did you mean 'units'"),
        (
            lambda task: TextClassifier.from_texts(TEXTS, LABELS, architecture="poolin"),
            "model.architecture must be one of .* Did you mean 'pooling'",
        ),
        (
            lambda task: PairClassifier(task.backbone, task.preprocessor),
            "encoder of pairs of texts",
        ),
        (lambda task: make_task(pairs=True), "needs a preprocessor and an encoder of pairs"),
        (
            lambda task: TextClassifier(
                build_model(ModelConfig(embedding_size=4, units=4), 9, 3), task.preprocessor
            ),
            "vocabulary should be the preprocessor's",
        ),
        (
            lambda task: TextClassifier(
                build_model(
                    ModelConfig(embedding_size=4, units=4),
                    task.preprocessor.tokenizer.vocabulary_size,
                    7,
                ),
                task.preprocessor,
            ),
            "an output for each label, 3. Received: outputs=7",
        ),
    ],
)
def test_what_cannot_be_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(make_task(encoder="none"))
