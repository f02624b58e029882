"""The verbs on a run that the real command trained, and what they refuse."""

import json

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf

from keras_attention.applications.classification import (
    ClassificationPreprocessor,
    ClassificationTask,
    Labels,
    ModelConfig,
    PairClassifier,
    TextClassifier,
    build_model,
)
from keras_attention.applications.classification.config import ClassificationConfig
from keras_attention.applications.classification.tables import generate
from keras_attention.applications.common.errors import UserError
from keras_attention.text import WordTokenizer
from tests.applications.classification.conftest import randomize, train_arguments
from tests.applications.commands import assert_same_training, call_command
from tests.applications.small_tasks import Column

# Each test reads or trains a little by itself: tracing that would be most of it.
pytestmark = pytest.mark.usefixtures("traced_nowhere")
REVIEWS = [
    "the food was bad . overall , it was good .",
    "",
    "we came by train .\nall in all , the stay was not excellent . the bed was good .",
    "in the end , it was terrible .",
]


TEXTS = ["good fun", "very good", "bad film", "so bad"] * 6
LABELS = ["yes", "yes", "no", "no"] * 6


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return np.array(TEXTS), np.array(LABELS)


def make_task(labels=None, pairs=False, **sizes):
    """A task of random weights that reads twelve tokens of a text, and sentences of four."""
    labels = labels or Labels("one", ("good", "bad", "so-so"))
    config = ModelConfig(**{"embedding_size": 6, "units": 5, **sizes})
    tokenizer = WordTokenizer.train(REVIEWS, vocabulary_size=100, lowercase=True)
    sentences = "punctuation" if config.architecture == "han" else None
    preprocessor = ClassificationPreprocessor(tokenizer, labels, pairs, 12, sentences, 4)
    model = build_model(config, tokenizer.vocabulary_size, labels.outputs)
    randomize(model)
    return (PairClassifier if pairs else TextClassifier)(model, preprocessor)


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
        (lambda task: task.preprocessor({"texts": ["so"]}), "Received: text=None"),
        (lambda task: task.classify([("so", "bad")]), r"texts\[0\]=\('so', 'bad'\)"),
        (lambda task: task.fit(["so"], ["good", "bad"]), "1 in x, 2 in y"),
        (lambda task: task.fit([], []), "at least one text"),
        (lambda task: task.predict([]), "at least one text"),
        (lambda task: task.classify(np.array("so")), "a sequence of strings"),
        (lambda task: task.fit(["so"], ["bad"], batch_size=2.5), "whole number of .*: 2.5"),
        (lambda task: task.fit(TEXTS, LABELS, sample_weight=["a"]), r"numbers. Received: \['a'"),
        (lambda task: task.fit(TEXTS, LABELS, validation_split="a"), "finite number .*: 'a'"),
        (lambda task: task.fit(TEXTS, LABELS, class_weight={0: 2.0}), "give a `sample_weight` for"),
        (lambda task: task.fit(Batches()), "`x` should be lists of texts, .*Received: x=<"),
        (
            lambda task: task.fit(TEXTS, LABELS, validation_data=Batches()),
            "`validation_data` should be lists of texts",
        ),
        (
            lambda task: task.evaluate(
                tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)), verbose=0
            ),
            r"as `dataset.batch\(32\)` gives. Received: elements of shapes \(\), \(\)",
        ),
        (lambda task: task.fit(["so", " "], ["good", "bad"]), r"have words. Received: x\[1\]=' '"),
        (lambda task: task.evaluate_text(["so"], ["new"]), "among .* Received: 'new', of x"),
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


def test_it_learns_what_one_word_does_not_say(opinions_run, opinions_classifier):
    rows = generate("test")
    report = opinions_classifier.evaluate_text(
        [row["text"] for row in rows], [row["sentiment"] for row in rows]
    )
    assert report["examples"] == 200 and report["accuracy"] > 0.9 and report["signature"]
    assert report["micro_f1"] == pytest.approx(report["accuracy"])
    assert np.sum(report["confusion"]) == 200
    assert "800 examples" in (opinions_run.parent / "stderr").read_text()


def test_attention_is_on_the_sentence_that_sums_up(opinions_classifier):
    rows = generate("test")[:40]
    hits = 0
    for result in opinions_classifier.classify([row["text"] for row in rows]):
        (weights,) = result.weights
        best = " ".join(weights.tokens[int(weights.sentences.argmax())])
        hits += any(word in best for word in ("overall", "all in all", "in the end"))
        for tokens, words in zip(weights.tokens, weights.words, strict=True):
            assert len(tokens) == len(words)
            assert words.sum() == pytest.approx(1, rel=1e-4)
    assert hits >= 30


def test_evaluate_writes_a_table_json_and_a_picture(opinions_run, tmp_path, capsys):
    picture = tmp_path / "confusion.png"
    done = call_command(capsys, "evaluate", opinions_run, "--picture", picture)
    assert done.status == 0 and "accuracy" in done.out and "calibration error" in done.out
    assert picture.read_bytes().startswith(b"\x89PNG")
    done = call_command(capsys, "evaluate", opinions_run, "--json", "--split", "dev")
    report = json.loads(done.out)
    assert report["examples"] == 120 and report["label_names"] == ["bad", "good"]
    done = call_command(capsys, "evaluate", opinions_run, "--picture", picture)
    assert done.status == 2 and "already exists" in done.err


def test_evaluate_a_file_with_an_unseen_label(opinions_run, tmp_path, capsys):
    table = tmp_path / "more.tsv"
    table.write_text("text\tsentiment\nit was good .\tgood\nit was so .\tmiddling\n")
    done = call_command(capsys, "evaluate", opinions_run, "--input", table)
    assert done.status == 2 and "more.tsv, line 3: the training data have no label" in done.err
    table.write_text(table.read_text() + f" \tbad\n{'so ' * 100_000}\tbad\n")
    done = call_command(capsys, "evaluate", opinions_run, "--input", table, "--skip", "--json")
    report = json.loads(done.out)
    assert report["examples"] == 1
    assert report["left_out"] == {"empty": 1, "unknown label": 1, "too long": 1}
    table.write_text("text\tmood\nit was good .\tgood\n")
    done = call_command(capsys, "evaluate", opinions_run, "--input", table)
    assert done.status == 2 and "there is no column 'sentiment'" in done.err


def test_predict_lines_and_tables(opinions_run, opinions_classifier, tmp_path, capsys):
    expected = opinions_classifier.classify(REVIEWS)
    lines = tmp_path / "reviews.jsonl"
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in REVIEWS))
    done = call_command(capsys, "predict", opinions_run, "--input", lines)
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [each["labels"] for each in found] == [list(each.labels) for each in expected]
    for each, wanted in zip(found, expected, strict=True):
        assert each["probabilities"] == pytest.approx(wanted.probabilities, abs=1e-6)
        assert sum(each["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    plain = tmp_path / "reviews.txt"
    plain.write_text(REVIEWS[0] + "\n" + REVIEWS[3] + "\n")
    output = tmp_path / "out.jsonl"
    done = call_command(capsys, "predict", opinions_run, "--input", plain, "--output", output)
    assert done.status == 0 and len(output.read_text().splitlines()) == 2


def test_visualize_in_every_form(opinions_run, tmp_path, capsys):
    for name, start in (("a.png", b"\x89PNG"), ("a.html", b"<!DOCTYPE html>")):
        path = tmp_path / name
        done = call_command(
            capsys, "visualize", opinions_run, "--input", REVIEWS[0], "--output", path
        )
        assert done.status == 0 and "overall[" in done.out
        assert path.read_bytes().startswith(start)
    done = call_command(capsys, "visualize", opinions_run, "--input", " ")
    assert done.status == 2 and "the text is empty. Received: ' '" in done.err
    done = call_command(
        capsys, "visualize", opinions_run, "--input", "a", "--output", tmp_path / "a.doc"
    )
    assert done.status == 2 and "the suffix of" in done.err and ".html" in done.err
    done = call_command(capsys, "visualize", opinions_run, "--input", "a", "--second", "b")
    assert done.status == 2 and "reads single texts. Received: 2 texts" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "one", "names": ("a", "b", "a")}, "each once. Received: .'a', 'b', 'a'"),
        ({"kind": "one", "names": ("a", 1.5)}, "strings or whole numbers"),
        ({"kind": "one", "names": (1, "1")}, "each once. Received: .1, '1'"),
        ({"kind": "one"}, "should be the labels"),
        ({"kind": "number", "names": ("a",)}, "none for numbers"),
        ({"kind": "number", "mean": float("nan")}, "should be finite"),
        ({"kind": "number", "scale": 10**400}, "should be finite"),
        ({"kind": "number", "scale": 0.0}, "`scale` above 0"),
    ],
)
def test_labels_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Labels(**arguments)


@pytest.mark.parametrize(
    ("sizes", "labels"),
    [
        ({"architecture": "han"}, Labels("many", ("x", "y", "z"))),
        ({"architecture": "cross", "encoder": "none"}, Labels("number", mean=3.0, scale=2.0)),
    ],
)
def test_the_exported_graph_reads_as_python_does(sizes, labels, tmp_path):
    """Texts that are cut, empty or of many sentences, alone and in a batch."""
    pairs = sizes["architecture"] == "cross"
    classifier = make_task(labels, pairs, **sizes)
    texts = [*REVIEWS, " \n ", "a.b c! d " * 9, "one.\n\n two three four five six. seven"]
    given = [(text, other) for text, other in zip(texts, texts[::-1], strict=True)]
    expected = classifier.classify(given if pairs else texts)
    assert any(each.truncated for each in expected)

    import tensorflow as tf

    classifier.export(tmp_path / "saved")
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    named = {"text": tf.constant(texts)}
    if pairs:
        named["second"] = tf.constant(texts[::-1])
    found = {name: value.numpy() for name, value in serve(**named).items()}
    assert found["truncated"].tolist() == [each.truncated for each in expected]
    if pairs:
        numbers = [each.number for each in expected]
        np.testing.assert_allclose(found["numbers"], numbers, rtol=1e-4)
        return
    for row, each in enumerate(expected):
        names = [name.decode() for name in found["labels"][row]]
        likely = dict(zip(names, found["probabilities"][row], strict=True))
        assert likely == pytest.approx(each.probabilities, abs=1e-5)
        chosen = {name for name, p in likely.items() if p >= 0.5}
        assert chosen == set(each.labels)
        (weights,) = each.weights
        for place, words in enumerate(weights.words):
            np.testing.assert_allclose(
                found["weights"][row, place, : len(words)], words, rtol=1e-4, atol=1e-6
            )


def test_a_model_without_attention_has_nothing_to_draw():
    task = make_task(architecture="mean", encoder="none")
    with pytest.raises(UserError, match="architecture mean has no attention to draw"):
        task.draw("it was good .")
    assert not task.classify("it was good .").weights


def test_a_text_cut_at_prediction_says_so():
    classifier = make_task(encoder="none")
    words = "it was good . " * 25_000
    cut, whole = classifier.classify([words, "it was good . " * 3])
    assert cut.truncated and not whole.truncated
    assert cut.probabilities == pytest.approx(whole.probabilities)
    assert "longer than data.max_length" in classifier.draw(words).show(color=False)
    assert "max_length" not in classifier.draw("it was good .").show(color=False)


def test_a_text_without_words_is_answered_and_counted(opinions_run, tmp_path, capsys):
    table = tmp_path / "new.tsv"
    table.write_text("text\nit was good .\n \n")
    done = call_command(capsys, "predict", opinions_run, "--input", table)
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [each.get("empty") for each in found] == [None, True]
    assert done.err.startswith("1 of 2 texts have no words")


def test_a_run_of_pairs_is_a_pair_classifier(tmp_path):
    """Through Python alone: a run folder from lists, and its preset read back as what it is."""
    pairs = list(zip(TEXTS, TEXTS[::-1], strict=True))
    task = PairClassifier.from_texts(pairs, LABELS, units=6, encoder="none")
    task.fit(pairs, LABELS, epochs=1, validation_split=0.25, run=tmp_path / "run")
    again = ClassificationTask.from_preset(tmp_path / "run")
    assert isinstance(again, PairClassifier)
    assert again.classify(pairs[0]).probabilities == task.classify(pairs[0]).probabilities
    with pytest.raises(ValueError, match="Expected: TextClassifier"):
        TextClassifier.from_preset(tmp_path / "run")


def test_resume_is_exact(tmp_path, capsys, monkeypatch, traced):
    monkeypatch.chdir(tmp_path)
    small = ["--model.architecture=pooling", "--model.encoder=none", "--training.epochs=2"]
    small += ["--model.dropout=0.3", "--model.word_dropout=0.1", "--training.steps_per_epoch=5"]
    for name, more in (("whole", []), ("parts", ["--training.epochs=1"])):
        assert call_command(capsys, *train_arguments(name, *small, *more)).status == 0
    again = ["train", "classification", "--output", "parts", "--resume"]
    assert call_command(capsys, *again, "--training.epochs=2").status == 0
    assert_same_training(tmp_path / "whole", tmp_path / "parts")


WHOLE = "text\tlabel\n" + "it was good .\tyes\nit was bad .\tno\n" * 10  # 21 lines
LONG = "so " * 100_000


@pytest.mark.parametrize(
    ("name", "content", "more", "message"),
    [
        ("train", WHOLE, ["--data.text_column=txt"], "line 1: there is no column 'txt'. Did you"),
        (
            "train",
            WHOLE,
            ["--data.second_column=b", "--model.architecture=cross"],
            "no column 'b'",
        ),
        ("train", WHOLE + "so so\tmaybe\n", [], "line 22: label 'maybe' has 1 example"),
        ("train", WHOLE + " \tyes\n", [], "line 22: column 'text' is empty"),
        ("train", WHOLE + f"{LONG}\tyes\n", [], "line 22: 100,000 tokens, more than data.max_"),
        ("train", WHOLE.encode() + b"caf\xe9\tyes\n", [], "line 22: expected UTF-8 text"),
        ("train", "text\tlabel\n" + "so\tyes\n" * 9, [], "expected at least two labels"),
        ("dev", "text\tlabel\nso\tmaybe\n", [], "line 2: the training data have no label 'may"),
        ("dev", f"text\tlabel\n{LONG}\tyes\n", [], "line 2: 100,000 tokens"),
        ("test", "texts\tlabel\nso\tyes\n", [], "line 1: there is no column 'text'"),
        ("test", "text\tlabel\nso\tyes\n\tyes\n", [], "line 3: column 'text' is empty"),
    ],
)
def test_a_bad_file_ends_training_with_one_line(name, content, more, message, tmp_path, capsys):
    """Before anything is written; the line says which file, and which line of it."""
    files = {"train": WHOLE, name: content}
    options = ["--model.encoder=none", *more]
    for split, text in files.items():
        path = tmp_path / f"{split}.tsv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        options.append(f"--data.{split}_file={path}")
    output = tmp_path / "run"
    done = call_command(capsys, "train", "classification", *options, "--output", output)
    assert done.status == 2 and len(done.err.strip().splitlines()) == 1
    assert str(tmp_path / f"{name}.tsv") in done.err and message in done.err
    assert not output.exists()
