"""`train --from`: a training that starts from a preset or run folder."""

import json
import re
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attention.applications.answer_selection import AnswerRanker
from keras_attention.applications.base.start import config_from
from keras_attention.applications.classification import PairClassifier, TextClassifier
from keras_attention.applications.command import main
from keras_attention.applications.schema.reading import by_key, load_config
from keras_attention.applications.summarization import Summarizer
from keras_attention.applications.training.fit import Outcome
from keras_attention.applications.training.run_folder import RunFolder
from keras_attention.applications.translation import Luong, Transformer, Translator
from keras_attention.layers import LocalAttention
from tests.applications.small_tasks import COMMON, FAST, TASKS, assert_same_figures
from tests.contracts.tasks import DOCUMENTS, LABELS, PAIRS, QUESTIONS, TEXTS, translator
from tests.docs_examples import commands, run_fences

CLASSES = {
    "translation": Translator,
    "summarization": Summarizer,
    "classification": TextClassifier,
    "answer-selection": AnswerRanker,
}
REPOSITORY = Path(__file__).resolve().parents[3]
HARDLY = "--training.learning_rate=1e-12"
pytestmark = pytest.mark.usefixtures("traced_nowhere")


def weights_of(task):
    return task.backbone.get_weights()


def assert_alike(one, other, **tolerance):
    for own, theirs in zip(weights_of(one), weights_of(other), strict=True):
        np.testing.assert_allclose(own, theirs, **tolerance)


@pytest.fixture(scope="module")
def first(tmp_path_factory, module_traced_nowhere):
    """A run of answer selection, of two epochs."""
    path = tmp_path_factory.mktemp("start") / "first"
    assert main(["train", FAST, *TASKS[FAST], *COMMON, "--output", str(path)]) == 0
    return path


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.by_default(FAST)
def test_a_training_starts_where_a_run_ended(task, tmp_path, capsys):
    """With its weights, vocabularies and settings; what changes is named. It can be resumed."""
    before, after = tmp_path / "before", tmp_path / "after"
    assert main(["train", task, *TASKS[task], *COMMON, "--output", str(before)]) == 0
    changes = ["--from", str(before), HARDLY, "--training.epochs=1", "--model.dropout=0.25"]
    assert main(["train", task, *changes, "--output", str(after)]) == 0, capsys.readouterr().err
    one, other = (CLASSES[task].from_preset(each) for each in (before, after))
    assert_alike(one, other, atol=1e-7)
    assert one.preprocessor.entries() == other.preprocessor.entries()
    configs = [
        by_key(load_config(one.config_class, [each / "config.yaml"])) for each in (before, after)
    ]
    differ = {key for key in configs[0] if configs[0][key] != configs[1][key]}
    named = {"training.learning_rate", "training.epochs", "model.dropout"}
    assert named <= differ
    # What the preset itself says better than its configuration.
    assert {key for key in differ - named if configs[0][key] is not None} <= {"vectors.source"}
    known = RunFolder(after).about["from"]
    assert known["preset"] == str(before) and len(known["weights"]) == 64
    card = (after / "README.md").read_text()
    assert "It started from the preset `before`, whose weights have the SHA-256 `" in card
    assert f"train {task} --from before --" in card and "--model" not in card

    shutil.rmtree(before)  # the run needs it no more
    more = ["--resume", "--training.epochs=2", "--output", str(after)]
    assert main(["train", task, *more]) == 0, capsys.readouterr().err


def test_a_run_stopped_before_its_first_checkpoint_starts_again(first, tmp_path):
    arguments = ["train", FAST, "--from", str(first), "--training.learning_rate=0.01"]
    for name in ("whole", "stopped"):
        assert main([*arguments, "--output", str(tmp_path / name)]) == 0
    for path in (tmp_path / "stopped" / "checkpoints").iterdir():
        path.unlink()
    (tmp_path / "stopped" / "model.weights.h5").unlink()
    again = ["train", FAST, "--resume", "--output", str(tmp_path / "stopped")]
    assert main(again) == 0
    assert_same_figures(tmp_path / "whole", tmp_path / "stopped")
    assert main([*arguments, "--resume", "--output", str(tmp_path / "whole")]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model.units=7"], "keeps its network .* model.units 6: leave it out.*Received: 7"),
        (
            ["--model.encoder=outer", "--tokenizer.unknown_buckets=7"],
            "with model.encoder inner-word, tokenizer.unknown_buckets 50: leave them out",
        ),
        (["--vectors.trainable=false"], "vectors.trainable true"),
        (["--data.train=lines.tsv"], "name a development set"),
        (["--training.melody=1"], "melody"),
    ],
)
def test_what_contradicts_the_preset_is_refused(first, tmp_path, capsys, options, message):
    arguments = ["train", FAST, "--from", str(first), *options, "--output", str(tmp_path / "run")]
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("keras-attention: ")
    assert re.search(message, line)
    assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
def test_a_preset_that_is_none_or_of_another_task_is_refused(first, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = ["--output", str(tmp_path / "run")]
    assert main(["train", "translation", "--from", str(first), *run]) == 2
    assert "is a preset of task answer-selection. Expected: translation." in capsys.readouterr().err
    assert main(["train", FAST, "--from", "nowhere", *run]) == 2
    assert "there is no preset nowhere" in capsys.readouterr().err
    task = AnswerRanker.from_preset(first)
    task.backbone.trainable = False
    task.save_to_preset("frozen")
    assert main(["train", FAST, "--from", "frozen", *run]) == 2
    assert "All layers of frozen are frozen" in capsys.readouterr().err
    task = TextClassifier.from_texts(TEXTS, LABELS, units=4, encoder="none")
    task.quantize("int8")
    task.save_to_preset("integers")
    assert main(["train", "classification", "--from", "integers", *run]) == 2
    assert "integers is quantized" in capsys.readouterr().err
    shutil.copytree(first, "other")
    arguments = ["train", FAST, "--resume", "--output", "other", "--from", str(first)]
    assert main(arguments) == 2
    assert "other did not start from a preset: leave --from out" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: translator(), {"model.architecture": "rnnsearch", "tokenizer.kind": "words"}),
        (
            lambda: translator(Luong, attention=LocalAttention(3, "predictive", "concat", units=4)),
            {
                "model.attention": "local-p",
                "model.half_width": 3,
                "model.score": "concat",
                "model.attention_units": 4,
            },
        ),
        (
            lambda: translator(Transformer, attention_dropout=0.2),
            {
                "model.architecture": "transformer",
                "model.heads": 2,
                "model.attention_dropout": 0.2,
                "decoding.beam_size": 2,
            },
        ),
        (
            lambda: Summarizer.from_texts(DOCUMENTS, TEXTS, units=6),
            {"model.units": 6, "model.coverage": False, "decoding.beam_size": 4},
        ),
        (
            lambda: TextClassifier.from_texts(
                TEXTS, LABELS, units=6, architecture="transformer", embedding_size=8, heads=2
            ),
            {"model.architecture": "transformer", "model.heads": 2, "data.max_length": 400},
        ),
        (
            lambda: TextClassifier.from_texts(TEXTS, LABELS, units=6, architecture="han"),
            {"model.architecture": "han", "tokenizer.sentences": "punctuation"},
        ),
        (
            lambda: PairClassifier.from_texts(PAIRS, LABELS, units=6, architecture="inner"),
            {"model.architecture": "inner", "data.second_column": "second"},
        ),
        (
            lambda: AnswerRanker.from_questions(QUESTIONS, 6, encoder="compare-aggregate"),
            {"model.encoder": "compare-aggregate", "training.loss": "log", "model.units": 6},
        ),
    ],
)
def test_a_preset_made_in_python_says_its_settings(make, expected, tmp_path):
    task = make()
    config = by_key(config_from(task, "preset", tmp_path / "config.yaml"))
    assert {key: config[key] for key in expected} == expected
    # They may be given again, as they are.
    options = [f"--{key}={value}" for key, value in expected.items() if value is not False]
    assert by_key(config_from(task, "preset", tmp_path / "config.yaml", [], options)) == config


def test_data_of_the_preset_stay_unless_others_are_named(tmp_path):
    task, own = translator(), tmp_path / "config.yaml"
    own.write_text(
        "data: {train_source: a, train_target: b, dev: c, max_length: 7, source_language: fr}\n"
        "training: {epochs: 3, learning_rate: 0.5}\n"
    )
    kept = config_from(task, "preset", own)
    assert (kept.data.train_source, kept.data.dev) == ("a", "c")
    other = config_from(task, "preset", own, [], ["--data.train=x", "--training.epochs=4"])
    assert (other.data.train_source, other.data.dev) == (None, None)
    assert (other.data.max_length, other.data.source_language) == (7, "fr")
    assert (other.training.epochs, other.training.learning_rate) == (4, 0.5)
    known = config_from(task, "preset", own, [], ["--data.dataset=dates"])
    assert known.data.target_language == "iso" and known.model.embedding_size == 5
    file = tmp_path / "more.yaml"
    file.write_text("training: {epochs: 5}\nmodel: {units: 6, readout_size: null, layers: null}\n")
    assert config_from(task, "preset", own, [file]).training.epochs == 5


def test_unknown_labels_get_a_new_head(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task = TextClassifier.from_texts(TEXTS, LABELS, units=4, encoder="none")
    task.save_to_preset("two")
    common = ["--data.dev=table.tsv", "--training.tensorboard=false", "--training.epochs=1"]
    arguments = ["train", "classification", "--from", "two", HARDLY, "--data.train=table.tsv"]
    for name, labels, expected in (
        ("known", ["yes", "no"], ("no", "yes")),
        ("new", ["yes", "odd"], ("odd", "yes")),
    ):
        rows = [f"{text}\t{labels[place % 2]}" for place, text in enumerate(TEXTS)]
        (tmp_path / "table.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
        assert main([*arguments, *common, "--output", name]) == 0, capsys.readouterr().err
        again = TextClassifier.from_preset(name)
        assert again.preprocessor.labels.names == expected
        kernel, known = again.backbone.answer.kernel, task.backbone.answer.kernel
        np.testing.assert_allclose(kernel[:, 1], known[:, 1], atol=1e-7)
    assert "Labels: 1 of 2 entries keep their weights (1 new)." in capsys.readouterr().err


def test_a_run_of_python_notes_its_preset(tmp_path):
    TextClassifier.from_texts(TEXTS, LABELS, units=4, encoder="none").save_to_preset(
        tmp_path / "two"
    )
    task = TextClassifier.from_preset(tmp_path / "two")
    training = type(task.config_class().training)(tensorboard=False, epochs=1)
    options = {"validation_data": (TEXTS, LABELS), "training": training, "verbose": 0}
    outcome = task.fit(TEXTS, LABELS, run=tmp_path / "run", **options)
    assert isinstance(outcome, Outcome)
    about = json.loads((tmp_path / "run" / "FORMAT").read_text())
    assert about["from"] == task.origin
    assert about["from"]["preset"] == str(tmp_path / "two")
    assert "started from the preset `two`" in (tmp_path / "run" / "README.md").read_text()


@pytest.mark.slow
def test_the_tutorial_shows_what_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (REPOSITORY / "docs" / "tutorials" / "fine_tune.md").read_text(encoding="utf-8")
    assert run_fences(text, "fine_tune.md")
    arguments = next(words for words in commands(text, "keras-attention") if "16" in words)
    assert main(arguments) == 2
    done = capsys.readouterr()
    shown = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    said = " ".join((done.out + done.err).split())
    assert len(shown) == 4
    for output in shown:
        assert " ".join(output.split()) in said


def test_mixed_precision_reaches_the_network_of_a_preset(first, tmp_path):
    arguments = ["train", FAST, "--from", str(first), "--training.precision=mixed_bfloat16"]
    seen = []
    before = keras.Model.compile

    def compile(self, *given, **options):
        seen.append(self.backbone.compute_dtype)
        return before(self, *given, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keras.Model, "compile", compile)
        assert main([*arguments, "--training.epochs=1", "--output", str(tmp_path / "run")]) == 0
    assert seen[-1] == "bfloat16"
