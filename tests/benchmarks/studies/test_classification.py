"""The table of classification is of what the real command measured."""

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.common.errors import BenchmarkError
from benchmarks.studies import classification
from keras_attention.applications.command.cli import load_task, read_config


@pytest.mark.parametrize("name", classification.ROWS)
def test_the_command_accepts_the_settings_of_each_row(name):
    row = classification.ROWS[name]
    settings = classification.overrides(name, 2, Path("data"), Path("glove.txt"))
    config = read_config(load_task("classification"), None, settings)
    config.check()
    assert config.data.dataset == row.dataset
    assert config.model.architecture == row.settings["model.architecture"]
    assert (config.data.fold if row.folds else config.training.seed - 1) == 1
    assert (config.data.folds is not None) == row.folds
    assert config.vectors.file == ("glove.txt" if row.pretrained else None)


def test_the_linear_model_of_pairs_reads_what_the_texts_do_not_share():
    words = ["red", "cat", "dog", "owl", "fox"]
    pairs = [(f"a {one} sits", f"a {other} sits") for one in words for other in words]
    examples = [(pair, str(pair[0] == pair[1])) for pair in pairs]
    swapped = ((("the owl sleeps", "the fox sleeps"), "False"),)
    assert classification.nb_svm(examples, examples) == [label for _, label in examples]
    assert classification.nb_svm(examples, swapped) == ["False"]
    assert set(classification._grams(("a red cat", "a red dog"))) == {
        *("0:cat", "0:red cat", "1:dog", "1:red dog", "cat>dog")
    }


def test_a_row_is_the_mean_of_its_runs_and_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    calls = []

    def command(verb, *arguments):
        calls.append((verb, *arguments))
        run = Path(arguments[-1] if verb == "train" else arguments[0])
        run.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"train_seconds": seconds}) for seconds in (60.0, 30.0)]
        (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        accuracy = 0.9 if run.name.endswith("1") else 0.8
        report = {"accuracy": accuracy, "macro_f1": 0.7, "expected_calibration_error": 0.05}
        return json.dumps(report)

    monkeypatch.setattr(classification, "command", command)
    monkeypatch.setattr(classification, "linear_accuracies", lambda *_: [91.0, 90.0])
    arguments = ["--folder", "data", "--output", str(tmp_path), "--seeds", "2", "--only", "trec"]
    assert main(["classification", *arguments]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "| trec | 2 seeds | 85.0 | 80.0-90.0 | 70.0 | 5.0 | 91.2 | 91.2 | 90.5 | 3.0 |"
    assert "--resume" in calls[0] and f"--data.folder={Path('data/trec')}" in calls[0]
    first = calls[:]
    calls.clear()
    assert main(["classification", *arguments]) == 0
    assert calls == first  # a run that is there refuses other settings


def test_a_run_that_fails_ends_it_with_one_line(monkeypatch, capsys):
    def command(*arguments):
        raise BenchmarkError("`keras-attention train` of x ended with status 2")

    monkeypatch.setattr(classification, "command", command)
    assert main(["classification", "--folder", "nowhere"]) == 2
    assert capsys.readouterr().err.strip().startswith("error: `keras-attention train`")
