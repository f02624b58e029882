"""Thresholds of many labels: given, tuned on a development set, and kept with the weights."""

import itertools
import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import expit, logit
from sklearn.metrics import f1_score

from keras_attention.applications.base.train import average_tasks, resume_task, train_task
from keras_attention.applications.classification import Labels, TextClassifier
from keras_attention.applications.classification.config import ClassificationConfig
from keras_attention.applications.classification.results import (
    measure,
    prediction_of,
    signature,
    table,
    tuned_thresholds,
)
from keras_attention.applications.schema.reading import load_config
from keras_attention.applications.training.run_folder import RunFolder, read_metrics
from tests.applications.classification.conftest import make_task
from tests.applications.commands import call_command

pytestmark = pytest.mark.usefixtures("module_traced_nowhere")
MANY = Labels("many", ("a", "b", "c"))


@pytest.mark.parametrize("seed", range(7))
def test_tuned_thresholds_have_the_highest_f1_that_any_threshold_has(seed):
    draw = np.random.default_rng(seed)
    likely = draw.uniform(size=(11, 3)).round(1 if seed % 2 else 3).clip(0.01, 0.99)  # with ties
    truth = draw.uniform(size=(11, 3)) < 0.4
    truth[:, 2] = False  # a label that no example has
    found = tuned_thresholds(logit(likely), truth, MANY, 0.5)
    likely = expit(logit(likely))
    for column, right, threshold in zip(likely.T, truth.T, found, strict=True):
        every = [0.0, *column, 1.1]
        best = max(f1_score(right, column >= each, zero_division=0) for each in every)
        assert f1_score(right, column >= threshold, zero_division=0) == pytest.approx(best)
        assert 0 < threshold < 1
        if best == f1_score(right, column >= 0.5, zero_division=0):
            assert threshold == 0.5
    assert found[2] == 0.5


def test_extreme_scores_have_thresholds_too():
    scores = np.array([[1e4, -1e4, 0.0], [-1e4, -1e4, 0.0], [1e4, -1e4, 0.0]])
    truth = [[1, 1, 1], [0, 0, 0], [1, 0, 0]]
    thresholds = tuned_thresholds(scores, truth, MANY, 0.5)
    figures = measure(scores, truth, MANY, np.array(thresholds))
    f1 = [label["f1"] for label in figures["labels"]]
    assert f1 == pytest.approx([1.0, 0.5, 0.5])


def test_decisions_and_figures_follow_the_thresholds():
    scores, truth = logit([[0.3, 0.6, 0.2], [0.1, 0.8, 0.7]]), [[1, 0, 0], [0, 1, 0]]
    thresholds = np.array([0.25, 0.7, 0.9])
    assert prediction_of(scores[0], MANY).labels == ("b",)
    assert prediction_of(scores[0], MANY, thresholds).labels == ("a",)
    figures = measure(scores, truth, MANY, thresholds)
    assert figures["accuracy"] == figures["micro_f1"] == 1.0
    # The confidence of a decision is that of the label, or of its absence.
    confidence = np.array([0.3, 0.4, 0.8, 0.9, 0.8, 0.3])
    bins = {round(each["low"], 1): each for each in figures["calibration"]}
    assert bins[0.2]["examples"] == 2 and bins[0.2]["confidence"] == pytest.approx(0.3)
    assert sum(each["examples"] for each in figures["calibration"]) == len(confidence)
    half = measure(scores, truth, MANY)
    assert (half["accuracy"], half["micro_f1"]) == (0.0, pytest.approx(2 * 1 / (2 + 2 + 1)))
    assert signature(MANY).startswith("threshold:0.5|")
    assert signature(MANY, np.full(3, 0.3)).startswith("threshold:0.3|")
    assert signature(MANY, thresholds).startswith("thresholds:by label|")


TEXTS = ["red and blue", "red", "blue", "grey"] * 3
LABELS = [("red", "blue"), ("red",), ("blue",), ()] * 3


@pytest.fixture
def task():
    keras.utils.set_random_seed(4)
    return TextClassifier.from_texts(TEXTS, LABELS, units=5, threshold=0.4)


def test_a_threshold_is_an_option_of_the_task_and_of_each_call(task, tmp_path):
    assert task.thresholds == {"blue": 0.4, "red": 0.4}
    likely = task.classify("red").probabilities
    assert task.classify("red", threshold=0).labels == ("blue", "red")
    assert task.classify(["red"], threshold=1)[0].labels == ()
    only = task.classify("red", threshold={"red": likely["red"], "blue": 1.0})
    assert only.labels == ("red",)
    above = np.nextafter(likely["red"], 1)
    assert task.classify("red", threshold={"red": above, "blue": 1.0}).labels == ()
    assert task.classify("red", threshold={"blue": 1.0}).labels == ("red",) * (likely["red"] >= 0.4)
    report = task.evaluate_text(TEXTS, LABELS, threshold=0)
    assert report["thresholds"] == {"blue": 0, "red": 0} and "threshold:0|" in report["signature"]
    assert report["labels"][0]["recall"] == 1 and report["labels"][0]["precision"] == 0.5
    assert "threshold:0.4|" in task.evaluate_text(TEXTS, LABELS)["signature"]
    task.save_to_preset(tmp_path / "preset")
    assert TextClassifier.from_preset(tmp_path / "preset").threshold == 0.4
    copy = TextClassifier.from_config(task.get_config())
    assert copy.thresholds == task.thresholds


@pytest.mark.parametrize(
    ("threshold", "message"),
    [
        (1.5, "`threshold` must be a finite number from 0 to 1. Received: 1.5"),
        (float("nan"), "`threshold` must be a finite number from 0 to 1. Received: nan"),
        ("0.5", "`threshold` must be a finite number from 0 to 1. Received: '0.5'"),
        ({"green": 0.5}, "a label in `threshold` must be one of blue, red"),
        ({"red": -0.1}, "`threshold` must be a finite number from 0 to 1. Received: -0.1"),
    ],
)
def test_thresholds_that_cannot_be_are_refused(task, threshold, message):
    for call in (
        lambda: task.classify("red", threshold=threshold),
        lambda: task.evaluate_text(TEXTS, LABELS, threshold=threshold),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("labels", [["yes", "no"] * 6, [0.5, 1.5] * 6])
def test_thresholds_go_with_many_labels_only(labels):
    task = TextClassifier.from_texts(TEXTS, labels, units=4)
    assert task.thresholds == {} and "thresholds" not in task.evaluate_text(TEXTS, labels)
    with pytest.raises(ValueError, match="`threshold` decides which of many labels a text has"):
        task.classify("red", threshold=0.5)
    with pytest.raises(ValueError, match="Thresholds decide which of many labels"):
        task.tune_thresholds(TEXTS, labels)
    with pytest.raises(ValueError, match="training.threshold goes with many labels only"):
        TextClassifier.from_texts(TEXTS, labels, units=4, threshold=0.3)
    with pytest.raises(ValueError, match="training.tune_thresholds goes with many labels only"):
        options = {"validation_split": 0.5, "tune_thresholds": True}
        task.fit(TEXTS, labels, run="never", **options)


def test_tuned_thresholds_are_kept_used_and_exported(task, tmp_path):
    before = task.evaluate_text(TEXTS, LABELS)
    found = task.tune_thresholds(TEXTS, LABELS)
    report = task.evaluate_text(TEXTS, LABELS)
    assert found == task.thresholds == report["thresholds"] and len(set(found.values())) > 1
    for after, old in zip(report["labels"], before["labels"], strict=True):
        assert after["f1"] >= old["f1"]
    assert report["macro_f1"] > before["macro_f1"]
    assert f"{found['red']:9.4f}" in table(report) and "thresholds:by label" in table(report)
    task.save_to_preset(tmp_path / "preset")
    again = TextClassifier.from_preset(tmp_path / "preset")
    assert again.thresholds == found
    labels = [each.labels for each in again.classify(TEXTS)]
    assert labels == [each.labels for each in task.classify(TEXTS)]
    shown = task.explain(TEXTS[0]).text
    assert shown == task.classify(TEXTS[0]).summary
    again.export(tmp_path / "exported")
    serve = tf.saved_model.load(str(tmp_path / "exported")).signatures["serving_default"]
    served = serve(text=tf.constant(TEXTS))
    for names, chosen, own in zip(
        served["labels"].numpy(), served["chosen"].numpy(), labels, strict=True
    ):
        assert {name.decode() for name in names[chosen]} == set(own)


def test_thresholds_of_a_preprocessor_are_one_for_each_label(task):
    settings = task.preprocessor.get_config()
    for thresholds in ([0.5], [0.5, 1.5], [0.5, float("nan")]):
        with pytest.raises(ValueError, match="should be a probability for each of many labels"):
            type(task.preprocessor).from_config({**settings, "thresholds": thresholds})
    with pytest.raises(ValueError, match="for 0 labels"):
        one = make_task().preprocessor
        type(one).from_config({**one.get_config(), "thresholds": [0.5] * 3})


# ---- In a run.


def config_of(folder, *more):
    options = [f"--data.{split}={folder / split}.csv" for split in ("train", "dev")]
    options += ["--data.labels=many", "--model.units=4", "--model.embedding_size=4"]
    options += ["--training.epochs=2", "--training.tensorboard=false", "--training.seed=3"]
    return load_config(ClassificationConfig, [], [*options, *more])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("many")
    rows = [f"{text},{';'.join(labels)}\n" for text, labels in zip(TEXTS, LABELS, strict=True)]
    (folder / "train.csv").write_text("text,label\n" + "".join(rows))
    (folder / "dev.csv").write_text("text,label\n" + "".join(rows[:4]))
    return folder


@pytest.fixture(scope="module")
def run(files, module_traced_nowhere):
    train_task(TextClassifier, config_of(files, "--training.tune_thresholds=true"), files / "run")
    return files / "run"


def test_a_run_tunes_thresholds_for_its_best_weights(run, files, tmp_path, capsys):
    task = TextClassifier.from_preset(run)
    kept = task.thresholds
    best = max(
        read_metrics(RunFolder(run).metrics), key=lambda row: (row["val_score"], -row["val_loss"])
    )
    report = task.evaluate_text(TEXTS[:4], LABELS[:4])
    assert report["micro_f1"] == pytest.approx(best["val_score"])
    assert task.tune_thresholds(TEXTS[:4], LABELS[:4]) == pytest.approx(kept)
    assert report["micro_f1"] > task.evaluate_text(TEXTS[:4], LABELS[:4], threshold=1)["micro_f1"]
    done = call_command(capsys, "evaluate", run, "--split", "dev", "--json")
    assert json.loads(done.out)["thresholds"] == pytest.approx(kept), done.err
    done = call_command(capsys, "evaluate", run, "--split", "dev", "--json", "--threshold", "0.3")
    assert json.loads(done.out)["signature"].startswith("threshold:0.3|")
    (tmp_path / "lines").write_text("red\n")
    call = ["predict", run, "--input", tmp_path / "lines", "--threshold"]
    for threshold, labels in (("0", ["blue", "red"]), ("1", [])):
        assert json.loads(call_command(capsys, *call, threshold).out)["labels"] == labels
    done = call_command(capsys, *call, "2")
    assert done.status == 2 and "`threshold` must be a finite number from 0 to 1" in done.err


def test_a_run_with_tuned_thresholds_goes_on_and_is_not_measured_again(
    run, files, tmp_path, capsys
):
    path = shutil.copytree(run, tmp_path / "run")
    tuned = config_of(files, "--training.tune_thresholds=true", "--training.epochs=3")
    capsys.readouterr()
    assert resume_task(TextClassifier, tuned, path).updates > 0
    assert "has changed" not in capsys.readouterr().err
    assert TextClassifier.from_preset(path).thresholds.keys() == {"red", "blue"}
    changed = config_of(files, "--training.threshold=0.2", "--training.epochs=3")
    with pytest.raises(ValueError, match="cannot be continued with another training.threshold"):
        resume_task(TextClassifier, changed, path)


def test_another_threshold_measures_the_best_weights_again(files, tmp_path, capsys):
    path = tmp_path / "run"
    train_task(TextClassifier, config_of(files, "--training.epochs=1"), path)
    changed = config_of(files, "--training.threshold=0.01", "--training.epochs=1")
    capsys.readouterr()
    outcome = resume_task(TextClassifier, changed, path, accept_changes=True)
    assert "have val_loss" in capsys.readouterr().err
    task = TextClassifier.from_preset(path)
    assert task.threshold == 0.01
    assert outcome.best == pytest.approx(task.evaluate_text(TEXTS[:4], LABELS[:4])["micro_f1"])


def test_a_mean_of_weights_has_no_thresholds_of_one_of_them(run, tmp_path, capsys):
    path = shutil.copytree(run, tmp_path / "run")
    preset = TextClassifier.from_preset(path)
    preset.preprocessor.thresholds = [0.3, 0.6]
    preset.save_to_preset(tmp_path / "other")
    mean = average_tasks(TextClassifier, [run, tmp_path / "other"], tmp_path / "mean")
    assert mean.thresholds == {"blue": 0.5, "red": 0.5}
    assert "thresholds went with the weights of one alone" in capsys.readouterr().err


def test_f1_of_nothing_leaves_it_to_the_loss(files, tmp_path, capsys):
    """No probability reaches the threshold, and the loss falls: the last epoch is kept."""
    options = ["--training.threshold=1", "--training.patience=1", "--training.epochs=3"]
    outcome = train_task(TextClassifier, config_of(files, *options), tmp_path / "run")
    lines = read_metrics(RunFolder(tmp_path / "run").metrics)
    assert {line["val_score"] for line in lines} == {0.0}
    losses = [line["val_loss"] for line in lines]
    assert all(after < before for before, after in itertools.pairwise(losses))
    assert (outcome.epoch, outcome.best_epoch) == (3, 3)
    said = capsys.readouterr().err
    assert said.count("note: val_score of epoch 2 is that of epoch 1, 0: of equal scores") == 1


def test_labels_that_keep_their_weights_keep_their_thresholds(tmp_path):
    names = sorted({label for labels in LABELS for label in labels})
    task = TextClassifier.from_texts(TEXTS, LABELS, units=4, label_kind="many")
    task.preprocessor.thresholds = [0.1 + place / 100 for place in range(len(names))]
    known = task.thresholds
    task.save_to_preset(tmp_path / "preset")
    turned = TextClassifier.from_preset(tmp_path / "preset", labels=names[::-1])
    assert turned.thresholds == known and list(turned.thresholds) == names[::-1]
    found = [set(each.labels) for each in turned.classify(TEXTS)]
    assert found == [set(each.labels) for each in task.classify(TEXTS)]
    wider = TextClassifier.from_preset(tmp_path / "preset", labels=["other", *names[:-1]])
    assert wider.thresholds == {"other": 0.5, **{name: known[name] for name in names[:-1]}}
