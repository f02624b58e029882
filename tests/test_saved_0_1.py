"""What version 0.1 saved still loads, computes the same and trains on to the same figures."""

import importlib
import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_attention.applications.translation
import keras_attention.layers  # noqa: F401 - registers the classes
from keras_attention.applications.common.weights import load_weights
from keras_attention.applications.training.run_folder import RunFolder, read_metrics
from tests.applications.commands import call_command

SAVED = Path(__file__).parent / "fixtures_0_1"
OUTPUTS = json.loads((SAVED / "outputs.json").read_text(encoding="utf-8"))
RUNS = ("translation", "summarization", "answer-selection", "classification")


def assert_close(computed, wanted):
    np.testing.assert_allclose(np.asarray(computed), np.asarray(wanted), rtol=1e-6, atol=1e-6)


def load(task, name):
    module = importlib.import_module(f"keras_attention.applications.{task.replace('-', '_')}")
    return getattr(module, name).load(SAVED / task)


def test_a_translation_model():
    model = keras.models.load_model(SAVED / "translation.keras")
    wanted = OUTPUTS["translation-keras"]
    inputs = {name: np.array(wanted[name], "int32") for name in ("source", "target")}
    assert_close(keras.ops.convert_to_numpy(model(inputs)), wanted["logits"])


def test_a_run_of_translation():
    wanted = OUTPUTS["translation"]
    found = load("translation", "Translator").translate(wanted["inputs"], beam_size=3)
    for translation, own in zip(found, wanted["outputs"], strict=True):
        assert (translation.text, translation.tokens) == (own["text"], own["tokens"])
        assert_close(translation.score, own["score"])
        assert_close(translation.alignment, own["alignment"])


def test_a_run_of_summarization():
    wanted = OUTPUTS["summarization"]
    found = load("summarization", "Summarizer").summarize(wanted["inputs"])
    for summary, own in zip(found, wanted["outputs"], strict=True):
        assert (summary.text, summary.tokens) == (own["text"], own["tokens"])
        assert_close(summary.score, own["score"])
        assert_close(summary.p_gen, own["p_gen"])
        assert_close(summary.attention, own["attention"])


def test_a_run_of_answer_selection():
    wanted = OUTPUTS["answer-selection"]
    found = load("answer-selection", "AnswerRanker").rank(wanted["question"], wanted["candidates"])
    assert [each.text for each in found] == [own["text"] for own in wanted["outputs"]]
    for answer, own in zip(found, wanted["outputs"], strict=True):
        assert_close(answer.score, own["score"])
        assert_close(answer.weights, own["weights"])


def test_a_run_of_classification():
    wanted = OUTPUTS["classification"]
    found = load("classification", "TextClassifier").classify(wanted["inputs"])
    for prediction, own in zip(found, wanted["outputs"], strict=True):
        assert list(prediction.labels) == own["labels"]
        for label, probability in own["probabilities"].items():
            assert_close(prediction.probabilities[label], probability)


@pytest.mark.slow
@pytest.mark.parametrize("task", RUNS)
def test_a_run_goes_on_to_the_same_figures(task, tmp_path, capsys):
    path = tmp_path / task
    shutil.copytree(SAVED / task, path)
    options = ("--resume", "--output", path, "--training.epochs=2")
    done = call_command(capsys, "train", task, *options)
    assert done.status == 0, done.err
    found = read_metrics(path / "metrics.jsonl")
    for line, own in zip(found, OUTPUTS["resumed"][task], strict=True):
        for name, value in own.items():
            np.testing.assert_allclose(line[name], value, rtol=1e-6, err_msg=name)
    assert RunFolder(path).best_weights.name == "best.weights.h5"


def test_a_run_of_another_task_is_refused(tmp_path, capsys):
    message = "is a run of task 'summarization'. Expected: translation"
    with pytest.raises(ValueError, match=message):
        keras_attention.applications.translation.Translator.from_preset(SAVED / "summarization")
    path = tmp_path / "run"
    shutil.copytree(SAVED / "summarization", path)
    done = call_command(capsys, "train", "translation", "--resume", "--output", path)
    assert done.status == 2 and message in done.err


def test_weights_of_another_network_are_refused():
    model = keras.models.load_model(SAVED / "translation.keras")
    with pytest.raises(ValueError, match="cannot be loaded"):
        load_weights(model, SAVED / "classification" / "best.weights.h5")
