"""Saving and reading back: presets, `.keras`, files of 0.1, and what is damaged or does not fit."""

import json
import os
import resource
import shutil

import keras
import numpy as np
import pytest

from keras_attention.applications.errors import UserError
from keras_attention.applications.translation import RNNSearch, TranslationPreprocessor, Translator
from keras_attention.decoding import SearchOptions
from tests.applications.translation_runs import (
    SOURCE_LINES,
    TARGET_LINES,
    make_preprocessor,
    make_translator,
)


@pytest.fixture(scope="module")
def task():
    local = {"attention": "local-p", "half_width": 2, "dropout": 0.0}
    made = make_translator("words", architecture="luong", **local)
    made.dictionary = {"horse": "pferd"}
    return made


@pytest.fixture(scope="module")
def preset(task, tmp_path_factory):
    path = tmp_path_factory.mktemp("presets") / "luong"
    task.save_to_preset(path)
    return path


@pytest.mark.slow
def test_a_preset_and_a_file_come_back_with_equal_scores(task, preset, tmp_path, traced_nowhere):
    task.save(tmp_path / "task.keras")
    expected = task.translate(SOURCE_LINES, n_best=2)
    for again in (
        Translator.from_preset(preset),
        Translator.load(str(preset)),
        keras.saving.load_model(tmp_path / "task.keras"),
    ):
        assert type(again) is Translator
        assert (again.search, again.dictionary) == (task.search, task.dictionary)
        for one, other in zip(again.translate(SOURCE_LINES, n_best=2), expected, strict=True):
            assert [each.score for each in one.ranked] == [each.score for each in other.ranked]
            np.testing.assert_array_equal(one.alignment, other.alignment)
    # A preset holds no optimizer's variables, a file does.
    assert again.optimizer.built and not Translator.load(str(preset)).optimizer.built
    new = Translator.from_preset(preset, load_weights=False, search={"beam_size": 1})
    assert new.search == SearchOptions(beam_size=1)
    assert new.compiled and not new.optimizer.built  # its variables are for training alone
    assert new.translate(SOURCE_LINES[0]).score != task.translate(SOURCE_LINES[0]).score


def test_a_compiled_task_trains_on_from_its_file(task, tmp_path, traced_nowhere):
    keras.utils.set_random_seed(1)
    copy = Translator.from_config(task.get_config())
    copy.compile(keras.optimizers.Adam(0.01), metrics=["sparse_categorical_accuracy"])
    data = {"batch_size": 5, "shuffle": False, "verbose": 0}
    pairs = SOURCE_LINES[2::2], TARGET_LINES[2::2]
    copy.fit(*pairs, **data)
    copy.save(tmp_path / "task.keras")
    again = keras.saving.load_model(tmp_path / "task.keras")
    one, other = (each.fit(*pairs, **data).history for each in (copy, again))
    assert one.keys() == other.keys() >= {"loss", "sparse_categorical_accuracy"}
    assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)


def lose(name):
    return lambda folder: (folder / name).unlink()


def cut(name):
    def damage(folder):
        path = folder / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return damage


def change(name, edit):
    """Change a part of a preset, and its checksum with it."""

    def damage(folder):
        content = json.loads((folder / name).read_text())
        edit(content)
        (folder / name).write_text(json.dumps(content))
        for path in folder.iterdir():
            if "sum" in path.name.lower():
                path.unlink()

    return damage


def of_another_task(content):
    content |= {"registered_name": "keras_attention.summarization>Summarizer"}
    content |= {"class_name": "Summarizer"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lose("task.json"), "is no preset, or half-written: it has no task.json"),
        (lose("preprocessor.json"), "half-written: it has no preprocessor.json"),
        (lose("model.weights.h5"), "model.weights.h5"),
        (cut("model.weights.h5"), "model.weights.h5"),
        (cut("task.json"), "task.json"),
        (cut("preprocessor.json"), "preprocessor.json"),
        (change("task.json", of_another_task), "a preset of `Summarizer`. Expected: Translator"),
        (
            change("task.json", lambda c: c["config"].update(melody=1)),
            "task.json describes a task that this version cannot make .*newer",
        ),
        (
            change("task.json", lambda c: c["config"]["backbone"]["config"].update(units=12)),
            "model.weights.h5",
        ),
        (
            change("task.json", lambda c: c["config"]["search"].update(beam_size=0)),
            "`beam_size` must be a positive integer. Received: beam_size=0",
        ),
    ],
)
def test_a_preset_that_is_not_whole_or_not_ours_is_refused(preset, tmp_path, damage, message):
    shutil.copytree(preset, tmp_path / "preset")
    damage(tmp_path / "preset")
    with pytest.raises(ValueError, match=message) as refused:
        Translator.from_preset(tmp_path / "preset")
    assert "\n" not in str(refused.value)


def test_what_is_no_preset_is_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no preset .*nowhere. Expected: a folder, hf://"):
        Translator.from_preset(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="is no preset, or half-written"):
        Translator.from_preset(tmp_path)


def test_parts_that_do_not_fit_are_refused(task):
    preprocessor = make_preprocessor("words")
    with pytest.raises(ValueError, match="`source_vocabulary_size` should be .*Received: 7"):
        Translator(RNNSearch(7, 19, embedding_size=3, units=4), preprocessor)
    for arguments, message in (
        ((task.backbone, task), "`preprocessor` of a Translator should be a TranslationPrep"),
        ((preprocessor,), "`backbone` of a Translator should be a TranslationModel"),
        ((keras.Sequential(), preprocessor), "`backbone` of a Translator should be"),
    ):
        with pytest.raises(ValueError, match=message):
            Translator(*arguments)
    with pytest.raises(ValueError, match="`search` should be a SearchOptions.*: search='greedy'"):
        Translator(task.backbone, search="greedy")
    with pytest.raises(ValueError, match="`search` should be a SearchOptions.*: search='greedy'"):
        task.translate("one", search="greedy")
    with pytest.raises(ValueError, match="Did you mean 'beam_size'"):
        task.translate("one", beam_siz=2)
    by_name = task.translate("one", search={"beam_size": 2, "max_length": 3})
    assert by_name.score == task.translate("one", beam_size=2, max_length=3).score
    with pytest.raises(
        ValueError, match="should be a tokenizer.*adapt.*Received: source_tokenizer"
    ):
        TranslationPreprocessor(["a"], ["b"])
    for arguments, message in (
        ((SOURCE_LINES, [None]), r"`targets` should hold strings.*Received: targets\[0\]=None"),
        ((SOURCE_LINES, ["a"]), "equally many.*Received: 5 in sources, 1 in targets"),
        (([], []), "at least 1 times.*Received: 0 different words"),
    ):
        with pytest.raises(ValueError, match=message):
            TranslationPreprocessor.adapt(*arguments, kind="words")
    with pytest.raises(ValueError, match="`kind` should be one of.*Received: kind='bytes'"):
        TranslationPreprocessor.adapt(SOURCE_LINES, TARGET_LINES, kind="bytes")
    with pytest.raises(
        ValueError, match="`min_count` goes with `kind` words only: leave it out. Received: 2"
    ):
        TranslationPreprocessor.adapt(SOURCE_LINES, TARGET_LINES, min_count=2)


def test_a_task_without_preprocessor_says_what_it_needs(task):
    bare = Translator(task.backbone)
    with pytest.raises(ValueError, match="its preprocessor: .*Received: preprocessor=None"):
        bare.translate("a")
    with pytest.raises(ValueError, match="without preprocessor reads ids.*Received: a man rides"):
        bare.fit(SOURCE_LINES, TARGET_LINES)


def test_the_preprocessor_gives_the_same_ids_in_a_graph():
    import tensorflow as tf

    for kind in ("words", "sentencepiece"):
        preprocessor = make_preprocessor(kind)
        copy = TranslationPreprocessor.from_config(
            json.loads(json.dumps(preprocessor.get_config()))
        )
        data = tf.data.Dataset.from_tensor_slices((SOURCE_LINES, TARGET_LINES)).batch(3)
        for inputs, labels in data.map(preprocessor):
            assert labels.shape == inputs["target"].shape
            rows = slice(0, 3) if len(labels) == 3 else slice(3, 5)
            expected = copy(SOURCE_LINES[rows], y=TARGET_LINES[rows])
            for one, other in zip(
                keras.tree.flatten(expected), keras.tree.flatten((inputs, labels)), strict=True
            ):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("way", ["save_to_preset", "export"])
def test_nothing_is_written_over_or_left_half_made(task, tmp_path, monkeypatch, way):
    taken = tmp_path / "taken"
    taken.mkdir()
    with pytest.raises(ValueError, match="taken already exists"):
        getattr(task, way)(taken)
    monkeypatch.setattr(type(task.preprocessor), "get_config", lambda *arguments: 1 / 0)
    monkeypatch.setattr(Translator, "service", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        getattr(task, way)(tmp_path / "failed")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


WAYS = {
    "preset": lambda task, path: task.save_to_preset(path),
    "task.keras": lambda task, path: task.save(path),
    "task.weights.h5": lambda task, path: task.save_weights(path),
    "network": lambda task, path: task.backbone.save_to_preset(str(path)),
    "network.keras": lambda task, path: task.backbone.save(path),
    "network.weights.h5": lambda task, path: task.backbone.save_weights(str(path)),
    "folder": lambda task, path: task.save(path, zipped=False),
    "file": lambda task, path: task.export(path, format="keras"),
    "served": lambda task, path: task.export(path),
}


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system reserves no room")
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.by_default("folder", "file")
def test_on_a_full_disk_keras_begins_no_file_and_nothing_is_lost(task, tmp_path, monkeypatch, name):
    path = tmp_path / name
    if path.suffix:
        path.write_text("old")
    for method in ("save", "save_weights"):  # HDF5 may crash the process there
        monkeypatch.setattr(keras.Model, method, lambda *_, **__: pytest.fail("HDF5 began"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limits[1]))
    try:
        with pytest.raises((OSError, UserError), match="File too large") as raised:
            WAYS[name](task, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert name in str(raised.value) and "\n" not in str(raised.value)
    assert [each.name for each in tmp_path.iterdir()] == ([name] if path.suffix else [])
    assert not path.suffix or path.read_text() == "old"


@pytest.mark.parametrize("name", ["task.keras", "task.weights.h5"])
def test_what_is_there_stays_unless_it_is_written_whole(task, tmp_path, monkeypatch, name):
    path, save = tmp_path / name, task.save if name.endswith("keras") else task.save_weights
    path.write_text("old")
    with pytest.raises(UserError, match=f"{name} already exists"):
        save(path, overwrite=False)
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(type(task.backbone), "save_own_variables", lambda *_: 1 / 0)
        save(path)
    assert path.read_text() == "old"
    save(path)
    assert path.stat().st_size > 3 and [each.name for each in tmp_path.iterdir()] == [name]


def test_arguments_of_saving_may_be_given_by_place_as_in_keras(task, tmp_path):
    task.save(tmp_path / "task", True, False)
    assert (tmp_path / "task" / "model.weights.h5").is_file()  # not zipped
    task.save_weights(tmp_path / "task.weights.json", True, 5)
    assert (tmp_path / "task_00000.weights.h5").is_file()  # in shards
