"""The study of tagging: its data, its settings, the linear CRF and its table."""

import json
import sys
import types
import zipfile
from pathlib import Path

import pytest

from benchmarks.__main__ import main, parse
from benchmarks.studies import tagging
from keras_attention.applications.command.cli import load_task, read_config

SENTENCES = [
    "Anna NNP B-NP\nlives VBZ B-VP\nin IN B-PP\nRome NNP B-NP",
    "The DT B-NP\nold JJ I-NP\ndog NN I-NP\nsleeps VBZ B-VP",
]


@pytest.fixture
def archive(tmp_path):
    """Write files of all data sets into one zip file."""
    text = "\n\n".join(SENTENCES * 6) + "\n"
    path = tmp_path / "data.zip"
    with zipfile.ZipFile(path, "w") as file:
        for each in tagging.SETS.values():
            for name in filter(None, (each.train, each.dev, each.test)):
                file.writestr(f"{each.folder}/{name}", text)
    return path


def options_of(tmp_path, *arguments):
    _, options = parse(["tagging", *map(str, arguments), "--output", str(tmp_path / "out")])
    return options


@pytest.mark.parametrize("name", tagging.SETS)
def test_the_command_accepts_the_settings_of_each_set(name, archive, tmp_path):
    more = ("--vectors", "glove.txt", "--set", "model.units=7")
    options = options_of(tmp_path, name, "--folder", archive, *more)
    config = read_config(load_task("tagging"), None, tagging.overrides(name, 5, options))
    config.check()
    assert config.training.seed == 5 and config.model.units == 7
    assert config.vectors.file == "glove.txt"
    given = [config.data.train, config.data.test, config.data.dev]
    assert all(Path(path).is_file() for path in given if path is not None)
    assert (config.data.dev is None) == (tagging.SETS[name].dev is None)


def test_a_folder_is_read_where_it_is_and_other_files_are_refused(archive, tmp_path, capsys):
    options = options_of(tmp_path, "dutch", "--folder", tmp_path)
    assert tagging.files_of("dutch", options)["dev"] == tmp_path / "ned.testa"
    options.folder = tmp_path / "text.zip"
    options.folder.write_text("no archive")
    line = ["tagging", "dutch", "--folder", str(options.folder), "--output", str(tmp_path / "out")]
    assert main(line) == 2
    assert "should be a folder or a zip file" in capsys.readouterr().err
    with zipfile.ZipFile(options.folder, "w") as file:
        file.writestr("another/ned.train", "")
    assert main(line) == 2
    assert "conll2002/ned.train" in capsys.readouterr().err


def test_features_are_of_the_word_and_its_neighbours_and_of_parts_of_speech_where_asked():
    row = {"words": ["Anna", "saw", "IBM-3"], "pos": ["NNP", "VBD", "NN"], "tags": ["O"] * 3}
    plain = list(tagging.features_of(row, False))
    assert {"w0=saw", "w-1=anna", "w1=ibm-3", "w-2=<>", "w-1|=anna|saw", "w0|=saw|ibm-3"} <= {
        *plain[1]
    }
    assert {"s0=A.0", "suffix=-3", "prefix=ibm-", "s-2=Aa"} <= {*plain[2]}
    assert not any(feature.startswith("p-") or feature.startswith("p0") for feature in plain[1])
    both = list(tagging.features_of(row, True))
    assert {"p0=VBD", "p-1=NNP", "p3=NNP|VBD|NN", "p1|=NN|<>"} <= {*both[1]}
    assert all({*few} < {*more} for few, more in zip(plain, both, strict=True))


def test_the_linear_crf_learns_and_is_not_trained_again(archive, tmp_path, capsys):
    pytest.importorskip("pycrfsuite", reason="needs python-crfsuite")
    line = [
        "tagging",
        "spanish",
        "--folder",
        str(archive),
        "--only",
        "linear",
        "--only",
        "linear-pos",
    ]
    line += ["--output", str(tmp_path / "out")]
    assert main(line) == 0
    first = capsys.readouterr().out
    assert first.count("| 100.00 |") == 2
    kept = tmp_path / "out" / "spanish-linear.json"
    kept.write_text(json.dumps({"f1": 0.25, "minutes": 1.0}))
    assert main(line) == 0
    assert "| words | 25.00 |" in capsys.readouterr().out


def test_what_is_missing_is_named(archive, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pycrfsuite", None)
    line = [
        "tagging",
        "dutch",
        "--folder",
        str(archive),
        "--only",
        "linear",
        "--output",
        str(tmp_path / "out"),
    ]
    assert main(line) == 2
    assert "pip install python-crfsuite" in capsys.readouterr().err


def test_the_linear_crf_trains_on_the_training_file_and_is_measured_on_the_test_file(
    tmp_path, monkeypatch
):
    """With another tagger in its place: it gives all words of a test sentence one chunk."""
    seen = []

    class Trainer:
        def __init__(self, **options):
            self.options = options

        def append(self, features, tags):
            seen.append(tags)

        def train(self, path):
            Path(path).write_text("")

    class Tagger:
        def open(self, path):
            assert Path(path).is_file()

        def tag(self, features):
            return ["B-NP", "I-NP", "I-NP", "B-VP"][: len(features)]

    module = types.SimpleNamespace(Trainer=Trainer, Tagger=Tagger)
    monkeypatch.setitem(sys.modules, "pycrfsuite", module)
    (tmp_path / "train.txt").write_text(SENTENCES[0] + "\n")
    (tmp_path / "test.txt").write_text("\n\n".join(SENTENCES) + "\n")
    options = options_of(tmp_path, "conll2000", "--folder", tmp_path)
    options.output.mkdir()
    (figures,) = tagging.measure_linear("conll2000", "linear", options)
    assert seen == [("B-NP", "B-VP", "B-PP", "B-NP")]
    # Of 4 + 2 true spans and 2 + 2 found ones 2 agree, both of the second sentence.
    assert figures["f1"] == pytest.approx(2 * 2 / (6 + 4))


def test_ours_is_the_mean_of_its_seeds_and_goes_on_where_it_was(
    archive, tmp_path, monkeypatch, capsys
):
    calls = []

    def command(verb, *arguments):
        calls.append((verb, *arguments))
        run = Path(arguments[-1] if verb == "train" else arguments[0])
        run.mkdir(parents=True, exist_ok=True)
        (run / "metrics.jsonl").write_text(json.dumps({"train_seconds": 90.0}) + "\n")
        return json.dumps({"f1": 0.9 if run.name.endswith("1") else 0.8})

    monkeypatch.setattr(tagging, "command", command)
    line = ["tagging", "dutch", "--folder", str(archive), "--seeds", "2", "--only", "ours"]
    line += ["--output", str(tmp_path / "out")]
    assert main(line) == 0
    out = capsys.readouterr().out
    assert "| `TokenClassifier` | words | 85.00 | 90.00, 80.00 | 1.5 |" in out
    assert [call[0] for call in calls] == ["train", "evaluate"] * 2
    assert "--resume" in calls[0] and "--training.seed=2" in calls[2]
