"""The comparisons of trained translators: their settings, tables and errors."""

import argparse
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.studies import architectures, luong
from keras_attention.applications.schema.reading import load_config
from keras_attention.applications.translation.config import TranslationConfig


def test_the_architectures_table_leaves_out_lengths_that_no_sentence_has():
    def row(name, bleu, longest):
        buckets = [(1, 10, 3, bleu), (11, 20, 0, None), (21, None, 2, longest)]
        return {
            "name": name,
            "minutes": 12.34,
            "perplexity": 7.891,
            "greedy": bleu - 1,
            "bleu": bleu,
            "chrf": 50.0,
            "by_length": [
                dict(zip(("shortest", "longest", "sentences", "bleu"), bucket, strict=True))
                for bucket in buckets
            ],
        }

    lines = architectures.table([row("a", 20.0, 11.11), row("b", 30.0, 4.0)]).splitlines()
    assert lines[0].endswith("| greedy BLEU | beam 5 BLEU | chrF | 1-10 (3) | 21 or more (2) |")
    assert lines[1] == "|" + " --- |" * 8
    assert lines[2:] == [
        "| a | 12.3 | 7.89 | 19.0 | 20.0 | 50.0 | 20.0 | 11.1 |",
        "| b | 12.3 | 7.89 | 29.0 | 30.0 | 50.0 | 30.0 | 4.0 |",
    ]


@pytest.mark.parametrize("name", architectures.ARCHITECTURES)
def test_the_command_accepts_the_settings_of_each_architecture(name):
    options = argparse.Namespace(epochs=3, folder="multi30k")
    config = load_config(TranslationConfig, [], architectures.overrides(name, options))
    chosen = architectures.ARCHITECTURES[name]
    assert {key: getattr(config.model, key) for key in chosen} == chosen
    assert (config.training.epochs, config.model.units) == (3, 128)
    assert config.data.folder == "multi30k"


@pytest.mark.parametrize("name", luong.ROWS)
def test_the_command_accepts_the_settings_of_each_row_of_luong(name):
    options = argparse.Namespace(epochs=3, folder=None, settings=["training.seed=7"])
    config = load_config(TranslationConfig, [], luong.overrides(name, options))
    chosen = {"dropout": 0.0, "input_feeding": "false", **luong.ROWS[name]}
    found = {key: getattr(config.model, key) for key in chosen}
    assert {key: str(value).lower() for key, value in found.items()} == {
        key: str(value).lower() for key, value in chosen.items()
    }
    assert (config.training.epochs, config.training.seed) == (3, 7)


def test_the_diagonal_links_words_by_their_part_of_the_sentence(tmp_path):
    for name, text in (("a", "k l m n"), ("b", "o p"), ("right", "2-1 4-2"), ("half", "2-1 3-2")):
        (tmp_path / name).write_text(text + "\n")
    pair = tmp_path / "a", tmp_path / "b"
    assert luong.diagonal(*pair, tmp_path / "right") == 0
    assert luong.diagonal(*pair, tmp_path / "half") == pytest.approx(50)


def test_each_row_of_luong_adds_one_thing_and_has_a_folder_of_its_own():
    rows = list(luong.ROWS.values())
    for before, after in zip(rows[:5], rows[1:5], strict=False):
        changed = {key for key in after if after[key] != before.get(key)}
        assert len(changed | set(before) - set(after) - {"attention"}) == 1
    options = argparse.Namespace(output=Path("runs"))
    assert len({luong.folder(name, options) for name in luong.ROWS}) == len(luong.ROWS)
    joined = [name for name in luong.ROWS if luong.by_content(name)]
    assert len(joined) == 7 and "+ feed input" not in joined and "base" not in joined


def test_the_table_of_luong_leaves_out_what_a_row_has_not():
    rows = [
        {"name": "base", "minutes": 10.04, "perplexity": 20.16, "bleu": 12.25},
        {"name": "dot", "minutes": 9.0, "perplexity": 9.0, "bleu": 30.0, "replaced": 31.0}
        | {"aer": 40.0},
    ]
    assert luong.table(rows).splitlines()[2:] == [
        "| base | 10.0 | 20.2 | 12.2 |  |  |",
        "| dot | 9.0 | 9.0 | 30.0 | 31.0 | 40.0 |",
    ]
    assert "AER" not in luong.table(rows[:1])


@pytest.mark.slow
def test_an_architecture_that_fails_ends_the_comparison_with_one_line(tmp_path, capfd):
    options = ["--folder", str(tmp_path / "none"), "--output", str(tmp_path / "runs")]
    assert main(["architectures", "--only", "luong dot", *options]) == 2
    error = capfd.readouterr().err.strip()
    place = tmp_path / "runs" / "luong-dot"
    last = f"error: `keras-attention train` of {place} ended with status 2"
    assert error.splitlines()[-1] == last
    assert "Traceback" not in error
