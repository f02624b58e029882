"""The presets that come with the package are what their cards say; runs are presets, too."""

import json
import re
import resource
import shutil
from types import SimpleNamespace

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_attention import BahdanauAttention
from keras_attention.applications.answer_selection import AnswerRanker
from keras_attention.applications.base.network import OrthogonalOf16Bits, recurrent_start
from keras_attention.applications.base.presets import PRESETS
from keras_attention.applications.base.train import average_tasks, preprocessor_of
from keras_attention.applications.classification import TextClassifier
from keras_attention.applications.data.made import dates
from keras_attention.applications.errors import UserError
from keras_attention.applications.schema.reading import save_config
from keras_attention.applications.store.files import write_checksums
from keras_attention.applications.store.weights import save_weights
from keras_attention.applications.summarization import Summarizer
from keras_attention.applications.training.run_folder import Checkpoint, Checkpoints, RunFolder
from keras_attention.applications.translation import (
    Luong,
    RNNEncDec,
    RNNSearch,
    TranslationPreprocessor,
    Translator,
)


@pytest.mark.slow
def test_the_figures_of_dates_hold_for_the_weights_shipped():
    card = (PRESETS / "dates" / "README.md").read_text(encoding="utf-8")
    exact, bleu = map(float, re.search(r"beam 3: ([\d.]+) % exact, ([\d.]+) BLEU", card).groups())
    perplexity = float(re.search(r"perplexity ([\d.]+)\.", card).group(1))
    translator = Translator.from_preset("dates")
    report = translator.evaluate_text(*dates.generate("test"))
    assert report["beam_size"] == 3 and report["sentences"] == 1000
    assert report["exact_match"] == pytest.approx(exact, abs=0.05)
    assert report["bleu"] == pytest.approx(bleu, abs=0.05)
    assert report["perplexity"] == pytest.approx(perplexity, abs=1e-3)
    assert f"{translator.count_params():,} weights" in card
    assert report["signature"].rpartition("|version")[0] in card  # another sacrebleu, alike


def test_a_preset_is_small_and_whole():
    for folder in PRESETS.iterdir():
        assert sum(each.stat().st_size for each in folder.iterdir()) < 1_500_000
        assert {"task.json", "config.json", "preprocessor.json", "model.weights.h5"} <= {
            each.name for each in folder.iterdir()
        }


@pytest.fixture(scope="module")
def made_run(tmp_path_factory):
    """A run folder of the task in the preset `dates`."""
    task, path = Translator.from_preset("dates"), tmp_path_factory.mktemp("made") / "run"
    with RunFolder.prepare(path, "translation") as folder:
        save_config(task.config_class(), folder / "config.yaml")
        task.describe(folder)
    save_weights(task.backbone, path / "model.weights.h5")
    return path


@pytest.fixture
def run(made_run, tmp_path):
    """A copy of it, which a test may change."""
    return shutil.copytree(made_run, tmp_path / "run")


def test_a_network_without_preprocessor_is_a_preset_too(tmp_path):
    task = Translator(Translator.from_preset("dates").backbone)
    task.save_to_preset(tmp_path / "alone", max_shard_size=1e-6)  # a thousand bytes
    again = Translator.from_preset(tmp_path / "alone")
    assert again.preprocessor is None
    for one, other in zip(again.backbone.weights, task.backbone.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_preprocessor_that_was_altered_cannot_be_resumed_with(run):
    path = run / "preprocessor.json"
    path.write_text(path.read_text().replace('"trainable": true', '"trainable": true, "melody": 1'))
    write_checksums(run)
    with pytest.raises(UserError, match="preprocessor.json describes a preprocessor that"):
        preprocessor_of(RunFolder(run, task="translation"))


def test_a_run_folder_is_uploaded_as_a_preset_is(run, monkeypatch, traced_nowhere):
    hub = pytest.importorskip("huggingface_hub")  # which newer versions of KerasHub bring
    sent = []
    monkeypatch.setattr(hub, "create_repo", lambda **options: SimpleNamespace(repo_id="me/dates"))
    monkeypatch.setattr(hub, "file_exists", lambda **_: False)
    monkeypatch.setattr(hub, "upload_folder", lambda **options: sent.append(options))
    keras_hub.upload_preset("hf://me/dates", str(run))
    assert sent == [{"repo_id": "me/dates", "folder_path": str(run)}]
    expected, found = (
        Translator.from_preset(folder).translate("2 ottobre 1999", max_length=2).score
        for folder in ("dates", run)
    )
    assert found == expected


def test_a_run_is_not_gone_on_with_by_another_vocabulary_or_from_a_stream(run):
    texts = ["a b", "b a"] * 4
    other = Translator.from_texts(texts, texts, embedding_size=4, units=4)
    with pytest.raises(ValueError, match="run has another preprocessor than this task"):
        other.fit(texts, texts, validation_split=0.5, run=run)
    stream = tf.data.Dataset.from_tensors((texts, texts))
    with pytest.raises(ValueError, match="`run` needs texts.*validation_data=_TensorDataset"):
        other.fit(texts, texts, validation_data=stream, run=run)


def preset_with(folder, *keys, value):
    """Return a preset whose task.json has another value, and whose checksums are right."""
    shutil.copytree(PRESETS / "dates", folder)
    content = json.loads((folder / "task.json").read_text("utf-8"))
    holder = content
    for key in keys[:-1]:
        holder = holder[key]
    holder[keys[-1]] = value
    (folder / "task.json").write_text(json.dumps(content), "utf-8")
    write_checksums(folder)
    return folder


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("class_name",), None),
        (("registered_name",), "os>system"),
        (("config",), [1]),
        (("config", "backbone"), None),
        (("config", "backbone", "config"), "x"),
    ],
)
def test_a_description_that_is_none_is_refused(tmp_path, keys, value):
    folder = preset_with(tmp_path / "odd", *keys, value=value)
    with pytest.raises(UserError, match="is damaged|is a preset of `Translator`"):
        Translator.from_preset(folder, dtype="float32")


def test_a_search_without_bound_is_refused(tmp_path):
    folder = preset_with(tmp_path / "wide", "config", "search", "beam_size", value=10**9)
    with pytest.raises(UserError, match="beam_size must be at most 1000"):
        Translator.from_preset(folder)


@pytest.mark.parametrize("size", [10**4, 10**12])
def test_a_network_larger_than_its_weights_is_refused_before_it_is_built(tmp_path, size):
    folder = preset_with(tmp_path / "huge", "config", "backbone", "config", "units", value=size)
    with pytest.raises(
        UserError, match=f"units {size}, and model.weights.h5 has no axis that long"
    ):
        Translator.from_preset(folder)


def test_a_mean_of_three_does_not_hang_on_the_names_of_layers(tmp_path):
    weights = []
    for name, size in (("one", 4), ("two", 4), ("three", 4), ("other", 5)):  # each names its own
        network = RNNSearch(7, 7, embedding_size=3, units=4, attention=BahdanauAttention(size))
        chance = np.random.default_rng(len(weights))
        for variable in network.trainable_variables:
            variable.assign(chance.exponential(size=variable.shape))  # a mean is no median
        weights.append([np.array(variable) for variable in network.trainable_variables])
        Translator(network).save_to_preset(tmp_path / name)
    three = [tmp_path / name for name in ("one", "two", "three")]
    mean = average_tasks(Translator, three, tmp_path / "mean")
    for task in (mean, Translator.from_preset(tmp_path / "mean")):
        for variable, *arrays in zip(task.backbone.trainable_variables, *weights[:3], strict=True):
            np.testing.assert_allclose(variable, np.mean(arrays, axis=0), rtol=1e-6)
    with pytest.raises(UserError, match="other has another network than the first"):
        average_tasks(Translator, [tmp_path / "one", tmp_path / "other"], tmp_path / "none")


@pytest.mark.parametrize("damage", ["none", "fewer", "shape", "nan"])
def test_checkpoints_of_another_network_have_no_mean(tmp_path, damage):
    folder = shutil.copytree(PRESETS / "dates", tmp_path / "run")
    task = Translator.from_preset(folder)
    arrays = [np.array(each) for each in task.backbone.variables]
    saved = Checkpoints(folder / "checkpoints")
    saved.save(Checkpoint(1, arrays, {}))
    others = {
        "none": arrays,
        "fewer": arrays[:1],
        "shape": [arrays[0][:1], *arrays[1:]],
        "nan": [arrays[0] * np.nan, *arrays[1:]],
    }
    saved.save(Checkpoint(2, others[damage], {}))
    if damage == "none":
        average_tasks(Translator, [folder], tmp_path / "mean")
        return
    with pytest.raises(
        UserError, match="step-00000002.npz holds no finite weights of this network"
    ):
        average_tasks(Translator, [folder], tmp_path / "mean")


def test_a_mean_is_written_whole_or_not_at_all(tmp_path):
    folder = shutil.copytree(PRESETS / "dates", tmp_path / "run")
    arrays = [np.array(each) for each in Translator.from_preset(folder).backbone.variables]
    saved = Checkpoints(folder / "checkpoints")
    for step in (1, 2):
        saved.save(Checkpoint(step, [step * array for array in arrays], {}))
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, kept[1]))  # as a disk that is full
        with pytest.raises(UserError, match="mean could not be written"):
            average_tasks(Translator, [folder], tmp_path / "mean")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    average_tasks(Translator, [folder], tmp_path / "mean")
    mean = Translator.from_preset(tmp_path / "mean").backbone.trainable_variables
    own = Translator.from_preset(folder).backbone.trainable_variables
    for one, other in zip(mean, own, strict=True):
        np.testing.assert_allclose(one, 1.5 * np.array(other), rtol=1e-6)


def make_recurrent(task, **options):
    """Return a tiny task, and what it takes for an answer."""
    texts, options = ["a b", "b a"] * 2, {"units": 4, "embedding_size": 4, **options}
    if task is Translator:
        preprocessor = TranslationPreprocessor.adapt(texts, texts, kind="words")
        network = options.pop("network")(6, 6, **options)
        return task(network, preprocessor, {"max_length": 2}), "translate", ["a b"]
    if task is Summarizer:
        return task.from_texts(texts, texts, **options), "summarize", ["a b"]
    if task is TextClassifier:
        return task.from_texts(texts, ["x", "y"] * 2, **options), "classify", ["a b"]
    return task.from_questions([("a", ["a", "b"], [1, 0])], **options), "rank", ["a", ["a", "b"]]


@pytest.mark.parametrize(
    ("task", "options"),
    [
        *[(Translator, {"network": network}) for network in (RNNSearch, RNNEncDec, Luong)],
        (Summarizer, {}),
        (TextClassifier, {}),
        *[(AnswerRanker, {"encoder": name}) for name in ("gru", "inner-word")],
    ],
)
@pytest.mark.by_default("Translator-options0")
def test_a_recurrent_preset_is_read_in_bfloat16(task, options, tmp_path):
    """No backend draws an orthogonal matrix in that type."""
    whole, verb, given = make_recurrent(task, **options)
    whole.save_to_preset(tmp_path / "whole")
    half = task.from_preset(tmp_path / "whole", dtype="bfloat16")
    assert "bfloat16" in {each.dtype for each in half.backbone.trainable_variables}
    getattr(half, verb)(*given)
    half.save_to_preset(tmp_path / "half")
    again = task.from_preset(tmp_path / "half")
    for one, other in zip(again.backbone.weights, half.backbone.weights, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(one), ops.convert_to_numpy(other))
    assert "OrthogonalOf16Bits" not in (tmp_path / "whole" / "config.json").read_text("utf-8")


def test_an_orthogonal_start_of_16_bits_is_that_of_32():
    own = OrthogonalOf16Bits(seed=3)((4, 8), "bfloat16")
    expected = ops.cast(keras.initializers.Orthogonal(seed=3)((4, 8)), "bfloat16")
    np.testing.assert_array_equal(
        *(ops.convert_to_numpy(ops.cast(x, "float32")) for x in (own, expected))
    )
    assert recurrent_start("mixed_bfloat16") == recurrent_start("float32") == "orthogonal"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dtype": "nonsense"}, "`dtype` must be a dtype or policy of Keras.*Received: 'nonsense'"),
        ({"dictionry": {}}, "an argument of `from_preset`.*Did you mean 'dictionary'"),
        ({"search": 3}, "Received: search=3.: `search`, as given, is wrong, or it is damaged"),
    ],
)
def test_a_healthy_preset_is_not_blamed_for_its_arguments(given, message):
    with pytest.raises(UserError, match=message):
        Translator.from_preset("dates", **given)


def test_a_dtype_that_a_part_cannot_have_is_named(tmp_path):
    folder = preset_with(tmp_path / "odd", "config", "backbone", "config", "units", value="four")
    with pytest.raises(UserError, match="`dtype`, as given, is wrong, or it is damaged"):
        Translator.from_preset(folder, load_weights=False, dtype="bfloat16")


def test_half_a_surrogate_pair_is_refused_before_the_tokenizer_reads_it():
    translator = Translator.from_preset("dates")
    for act in (translator.translate, translator.explain):
        with pytest.raises(UserError, match="must be Unicode text.*is half a surrogate pair: mend"):
            act("4 \ud800 juin")


def test_how_long_a_served_text_may_be_is_a_positive_integer(tmp_path):
    translator = Translator.from_preset("dates")
    for letters in (0, -1, "a", 2.5):
        with pytest.raises(UserError, match="`max_letters` must be a whole number of at least 1"):
            translator.export(tmp_path / "out", max_letters=letters)
