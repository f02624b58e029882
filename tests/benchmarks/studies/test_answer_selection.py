"""The comparison of the encoders of answer selection: its settings, parts and tables."""

import argparse
import gzip
import json

import pytest

from benchmarks.__main__ import main
from benchmarks.studies import answer_selection
from keras_attention.applications.answer_selection import load_corpus
from keras_attention.applications.answer_selection.config import AnswerSelectionConfig
from keras_attention.applications.schema.keys import SPLITS
from keras_attention.applications.schema.reading import load_config


def answers(name, seed, **figures):
    """A measured run of answer selection."""
    return {
        **{"name": name, "seed": seed, "seconds": 61.4, "dev_map": 0.6, "map": 0.5, "mrr": 0.5},
        **{"attention_by_position": None, **figures},
    }


def test_the_answer_selection_tables_are_of_means_and_deviations():
    rows = {
        "gru": [
            answers("gru", 1, map=0.61, baselines={"bm25": [0.5, 0.6, 0.7]}),
            answers("gru", 2, map=0.63),
        ],
        "outer": [answers("outer", 1, attention_by_position=[0.05] * 9 + [0.55])],
    }
    lines = answer_selection.table(rows, answer_selection.PUBLISHED).splitlines()
    assert lines[2] == (
        "| gru | 2 | 61 | 0.6000 ± 0.0000 | 0.6200 ± 0.0141 | 0.5000 ± 0.0000 | 0.6581 / 0.6691 |"
    )
    assert lines[3].startswith("| outer | 1 | 61 | 0.6000 | 0.5000 |")
    assert lines[4] == "| bm25 | - | - | 0.5000 | 0.6000 | 0.7000 | - |"
    shares = answer_selection.attention_by_position(rows)
    bias = answer_selection.positions(shares).splitlines()
    assert len(bias) == 3 and bias[2] == "| outer " + "| 5.0% " * 9 + "| 55.0% |"


def test_a_table_may_have_the_unfiltered_figures_too():
    raw = dict.fromkeys(answer_selection.UNFILTERED, 0.75)
    words = {"bm25": [0.1, 0.2, 0.3, 0.4, 0.5], "word_overlap": [0.1, 0.2, 0.3]}
    rows = {"gru": [answers("gru", 1, baselines=words, **raw)]}
    head, _, gru, *rest = answer_selection.table(rows, {}, answer_selection.UNFILTERED).splitlines()
    assert head.endswith("| test MAP | test MRR | unfiltered test MAP | unfiltered test MRR |")
    assert gru.endswith("| 0.5000 | 0.5000 | 0.7500 | 0.7500 |")
    assert rest[0] == "| bm25 | - | - | 0.1000 | 0.2000 | 0.3000 | 0.4000 | 0.5000 |"
    assert rest[1] == "| word_overlap | - | - | 0.1000 | 0.2000 | 0.3000 | - | - |"


def test_a_picture_has_a_line_for_each_encoder_with_attention(tmp_path, capsys):
    tenths = [0.145, 0.095, *[0.095] * 8]
    for name, shares in {"gru": None, "inner-word occam": tenths}.items():
        row = answers(name, 1, attention_by_position=shares)
        (tmp_path / f"{name.replace(' ', '-')}-1.json").write_text(json.dumps(row))
    picture = tmp_path / "places.svg"
    options = ["--folder", "absent", "--output", str(tmp_path), "--seeds", "1"]
    options += ["--only", "gru", "--only", "inner-word occam", "--picture", str(picture)]
    assert main(["answer-selection", *options]) == 0
    assert "| inner-word occam | 1 | 61 |" in capsys.readouterr().out
    drawn = picture.read_text(encoding="utf-8")
    assert "<!-- inner-word occam -->" in drawn and "<!-- gru -->" not in drawn
    for path, message in (
        (picture, "exists already"),
        ("places.doc", "should end in .png or .svg"),
    ):
        try:
            status = main(["answer-selection", *options[:-1], str(path)])
        except SystemExit as ended:  # of argparse
            status = ended.code
        assert status == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize("name", answer_selection.MODELS)
def test_the_command_accepts_the_settings_of_each_encoder(name, tmp_path):
    (tmp_path / "vectors-3.txt").touch()  # trained before
    options = argparse.Namespace(
        folder="wikiqa", dataset="wikiqa", output=tmp_path, vectors=None, settings=[]
    )
    config = load_config(AnswerSelectionConfig, [], answer_selection.overrides(name, 3, options))
    assert config.model.encoder == name.removesuffix(" occam")
    assert config.model.occam == name.endswith("occam")
    assert config.training.seed == 3 and config.data.folder == "wikiqa"
    options.vectors = tmp_path / "glove.txt"
    config = load_config(AnswerSelectionConfig, [], answer_selection.overrides(name, 3, options))
    assert config.vectors.file == str(options.vectors) and config.vectors.extra_words == 50000
    learned = config.vectors.trainable, config.training.epochs
    assert learned == ((True, 8) if name == "compare-aggregate" else (False, 40))


def test_the_last_training_questions_of_trecqa_choose_the_epoch(tmp_path):
    for name, count in (("train", 20), ("dev", 2)):
        rows = [f"{name} {n} ?,{label},word {label}" for n in range(count) for label in (1, 0)]
        with gzip.open(tmp_path / f"{name}.csv.gz", "wt") as file:
            file.write("\n".join(["qtext,label,atext", *rows]))
    options = argparse.Namespace(
        folder=tmp_path,
        dataset="trecqa",
        output=tmp_path / "runs",
        vectors="glove.txt",
        settings=[],
    )
    settings = answer_selection.overrides("gru", 1, options)
    data = load_config(AnswerSelectionConfig, [], settings).data
    found = [load_corpus(data, split)["question"] for split in SPLITS]
    assert found[0] == [f"train {n} ?" for n in range(5)]
    assert found[1:] == [[f"train {n} ?" for n in range(5, 20)], ["dev 0 ?", "dev 1 ?"]]
    parts = options.output / "trecqa"
    (parts / "test.csv").write_text("kept")
    (parts / "dev.csv").unlink()
    answer_selection.overrides("gru", 1, options)  # writes what is missing, nothing else
    assert (parts / "test.csv").read_text() == "kept"
    assert sorted(each.name for each in parts.iterdir()) == ["dev.csv", "test.csv", "train.csv"]


@pytest.mark.parametrize(
    "dataset, last",
    [("wikiqa", "0.5000 | 0.6581 / 0.6691 |"), ("trecqa", "0.5000 | 0.7500 | 0.7400 |")],
)
def test_each_data_set_has_its_folder_and_its_figures(dataset, last, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "answer-selection" / dataset
    folder.mkdir(parents=True)
    raw = {"unfiltered_map": 0.75, "unfiltered_mrr": 0.74}
    (folder / "gru-1.json").write_text(json.dumps(answers("gru", 1, **raw)))
    options = ["--folder", "absent", "--dataset", dataset, "--seeds", "1", "--only", "gru"]
    assert main(["answer-selection", *options]) == 0
    assert f"| 0.5000 | {last}\n" in capsys.readouterr().out


def test_answer_selection_without_its_data_ends_with_one_line(tmp_path, capsys):
    options = ["--folder", str(tmp_path / "none"), "--output", str(tmp_path / "runs")]
    assert main(["answer-selection", *options]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: ")
