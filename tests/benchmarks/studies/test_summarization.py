"""The tables of summarisation are of what the real command trained."""

import argparse
import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.common.errors import BenchmarkError
from benchmarks.studies import summarization, temporal
from keras_attention.applications.command.cli import read_config
from keras_attention.applications.data.made import reports
from keras_attention.applications.summarization import Summarizer
from keras_attention.applications.summarization.data import read_corpus

LEAD = {"rouge1": 30.0, "rouge2": 10.0, "rougeL": 20.0}
ORACLE = {"rouge1": 60.0, "rouge2": 40.0, "rougeL": 50.0}
FIGURES = {
    **{key: 50.0 for key in ("rouge1", "rouge2", "rougeL", "exact_match", "copied_unknown")},
    **{"repeated_trigrams": 4.0, "unknown": 2.0, "repeated_trigrams_of_references": 1.0},
    **{"lead": 1, "lead_rouge": LEAD, "oracle_rouge": ORACLE},
}


@pytest.mark.parametrize("corpus", summarization.ROWS)
def test_the_command_accepts_the_settings_of_each_row(corpus, tmp_path):
    for split in summarization.SPLITS:  # of SciTLDR
        paper = {"source": ["One .", "Two ."], "target": ["Both ."], "title": "Numbers"}
        with gzip.open(tmp_path / f"{split}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.write(json.dumps(paper) + "\n")
    options = argparse.Namespace(
        corpus=corpus, folder=tmp_path, output=tmp_path / "out", settings=[]
    )
    for name in summarization.ROWS[corpus]:
        config = read_config(Summarizer, [], summarization.overrides(name, 2, options))
        from_files = corpus in ("unordered", "catts")
        assert config.data.dataset == (None if from_files else corpus)
        assert not from_files or Path(config.data.test).is_file()
        assert config.training.seed == 2
        assert config.model.pointer == (name not in ("without pointer", "without attention"))
        assert config.model.coverage == (name in ("see2017", "without pointer"))
        assert config.model.temporal == (name in ("nallapati2016-temporal", "paulus2017"))
        assert config.model.attention == (name != "without attention")
        assert config.decoding.no_repeat_ngram == 0

    if corpus == "catts":
        asked = {
            split: [(source[-1], target) for source, target in zip(*columns, strict=True)]
            for split in summarization.SPLITS
            for corpus in [read_corpus(tmp_path / "out" / f"catts-{split}.jsonl")]
            for columns in [(corpus["source"], corpus["target"])]
        }
        summary = ("tldr", ["Both ."])
        assert asked["train"] == [summary, ("title", ["Numbers"])]
        assert asked["dev"] == asked["test"] == [summary]


def test_a_row_is_the_mean_of_its_seeds_and_is_not_measured_twice(tmp_path, monkeypatch, capsys):
    calls = []

    def command(verb, *arguments):
        calls.append((verb, *arguments))
        run = Path(arguments[-1])
        run.mkdir(parents=True)
        (run / "metrics.jsonl").write_text(json.dumps({"train_seconds": 90.0}) + "\n")

    monkeypatch.setattr(summarization, "command", command)
    exact = iter([90.0, 100.0])
    monkeypatch.setattr(
        summarization,
        "_evaluate",
        lambda run, corpus: {**FIGURES, "exact_match": next(exact), "answer_mass": None},
    )
    arguments = ["--corpus", "reports", "--output", str(tmp_path), "--seeds", "2"]
    arguments += ["--only", "see2017", "--set", "training.epochs=1"]
    assert main(["summarization", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    row = ["see2017", "2", "50.0", "50.0", "50.0", "95.0 (90.0-100.0)", "4.0", "2.0", "50.0", ""]
    assert lines[2] == f"| {' | '.join(row)} | 1.5 |"
    assert lines[3].startswith("| lead-1 |  | 30.0 | 10.0 | 20.0 |  |  |")
    assert lines[4].startswith("| oracle-1 |  | 60.0 | 40.0 | 50.0 |  |  |")
    assert lines[5].startswith("| the references |  |  |  |  |  | 1.0 |")
    assert len({line.count("|") for line in lines}) == 1
    assert len(calls) == 2 and "--training.epochs=1" in calls[0]
    assert main(["summarization", *arguments]) == 0 and len(calls) == 2
    (tmp_path / "reports-see2017-1.json").unlink()
    exact = iter([90.0])
    monkeypatch.setattr(
        summarization, "command", lambda *arguments: calls.append(arguments)
    )  # the run is there
    assert main(["summarization", *arguments]) == 0
    assert calls[2] == calls[0] and "--resume" in calls[0]


def test_the_weight_on_the_answer_is_that_of_the_statements_sentence():
    examples = reports.generate("test")
    results = []
    for example in examples:
        words = example.summary.split()
        weights = np.full((len(words), len(example.sentences)), 0.1)
        for place in range(len(words)):
            statement = words[:place].count(".")
            weights[place, example.urgent[statement]] = 0.0 if words[place] == "." else 0.75
        results.append(SimpleNamespace(tokens=words, sentence_weights=weights))
    assert summarization.answer_mass(results, examples) == pytest.approx(75.0)
    more = [word for _ in range(4) for word in ("a", ".")]  # more statements than are asked for
    results[0] = SimpleNamespace(
        tokens=more, sentence_weights=np.zeros((8, len(examples[0].sentences)))
    )
    assert summarization.answer_mass(results, examples) < 75.0
    empty = SimpleNamespace(tokens=[], sentence_weights=np.zeros((0, 1)))
    assert summarization.answer_mass([empty], examples[:1]) is None


def test_a_summary_is_complete_with_its_statements_in_any_order():
    examples = reports.generate("test", ordered=False)
    assert all(3 <= len(example.urgent) <= 5 for example in examples)
    assert any(example.urgent != sorted(example.urgent) for example in examples)
    turned = [" . ".join(reversed(ex.summary[:-2].split(" . "))) + " ." for ex in examples]
    results = [SimpleNamespace(tokens=text.split()) for text in turned]
    assert summarization.complete(results, examples) == 100
    results[0].tokens.extend(results[0].tokens[:5])
    assert summarization.complete(results, examples) == 99.5


def test_what_is_said_and_read_again_is_counted():
    summary = SimpleNamespace(
        source=[["a", "b"], ["c"], ["d"]],
        tokens=["x", "y", ".", "z", ".", "x", "y", ".", "w", "."],
        sentence_weights=np.eye(3)[[0, 0, 2, 1, 2, 0, 0, 2, 0, 2]],
    )
    found = summarization.repetition([summary])
    assert found == {"said_again": 25.0, "read_again": 50.0, "said_and_read_again": 100.0}
    assert summarization.repetition([])["said_again"] is None
    steps = [(np.arange(4.0) + 10 * step, np.eye(4)[1]) for step in range(10)]
    begun = list(temporal.beginnings(summary, steps, urgent=(0, 1)))
    assert [kind for kind, *_ in begun] == [
        *("read before", "urgent, not read", "others"),
        *("read before", "read before", "others") * 2,
    ]
    assert begun[0][1:] == (31.0, 1.0) and begun[1][1:] == (32.0, 0.0)


def test_a_run_that_fails_ends_it_with_one_line(monkeypatch, capsys):
    def command(*arguments):
        raise BenchmarkError("`keras-attention train` of x ended with status 2")

    monkeypatch.setattr(summarization, "command", command)
    assert main(["summarization", "--corpus", "scitldr", "--folder", "nowhere"]) == 2
    assert capsys.readouterr().err.strip().startswith("error: `keras-attention train`")
