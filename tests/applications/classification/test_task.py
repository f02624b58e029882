"""The verbs on a run that the real command trained, and what they refuse."""

import json
from argparse import Namespace

import numpy as np
import pytest
import tensorflow as tf

from keras_attention.applications.classification import (
    ClassificationTask,
    Labels,
    PairClassifier,
    TextClassifier,
    serving,
)
from keras_attention.applications.classification.results import prediction_of
from keras_attention.applications.classification.verbs import evaluate
from keras_attention.applications.data.made import opinions
from keras_attention.applications.errors import UserError
from tests.applications.classification.conftest import (
    LABELS,
    REVIEWS,
    TEXTS,
    make_task,
    train_arguments,
)
from tests.applications.commands import assert_same_training, call_command

# Each test reads or trains a little by itself: tracing that would be most of it.
pytestmark = pytest.mark.usefixtures("traced_nowhere")


def test_it_learns_what_one_word_does_not_say(opinions_run, opinions_classifier):
    rows = opinions.generate("test")
    report = opinions_classifier.evaluate_text(
        [row["text"] for row in rows], [row["sentiment"] for row in rows]
    )
    assert report["examples"] == 200 and report["accuracy"] > 0.9 and report["signature"]
    assert report["micro_f1"] == pytest.approx(report["accuracy"])
    assert np.sum(report["confusion"]) == 200
    assert "800 examples" in (opinions_run.parent / "stderr").read_text()


def test_attention_is_on_the_sentence_that_sums_up(opinions_classifier):
    rows = opinions.generate("test")[:40]
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


def test_a_confusion_matrix_of_numbers_is_refused_before_the_work(tmp_path):
    task = TextClassifier.from_texts(["so", "bad"], [1.0, 2.0], label_kind="number")
    options = Namespace(picture=tmp_path / "confusion.png", input=tmp_path / "missing.tsv")
    with pytest.raises(UserError, match="one label a text"):
        evaluate(task, options)


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
    page = b"<!DOCTYPE html>"
    for name, start in (("a.png", b"\x89PNG"), ("a.html", page), ("b.HTML", page)):
        path = tmp_path / name
        done = call_command(
            capsys, "visualize", opinions_run, "--input", REVIEWS[0], "--output", path
        )
        assert done.status == 0 and ("overall[" in done.out or start == page)
        assert path.read_bytes().startswith(start)
        # The one page of every task, which `serve` shows, too.
        assert (b'id="data"' in path.read_bytes()) == (start == page)
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
@pytest.mark.by_default("sizes1-labels1")
def test_the_exported_graph_reads_as_python_does(sizes, labels, tmp_path):
    """Texts that are cut, empty or of many sentences, alone and in a batch."""
    pairs = sizes["architecture"] == "cross"
    classifier = make_task(labels, pairs, **sizes)
    texts = [*REVIEWS, " \n ", "a.b c! d " * 9, "one.\n\n two three four five six. seven"]
    given = [(text, other) for text, other in zip(texts, texts[::-1], strict=True)]
    expected = classifier.classify(given if pairs else texts)
    assert any(each.truncated for each in expected)

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


@pytest.mark.parametrize("kind", ["one", "many"])
def test_a_graph_ranks_near_labels_as_python_does(kind):
    """In float32 their probabilities are equal: near 0.5, and of sure labels 1."""
    labels = Labels(kind, ("x", "y", "z"))
    scores = np.array([[0.1, 0.10000001, -1], [20, 21, 22], [-0.2, -3, -0.2]], "float32")
    found = serving._answer(tf.constant(scores), labels, [0.5, 0.5, 0.9999999999])
    for row, each in enumerate(scores):
        expected = prediction_of(each, labels, np.array([0.5, 0.5, 0.9999999999]))
        likely = expected.probabilities
        ranked = sorted(likely, key=lambda name: -likely[name])
        assert [name.decode() for name in found["labels"].numpy()[row]] == ranked
        assert found["label"].numpy()[row].decode() == ranked[0]
        if kind == "many":
            chosen = found["labels"].numpy()[row][found["chosen"].numpy()[row]]
            assert {name.decode() for name in chosen} == set(expected.labels)
    assert found["probabilities"].dtype == tf.float32


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
    assert done.err.startswith("1 of 2 texts had no words")


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


@pytest.mark.slow
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
            "a,b\n1,2\n",
            [],
            "Columns: a,b; the settings data.…_column, such as data.text_c",
        ),
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
        options.append(f"--data.{split}={path}")
    output = tmp_path / "run"
    done = call_command(capsys, "train", "classification", *options, "--output", output)
    assert done.status == 2 and len(done.err.strip().splitlines()) == 1
    assert str(tmp_path / f"{name}.tsv") in done.err and message in done.err
    assert not output.exists()
