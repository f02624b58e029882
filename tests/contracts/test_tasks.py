"""Checks that every public task and network passes; one without an entry fails."""

import inspect
import itertools
import json
import os
import re
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_attention.applications import (
    answer_selection,
    classification,
    summarization,
    tagging,
    translation,
)
from keras_attention.applications.base.network import Network
from keras_attention.applications.base.task import TextTask
from keras_attention.applications.command import main
from keras_attention.distribute import ReleasesGraphs
from tests.applications.small_tasks import Column
from tests.contracts.tasks import SIZES, TASKS, TEXTS, translator

APPLICATIONS = (translation, summarization, answer_selection, classification, tagging)
IN_A_FRESH_PROCESS = """
import json, sys
import keras
if keras.backend.backend() == "tensorflow":  # a search runs once here, so it is not traced
    import tensorflow
    tensorflow.config.run_functions_eagerly(True)
from tests.contracts.tasks import TASKS
from keras_attention.applications import answer_selection, classification
from keras_attention.applications import summarization, tagging, translation
places = (translation, summarization, answer_selection, classification, tagging)
folder, results = sys.argv[1], {}
for name, entry in TASKS.items():
    cls = next(getattr(place, name) for place in places if hasattr(place, name))
    results[name] = [
        entry.use(cls.from_preset(f"{folder}/{name}")),
        entry.use(keras.saving.load_model(f"{folder}/{name}.keras")),
    ]
print(json.dumps(results))
"""
SERVED = """
import sys
import tensorflow as tf, tensorflow_text
before = set(sys.modules)
for folder in sys.argv[1:]:
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    _, specs = serve.structured_input_signature
    given = {tf.string: "a dog", tf.int32: 1}
    assert serve(**{k: tf.fill([1] * s.shape.rank, given[s.dtype]) for k, s in specs.items()})
new = {name.split(".")[0] for name in set(sys.modules) - before}
assert not new & {"keras", "keras_attention", "keras_hub"}, new
"""


def public(base):
    """The public subclasses of a base that the applications export."""
    found = set()
    for place in APPLICATIONS:
        for name in place.__all__:
            each = getattr(place, name)
            if inspect.isclass(each) and issubclass(each, base) and not inspect.isabstract(each):
                found.add(each)
    return found


def test_every_task_and_network_has_an_entry():
    bases = {translation.TranslationModel, getattr(classification, "ClassificationTask", None)}
    assert {each.__name__ for each in public(TextTask) - bases} == set(TASKS)
    taken = {network for entry in TASKS.values() for network in entry.networks}
    assert public(Network) - bases == taken
    assert all(issubclass(each, ReleasesGraphs) for each in public(TextTask) | public(Network))


@pytest.fixture(scope="module")
def trained(tmp_path_factory, module_traced_nowhere):
    """Every task, fitted on strings for an epoch, and saved in a folder in both forms."""
    folder = tmp_path_factory.mktemp("tasks")
    found = {}
    for name, entry in TASKS.items():
        keras.utils.set_random_seed(3)
        task = entry.make()
        history = task.fit(*entry.data, batch_size=12, epochs=1, verbose=0)
        assert np.isfinite(history.history["loss"]).all()
        task.save_to_preset(folder / name)
        task.save(folder / f"{name}.keras")
        found[name] = task
    return folder, found


def test_preset_and_keras_file_come_back_equal_in_a_fresh_process(trained):
    folder, tasks = trained
    done = subprocess.run(
        [sys.executable, "-c", IN_A_FRESH_PROCESS, str(folder)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads(done.stdout.strip().splitlines()[-1])
    for name, entry in TASKS.items():
        expected = json.loads(json.dumps(entry.use(tasks[name])))
        assert results[name] == [expected, expected]


@pytest.mark.by_default("TextClassifier", "AnswerRanker")
@pytest.mark.parametrize("name", TASKS)
def test_texts_of_unequal_weights_train(name, traced_nowhere):
    entry = TASKS[name]
    task = entry.make()
    before = [np.array(weight) for weight in task.backbone.get_weights()]
    weights = np.linspace(0, 1, len(entry.data[0]))
    history = task.fit(*entry.data, sample_weight=weights, batch_size=12, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    after = task.backbone.get_weights()
    assert any(np.any(old != new) for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("name", TASKS)
def test_figures_of_texts_name_their_signature(trained, name):
    report = trained[1][name].evaluate_text(*TASKS[name].data)
    assert report["signature"]
    json.dumps(report)


@pytest.mark.by_default("PairClassifier")
@pytest.mark.parametrize("name", TASKS)
def test_a_preset_without_preprocessor_says_how_to_read_it(trained, name, tmp_path, capsys):
    whole, entry, path = trained[1][name], TASKS[name], tmp_path / "alone"
    type(whole)(whole.backbone).save_to_preset(path)
    alone = type(whole).from_preset(path)
    advice = f"{name}.from_preset(preset, preprocessor=...). Received: preprocessor=None"
    with pytest.raises(ValueError, match=re.escape(advice)):
        alone.evaluate_text(*entry.data)
    if keras.backend.backend() == "tensorflow":  # the others write no SavedModel at all
        with pytest.raises(ValueError, match=re.escape(advice)):
            alone.export(tmp_path / "served")
    assert main(["evaluate", str(path)]) == 2
    assert advice in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["alone"]
    again = type(whole).from_preset(path, preprocessor=whole.preprocessor)
    assert entry.use(again)


GIVEN = {"text": "a dog runs .", "second": "a bird", "question": "a dog", "candidates": "one\ntwo"}


@pytest.mark.parametrize("name", TASKS)
def test_an_explanation_says_what_was_attended_to(trained, name, traced_nowhere):
    task = trained[1][name]
    found = json.loads(task.explain(**{name: GIVEN[name] for name in task.asks}).to_json())
    assert found["task"] == task.name_of_task and set(found["inputs"]) == set(task.asks)
    assert found["answers"]
    maps = [each for answer in found["answers"] for each in answer["maps"]]
    assert maps or not any(answer["text"] for answer in found["answers"])
    for each in maps:
        shape = np.array(each["weights"]).shape
        assert shape[2:] == (len(each["rows"]["tokens"]), len(each["columns"]["tokens"]))


@pytest.mark.by_default("TextClassifier", "PairClassifier", "AnswerRanker")
@pytest.mark.parametrize("name", TASKS)
def test_a_copy_from_the_config_has_the_same_config_and_weights(trained, name):
    task = trained[1][name]
    config = task.get_config()
    json.dumps(config)
    copy = type(task).from_config(json.loads(json.dumps(config)))
    assert copy.get_config() == config
    shapes = [tuple(each.shape) for each in task.backbone.weights]
    assert [tuple(each.shape) for each in copy.backbone.weights] == shapes
    copy.backbone.set_weights(task.backbone.get_weights())
    assert TASKS[name].use(copy) == TASKS[name].use(task)


@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
@pytest.mark.parametrize("name", TASKS)
@pytest.mark.by_default("TextClassifier")
def test_a_quantized_task_comes_back_equal(name, tmp_path, capsys, traced_nowhere):
    entry = TASKS[name]
    entry.make()  # so that automatic names differ from those of a process that reads
    task = entry.make()
    task.quantize("int8")
    task.save_to_preset(tmp_path / name)
    task.save(tmp_path / "task.keras")
    expected = entry.use(task)
    for again in (
        type(task).from_preset(tmp_path / name),
        keras.saving.load_model(tmp_path / "task.keras"),
    ):
        assert entry.use(again) == expected
    runs = [str(tmp_path / name)] * 2
    assert main(["average", *runs, "--output", str(tmp_path / "mean")]) == 2
    assert "average the networks they were made of" in capsys.readouterr().err
    assert not (tmp_path / "mean").exists()


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.by_default("TextClassifier")
def test_a_frozen_network_stays_frozen(name, tmp_path, traced_nowhere):
    """In a preset, in a file, by its configuration and by an argument of its constructor."""
    entry = TASKS[name]
    task = entry.make()
    task.backbone.trainable = False
    task.save_to_preset(tmp_path / name)
    task.save(tmp_path / "task.keras")
    made = [
        type(task).from_preset(tmp_path / name).backbone,
        keras.saving.load_model(tmp_path / "task.keras").backbone,
        type(task.backbone).from_config(task.backbone.get_config()),
        *([entry.make(trainable=False).backbone] if name == "Translator" else []),
    ]
    for each in made:
        assert not any(weight.trainable for weight in each.weights)
        each.trainable = True  # all of it learns again
        assert len(each.trainable_weights) == len(entry.make().backbone.trainable_weights)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.by_default("AnswerRanker")
def test_a_summary_is_printed(name, capsys):
    task = TASKS[name].make()
    for each in (task, task.backbone):
        each.summary(expand_nested=True)
        assert task.backbone.name in capsys.readouterr().out


def test_a_summarizer_with_a_transformer_prints_its_summary(capsys):
    encoder = summarization.TransformerReader(5, layers=3, heads=1)
    assert type(encoder).from_config(encoder.get_config()).get_config()["layers"] == 3
    TASKS["Summarizer"].make(encoder=encoder).summary(expand_nested=True)
    assert encoder.name in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
def test_answers_follow_lora_and_quantization(tmp_path):
    """Of a task that has compiled what it answers with."""
    entry = TASKS["TextClassifier"]

    def answers(task):
        found = task.classify(TEXTS, return_weights=False)
        return np.array([list(each.probabilities.values()) for each in found])

    def adapted(task):
        task.backbone.enable_lora(2)
        for weight in task.backbone.trainable_weights:
            weight.assign(np.full(weight.shape, 0.3))

    for number, change in enumerate((adapted, lambda task: task.quantize("int8"))):
        task = entry.make()
        before = answers(task)
        change(task)
        after = answers(task)
        assert np.abs(after - before).max() > 1e-5
        task.save_to_preset(tmp_path / str(number))
        again = answers(type(task).from_preset(tmp_path / str(number)))
        np.testing.assert_allclose(again, after, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_lora_alone_learns_and_has_a_file_of_its_own(name, tmp_path, traced_nowhere):
    entry = TASKS[name]
    task = entry.make()
    network, before = task.backbone, task.backbone.get_weights()
    assert entry.make().backbone.default_lora_layer_names() == network.default_lora_layer_names()
    copy = type(network).from_config(network.get_config())
    copy.set_weights(before)
    trained = [weight.trainable for weight in network.weights]
    network.enable_lora(2)
    learning = [weight for weight in network.weights if weight.trainable]
    assert learning and all("lora_" in weight.name for weight in learning)
    task.fit(*entry.data, batch_size=12, epochs=1, verbose=0)
    # Of the product A B, B is zero before the first step.
    assert all(np.any(weight) for weight in learning)
    kept = [weight for weight in network.weights if "lora_" not in weight.name]
    for weight, value in zip(kept, before, strict=True):
        np.testing.assert_array_equal(weight, value)

    path = tmp_path / "one.lora.h5"
    network.save_lora_weights(path)
    copy.load_lora_weights(path)
    for weight, other in zip(network.weights, copy.weights, strict=True):
        np.testing.assert_array_equal(weight, other)
    copy.load_lora_weights(path)  # into the same LoRA
    task.save_to_preset(tmp_path / "merged")
    merged = type(task).from_preset(tmp_path / "merged")
    assert entry.use(merged) == entry.use(task)
    assert [weight.trainable for weight in merged.backbone.weights] == trained


def test_wrong_uses_of_lora_are_refused(tmp_path):
    network, path = translator().backbone, tmp_path / "one.lora.h5"
    with pytest.raises(ValueError, match=r"among .*attention.*Received: .*\['query_dense'\]"):
        network.enable_lora(2, ["query_dense"])
    with pytest.raises(ValueError, match="Received: rank=0"):
        network.enable_lora(0)
    with pytest.raises(ValueError, match="without LoRA"):
        network.save_lora_weights(path)
    network.enable_lora(2, ["attention"])
    with pytest.raises(ValueError, match="which has it"):
        network.enable_lora(2)
    with pytest.raises(ValueError, match="must end in `.lora.h5`"):
        network.save_lora_weights(tmp_path / "one.h5")
    network.save_lora_weights(path)
    for other, message in (
        (translator(), "with rank 3"),
        (translator(translation.RNNEncDec), "another network"),
    ):
        if "rank" in message:
            other.backbone.enable_lora(3)
        with pytest.raises(ValueError, match=message):
            other.backbone.load_lora_weights(path)
    network.save_weights(tmp_path / "all.weights.h5")
    with pytest.raises(ValueError, match="holds no LoRA"):
        network.load_lora_weights(tmp_path / "all.weights.h5")


@pytest.mark.parametrize("name", TASKS)
def test_a_corpus_is_the_columns_that_it_was_read_from(name, traced_nowhere):
    task, data = TASKS[name].make(), TASKS[name].data
    corpus = task.read_columns(*data)
    first, last = corpus.split(0.4)
    found = task.evaluate(corpus, verbose=0), task.evaluate(*data, verbose=0)
    assert found[0] == pytest.approx(found[1])
    history = task.fit(first, validation_data=last, verbose=0).history
    assert np.isfinite([history["loss"], history["val_loss"]]).all()
    with pytest.raises(ValueError, match="A corpus holds its targets and weights: leave"):
        task.fit(corpus, sample_weight=[1.0] * len(corpus))


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.by_default("AnswerRanker", "TextClassifier")
def test_an_iterator_of_examples_is_their_list(name, traced_nowhere):
    """One of batches, which may have no end, is not gone through to validate."""
    entry = TASKS[name]
    task, batch = entry.make(), tuple(column[:6] for column in entry.data)
    with pytest.raises(ValueError, match="`tf.data.Dataset` of batches .*: an iterator of "):
        task.fit(*entry.data, validation_data=itertools.repeat(batch))
    assert task.fit(*map(iter, batch), batch_size=6, verbose=0).history["loss"]


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.by_default("AnswerRanker", "TextClassifier")
def test_an_iterator_is_predicted_as_its_list_and_one_batch_as_several(name, traced_nowhere):
    task, data = TASKS[name].make(), TASKS[name].data
    x, again = (data[0], iter(data[0])) if "Class" in name else (data, tuple(map(iter, data)))
    if name == "AnswerRanker":
        asked, candidates, _ = zip(*data[0], strict=True)
        x = {"question": list(asked), "candidates": list(candidates)}
        again = {"question": iter(asked), "candidates": iter(candidates)}
    found = task.predict(again, batch_size=12, verbose=0)
    np.testing.assert_array_equal(found, task.predict(x, batch_size=12, verbose=0))
    if name not in ("Summarizer", "Translator"):  # whose batches differ in length
        in_batches = task.predict(x, batch_size=7, verbose=0)  # by a pipeline, in a graph
        np.testing.assert_allclose(in_batches, found, atol=1e-5)
    for batch in (data, ({"text": data[0]}, *data[1:])):
        with pytest.raises(ValueError, match="`tf.data.Dataset` of batches .*: an iterator of "):
            task.predict(itertools.repeat(batch), verbose=0)


@pytest.mark.parametrize("name", ["AnswerRanker", "Summarizer"])
def test_predict_says_in_one_line_which_form_it_takes(name):
    """Those that Keras' tensors cannot hold, too: their errors spoke of sequences and tensors."""
    task, (x, *y) = TASKS[name].make(), TASKS[name].data
    if name == "AnswerRanker":
        asked, candidates = [TEXTS[0], TEXTS[1]], [TEXTS[:2], TEXTS[:1]]
        wrong = {
            r'of "question", .*: x=\[': [row[:2] for row in x],
            'pad with "". Received: from 1 to 2': {"question": asked, "candidates": candidates},
            "equally many .* 1 in candidates": {"question": asked, "candidates": candidates[:1]},
            "sequence of strings: .*0]='": {"question": asked, "candidates": asked},
            "sequence of the candidates .*: candidates='": {"question": asked, "candidates": "one"},
            "at least one question. Received: none": {"question": [], "candidates": []},
        }
    else:
        (texts,) = y
        wrong = {
            r"predict\(\(sources, targets\)\)`.*: x=\[": list(zip(x, texts, strict=True)),
            "predict.*: x={'source': ": {"source": x},
            "predict.*: x='": x[0],
            "equally many entries. .* 1 in targets": (x, texts[:1]),
            r"hold strings only; .*: sources\[0\]=\[": ([[each] for each in x], texts),
            "`targets` should be a sequence .*: targets=None": (x, None),
            "at least one text. Received: none": ([], []),
        }
    for message, given in wrong.items():
        with pytest.raises(ValueError, match=message) as raised:
            task.predict(given, verbose=0)
        assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_a_run_with_lora_has_no_mean_and_goes_on_with_lora_alone(tmp_path, capsys, traced_nowhere):
    run, entry = tmp_path / "run", TASKS["TextClassifier"]
    task, other = entry.make(), entry.make()
    task.backbone.enable_lora(2)
    options = {"batch_size": 6, "validation_split": 0.5, "verbose": 0, "run": run}
    task.fit(*entry.data, epochs=2, **options)
    assert main(["average", str(run), "--output", str(tmp_path / "mean")]) == 2
    message = capsys.readouterr().err
    assert "LoRA, whose factors have no mean. Use the best weights, `TextClassifier." in message
    assert not (tmp_path / "mean").exists()
    with pytest.raises(ValueError, match=r"with LoRA, .*enable_lora\(2\).*: one without LoRA"):
        other.fit(*entry.data, epochs=3, **options)
    other.backbone.enable_lora(3)
    with pytest.raises(ValueError, match=r"enable_lora\(2\).*Received: .*enable_lora\(3\)"):
        other.fit(*entry.data, epochs=3, **options)
    assert task.fit(*entry.data, epochs=3, **options).epoch == 3


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.by_default("AnswerRanker")
def test_another_part_in_mixed_precision_trains(name, traced_nowhere):
    entry = TASKS[name]
    task = entry.make(**entry.swapped(), dtype="mixed_bfloat16")
    history = task.fit(*entry.data, batch_size=6, epochs=1, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    assert {each.dtype for each in task.backbone.trainable_weights} == {"float32"}
    assert json.dumps(entry.use(task))


@pytest.mark.parametrize("name", TASKS)
def test_a_column_with_a_dtype_is_read_as_its_list(name):
    """A Series of pandas has a dtype, and is no tensor."""
    preprocessor = TASKS[name].make().preprocessor

    def read(column):
        x = column(*TEXTS), column(*TEXTS[::-1])
        if name in ("TextClassifier", "TokenClassifier"):
            x = x[0]
        elif name == "AnswerRanker":
            x = {"question": x[0], "candidates": [x[1]] * len(TEXTS)}
        return keras.tree.flatten(preprocessor(x))

    for found, expected in zip(read(Column), read(lambda *texts: list(texts)), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("network", list(SIZES)[1:])
def test_every_network_of_translation_trains(network):
    task = translator(network)
    history = task.fit(*TASKS["Translator"].data, batch_size=6, epochs=1, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    assert len(TASKS["Translator"].use(task)) == 3


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="TensorFlow writes all")
def test_what_a_backend_cannot_write_is_refused_before_anything_is(tmp_path):
    task = translator()
    for form in ("saved_model", "litert"):
        with pytest.raises(ValueError, match="needs TensorFlow in this version.*set KERAS_BACKEND"):
            task.export(tmp_path / "exported", form)
    if keras.backend.backend() == "torch":
        with pytest.raises(ValueError, match="needs TensorFlow or JAX"):
            task.fit(TEXTS, TEXTS, run=tmp_path / "run", validation_split=0.2)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow  # their own tests export each by default
@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow",
    reason="a SavedModel is written by the TensorFlow backend",
)
def test_exports_take_strings_and_need_nothing_of_keras_or_this_package(trained, tmp_path):
    for name, task in trained[1].items():
        task.export(tmp_path / name)
    folders = [str(tmp_path / name) for name in TASKS]
    done = subprocess.run([sys.executable, "-c", SERVED, *folders], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    import tensorflow as tf

    for name, folder in zip(TASKS, folders, strict=True):
        serve = tf.saved_model.load(folder).signatures["serving_default"]
        specs, letters = serve.structured_input_signature[1], trained[1][name].served_letters
        for long in (each for each in specs if specs[each].dtype == tf.string):
            texts = {
                each: tf.fill([1] * spec.shape.rank, "é" * (letters + 1) if each == long else "a")
                for each, spec in specs.items()
            }
            with pytest.raises(tf.errors.InvalidArgumentError, match=f"`{long}` should have at mo"):
                serve(**texts)
