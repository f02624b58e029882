"""The presets that come with the package are what their cards say; runs are presets, too."""

import json
import re
from types import SimpleNamespace

import huggingface_hub
import keras_hub
import pytest
import tensorflow as tf

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.presets import PRESETS
from keras_attention.applications.common.weights import save_weights
from keras_attention.applications.training.config import save_config
from keras_attention.applications.training.run_folder import RunFolder
from keras_attention.applications.translation import Translator, dates


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
    assert report["signature"] in card


def test_a_preset_is_small_and_whole():
    for folder in PRESETS.iterdir():
        assert sum(each.stat().st_size for each in folder.iterdir()) < 1_500_000
        assert {"task.json", "config.json", "preprocessor.json", "model.weights.h5"} <= {
            each.name for each in folder.iterdir()
        }


@pytest.fixture
def run(tmp_path):
    """A run folder of the task in the preset `dates`."""
    task = Translator.from_preset("dates")
    with RunFolder.prepare(tmp_path / "run", "translation") as folder:
        save_config(task.config_class(), folder / "config.yaml")
        task.describe(folder)
    save_weights(task.backbone, tmp_path / "run" / "model.weights.h5")
    return tmp_path / "run"


def test_a_run_folder_is_uploaded_as_a_preset_is(run, monkeypatch):
    sent = []
    monkeypatch.setattr(
        huggingface_hub, "create_repo", lambda **options: SimpleNamespace(repo_id="me/dates")
    )
    monkeypatch.setattr(huggingface_hub, "file_exists", lambda **_: False)
    monkeypatch.setattr(huggingface_hub, "upload_folder", lambda **options: sent.append(options))
    keras_hub.upload_preset("hf://me/dates", str(run))
    assert sent == [{"repo_id": "me/dates", "folder_path": str(run)}]
    expected = Translator.from_preset("dates").translate("2 ottobre 1999").score
    assert Translator.from_preset(run).translate("2 ottobre 1999").score == expected


def test_a_run_is_not_gone_on_with_by_another_vocabulary_or_from_a_stream(run):
    texts = ["a b", "b a"] * 4
    other = Translator.from_texts(texts, texts, embedding_size=4, units=4)
    with pytest.raises(ValueError, match="run has another preprocessor than this task"):
        other.fit(texts, texts, validation_split=0.5, run=run)
    stream = tf.data.Dataset.from_tensors((texts, texts))
    with pytest.raises(ValueError, match="`run` needs texts.*validation_data=_TensorDataset"):
        other.fit(texts, texts, validation_data=stream, run=run)


@pytest.mark.parametrize(
    "damage",
    [
        lambda task: task.pop("class_name"),
        lambda task: task.update(config=[]),
        lambda task: task["config"].pop("backbone"),
        lambda task: task.update(registered_name="keras_attention>nothing"),
    ],
)
def test_a_task_that_lacks_a_part_is_refused_in_one_line(run, damage):
    task = json.loads((run / "task.json").read_text())
    damage(task)
    (run / "task.json").write_text(json.dumps(task))
    (run / "CHECKSUMS").unlink()
    with pytest.raises(UserError, match="is damaged|is a preset of `Translator`"):
        Translator.from_preset(run, dtype="float32")
