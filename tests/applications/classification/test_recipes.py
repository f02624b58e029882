"""The recipes' page from its first line to its last: tables are made, and every command runs."""

import json
from pathlib import Path

import pytest

from tests.applications.commands import call_command
from tests.docs_examples import commands, run_fences

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tutorials" / "recipes.md"


@pytest.mark.slow
def test_every_recipe_runs_and_learns(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    assert run_fences(text, str(PAGE)) == 4
    (tmp_path / "sentence").write_text("the old man left a bird\n")
    outputs = []
    for words in commands(text, "keras-attention"):
        if words == ["predict", "runs/trees"]:  # which reads a sentence from `echo` on the page
            words += ["--input", "sentence"]
        done = call_command(capsys, *words)
        assert done.status == 0, done.err
        outputs.append(done.out)
    report = json.loads(call_command(capsys, "evaluate", "runs/relations", "--json").out)
    assert report["accuracy"] > 0.95
    answers = [json.loads(line) for line in Path("answers.jsonl").read_text().splitlines()]
    rows = [row.split("\t") for row in Path("reading.tsv").read_text().splitlines()[1:]]
    right = [row[2] in each["labels"] for row, each in zip(rows, answers, strict=True)]
    assert sum(right) > 0.9 * len(right)
    assert outputs[-1].strip() == "(S (NP DT JJ NN )NP (VP VBD (NP DT NN )NP )VP )S"
