"""`python -m benchmarks layers`: its options, and that it measures."""

import json

import pytest

from benchmarks.__main__ import main
from benchmarks.common.errors import BenchmarkError
from benchmarks.speed import children, layers
from benchmarks.speed.contenders import find
from benchmarks.speed.problems import Size


def test_an_unknown_program_is_named(tmp_path, capsys):
    options = ["--only", "attention", "--program", "keras", "--program", "theano"]
    assert main(["layers", *options, "--output", str(tmp_path / "f.json")]) == 2
    assert "No program is called theano" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [(), ("--backend", "jax", "--precision", "mixed_bfloat16")],
    ids=["tensorflow", "jax"],
)
def test_the_command_measures_and_keeps_figures(options, tmp_path, monkeypatch, capsys):
    def two(kind, *_):
        return [find(kind, "ours"), find(kind, "keras")]

    if options:
        pytest.importorskip("jax")
    else:  # on JAX these are all
        monkeypatch.setattr(children, "contenders_for", two)
    output = tmp_path / "folder" / "figures.json"
    options = [*options, "--quick", "--rounds", "1", "--output", str(output)]
    assert main(["layers", "--only", "attention", *options]) == 0
    assert "times as fast as plain Keras" in capsys.readouterr().out
    (problem,) = json.loads(output.read_text())["problems"]
    assert [program["name"] for program in problem["programs"]] == ["ours", "keras"]
    assert all(program["seconds"]["train"] > 0 for program in problem["programs"])
    assert all(program["forward_peak_mb"] > 0 for program in problem["programs"])


def test_a_contender_that_fails_ends_the_command_with_one_line(tmp_path, monkeypatch, capsys):
    # no such size of batch in the worker's reading: it ends at once, before any framework
    monkeypatch.setattr(Size, "__str__", lambda size: "0x0x0x0")
    options = ["--only", "attention", "--quick", "--output", str(tmp_path / "figures.json")]
    assert main(["layers", *options]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("error: BahdanauAttention failed: ValueError: A size is")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--size", "3x4"], "A size is BATCHxSTEPSxMEMORYxUNITS. Received: '3x4'"),
        (["--rounds", "0"], "Expected a positive number. Received: '0'"),
        (["--seconds", "soon"], "Expected a positive number. Received: 'soon'"),
        (["--only", "pooling"], "invalid choice: 'pooling'"),
        (["--only", "attention", "--torch-compile"], "is of what has a loop"),
        (["--only", "multi-head", "--torch-compile"], "Received: --only multi-head"),
        (
            ["--only", "translation", "--only", "additive", "--torch-compile"],
            "invalid choice: 'additive'",
        ),
        (
            ["--only", "translation", "--only", "attention", "--torch-compile"],
            "Received: --only translation --only attention",
        ),
        (["--precision", "mixed_bfloat16"], "--precision needs --backend jax"),
        (["--backend", "jax", "--torch-compile"], "--torch-compile needs --backend tensorflow"),
    ],
)
def test_wrong_options_are_refused(options, message, capsys):
    try:
        status = main(["layers", *options])
    except SystemExit as ended:  # of argparse
        status = ended.code
    assert status == 2
    assert message in capsys.readouterr().err


def test_a_missing_peer_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(layers.machine, "installed", lambda package: None)
    assert main(["layers", "--only", "bahdanau", "--output", str(tmp_path / "f.json")]) == 2
    assert "PyTorch is missing" in capsys.readouterr().err
    assert main(["layers", "--only", "translation", "--output", str(tmp_path / "f.json")]) == 2
    assert "CTranslate2 is missing" in capsys.readouterr().err
    assert main(["layers", "--backend", "jax", "--output", str(tmp_path / "f.json")]) == 2
    assert "JAX is missing" in capsys.readouterr().err


def test_a_peer_is_needed_only_by_the_programs_that_are_asked_for(tmp_path, monkeypatch, capsys):
    def measure(*args):
        raise BenchmarkError("It was measured.")

    monkeypatch.setattr(layers.machine, "installed", lambda package: None)
    monkeypatch.setattr(layers, "measure", measure)
    options = ["--only", "bahdanau", "--output", str(tmp_path / "f.json")]
    assert main(["layers", *options, "--program", "keras-rnn"]) == 2
    assert "It was measured." in capsys.readouterr().err
    assert main(["layers", *options, "--program", "keras-rnn", "--program", "torch"]) == 2
    assert "PyTorch is missing" in capsys.readouterr().err
