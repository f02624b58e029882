"""The command: each verb, its exit status, what goes to which stream, and how it refuses."""

import itertools
import json
import shutil
import subprocess
import sys

import pytest

from keras_attention.applications.cli import run
from keras_attention.applications.command import build_parser, parse
from keras_attention.applications.common.errors import TrainingDiverged
from keras_attention.applications.common.metrics_log import read_metrics
from keras_attention.applications.common.run_folder import RunFolder
from keras_attention.applications.translation.task import TASK
from keras_attention.applications.translation.translator import Translator
from tests.applications.commands import SMALL, Done, call_command, run_command

LINES = ["2 ottobre 1999", "", "am 10.01.2095"]


def assert_refused(done, message, status=2):
    """The command left with one line on standard error, which says `message`."""
    assert done.status == status
    assert done.out == ""
    lines = done.err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("keras-attention"), done.err
    assert message in lines[0]


def test_training_writes_to_standard_error_alone(trained_run):
    assert (trained_run.parent / "stdout").read_text() == ""
    written = (trained_run.parent / "stderr").read_text()
    assert "400 sentence pairs" in written
    assert written.count("epoch ") >= 6 and "\r" not in written
    assert "all 6 epochs are done: best val_bleu" in written
    assert len(read_metrics(RunFolder(trained_run).metrics)) == 6
    for noise in ("oneDNN", "cuda", "absl", "Traceback", "Warning"):
        assert noise not in written


def test_predict_reads_and_writes_files_or_streams(trained_run, capsys, tmp_path):
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    done = run_command("predict", trained_run, input="\n".join(LINES) + "\n")
    assert done.returncode == 0 and done.stderr == ""
    expected = [each.text for each in Translator.load(trained_run).translate(LINES)]
    assert done.stdout.split("\n") == [*expected, ""]
    assert expected[0] and expected[1] == ""
    to_file = call_command(capsys, "predict", trained_run, "--input", source, "--output", output)
    assert (to_file.status, to_file.out) == (0, "")
    assert output.read_text(encoding="utf-8") == done.stdout
    again = call_command(capsys, "predict", trained_run, "--input", source, "--output", output)
    assert_refused(again, "out.txt already exists. Choose another --output")
    assert output.read_text(encoding="utf-8") == done.stdout


def test_predict_n_best_alignments_and_beam(trained_run, capsys, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    options = ("--input", source, "--n-best", 2, "--beam", 4, "--alignments")
    done = call_command(capsys, "predict", trained_run, *options)
    rows = [line.split(" ||| ") for line in done.out.splitlines()]
    assert [row[0] for row in rows] == ["0", "0", "1", "2", "2"]
    assert float(rows[0][2]) >= float(rows[1][2])
    best = Translator.load(trained_run).translate(LINES, beam_size=4, n_best=2)
    assert rows[0][1] == best[0].text and rows[1][1] == best[0].alternatives[0].text
    source, target = rows[0][3].split()[0].split("-")
    assert int(source) in range(3) and target == "0"


def test_predict_sample_is_seeded(trained_run, capsys, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("\n".join(LINES * 4), encoding="utf-8")
    options = ("predict", trained_run, "--input", source, "--sample", "--temperature", 3)
    one, same = (call_command(capsys, *options, "--seed", 5) for _ in range(2))
    other = call_command(capsys, *options, "--seed", 6)
    assert one.status == 0 and len(one.out.splitlines()) == 12
    assert one.out == same.out != other.out


def test_evaluate_gives_a_table_or_json(trained_run, capsys):
    as_json = call_command(capsys, "evaluate", trained_run, "--json", "--beam", 1)
    report = json.loads(as_json.out)
    assert report["sentences"] == 40 and report["beam_size"] == 1
    assert report["perplexity"] > 1 and 0 <= report["bleu"] <= 100
    table = call_command(capsys, "evaluate", trained_run, "--beam", 1)
    assert table.status == 0
    for name, key in (("BLEU", "bleu"), ("chrF", "chrf"), ("perplexity", "perplexity")):
        line = next(line for line in table.out.splitlines() if line.startswith(name))
        assert line.split() == [name, f"{report[key]:.2f}"]


def test_evaluate_on_files_with_gold_alignments(trained_run, capsys, tmp_path):
    source, target, gold = (tmp_path / name for name in ("s", "t", "gold"))
    source.write_text("2 ottobre 1999\nam 10.01.2095\n")
    target.write_text("1999-10-02\n2095-01-10\n")
    gold.write_text("1-1 2p1 3-1\n2-1\n")
    files = ("--source", source, "--target", target)
    done = call_command(capsys, "evaluate", trained_run, *files, "--gold", gold, "--json")
    report = json.loads(done.out)
    assert report["sentences"] == report["alignment"]["sentences"] == 2
    assert report["alignment"]["aer"] <= 100
    wrong = call_command(
        capsys, "evaluate", trained_run, *files, "--gold", gold, "--gold-start", 0, "--json"
    )
    assert json.loads(wrong.out)["alignment"]["aer"] == 100.0


def test_visualize_draws_and_does_not_overwrite(trained_run, capsys, tmp_path):
    picture = tmp_path / "x.png"
    options = ("visualize", trained_run, "--input", LINES[0], "--output", picture)
    done = call_command(capsys, *options)
    assert done.status == 0 and picture.read_bytes().startswith(b"\x89PNG")
    assert done.out.strip() == Translator.load(trained_run).translate([LINES[0]])[0].text
    assert_refused(call_command(capsys, *options), "already exists")


def test_visualize_a_given_translation(trained_run, capsys, tmp_path):
    options = ("--input", LINES[0], "--target", "1999-10-02", "--output", tmp_path / "x.svg")
    done = call_command(capsys, "visualize", trained_run, *options)
    assert (done.status, done.out) == (0, "1999-10-02\n")


@pytest.mark.parametrize("kind", ["keras", "saved_model"])
def test_export_writes_a_folder_and_does_not_overwrite(trained_run, capsys, tmp_path, kind):
    options = ("export", trained_run, "--format", kind, "--output", tmp_path / "out")
    done = call_command(capsys, *options)
    assert done.status == 0
    assert (tmp_path / "out" / {"keras": "model.keras"}.get(kind, "saved_model.pb")).is_file()
    assert_refused(call_command(capsys, *options), "already exists")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "{run}", "--input", "{absent}"], "no file"),
        (["predict", "{run}", "--input", "{empty}"], "is empty"),
        (["predict", "{run}", "--input", "{latin}"], "line 2: expected UTF-8"),
        (["predict", "{run}", "--input", "{text}", "--n-best", "9"], "beam of 3 cannot give 9"),
        (["predict", "{run}", "--input", "{text}", "--top-k", "9"], "--top-k goes with --sample"),
        (["predict", "{run}", "--input", "{text}", "--seed", "9"], "--seed goes with --sample"),
        (["predict", "{run}", "--sample", "--beam", "2"], "--beam or --sample, not both"),
        (["predict", "{absent}"], "no run folder"),
        (["predict", "{folder}"], "is not a run folder"),
        (["evaluate", "{run}", "--source", "{text}"], "--source and --target go together: give b"),
        (["evaluate", "{run}", "--target", "{text}"], "--source and --target go together: give b"),
        (
            ["evaluate", "{run}", "--source", "{text}", "--target", "{text}", "--tsv", "{tsv}"],
            "give --source and --target, or --tsv, not both",
        ),
        (["evaluate", "{run}", "--tsv", "{text}"], "expected source, tab, target"),
        (["evaluate", "{run}", "--split", "dev", "--tsv", "{text}"], "not both"),
        (["evaluate", "{run}", "--gold", "{text}"], "line 1: a link is two positions"),
        (["evaluate", "{run}", "--gold", "{gold}"], "has 1 lines for 40 sentence pairs"),
        (["visualize", "{run}", "--input", " ", "--output", "{absent}.png"], "text is empty"),
        (["visualize", "{run}", "--input", "1", "--output", "{absent}.x"], "must be one of"),
        (["train", "translation", "--output", "{run}", *SMALL], "already holds a run"),
        (["train", "translation", "--output", "{folder}", *SMALL], "already exists"),
        (["train", "translation", "--output", "{absent}", *SMALL], "name the training data"),
        (["train", "translation", "--output", "{absent}", "--training.epoch=1"], "'epochs'?"),
        (
            ["train", "translation", "--output", "{absent}", "--data.train_tsv={tsv}"],
            "name a development set",
        ),
        (
            [
                *["train", "translation", "--output", "{absent}"],
                *["--data.train_source={text}", "--data.train_target={two}"],
                *["--data.dev_tsv={tsv}"],
            ],
            "two has 2",
        ),
        (
            [
                *["train", "translation", "--output", "{absent}", "--data.max_length=2"],
                *["--data.train_tsv={long}", "--data.dev_tsv={tsv}", "--tokenizer.kind=words"],
            ],
            "long, line 1: 3 tokens, more than data.max_length 2",
        ),
        (
            ["train", "translation", "--output", "{run}", "--resume", "--model.units=7"],
            "cannot be continued with another model.units: only training.epochs,",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(trained_run, capsys, tmp_path, arguments, message):
    names = {"run": str(trained_run), "absent": str(tmp_path / "absent")}
    contents = {
        "empty": b"",
        "latin": b"a\nStra\xdfe\n",
        "text": b"one\n",
        "two": b"one\ntwo\n",
        "tsv": b"a\tb\n",
        "long": b"a b c\ta\n",
        "gold": b"1-1\n",
        "folder/file": b"",
    }
    for name, content in contents.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        names[name.split("/")[0]] = str(tmp_path / name.split("/")[0])
    before = sorted(tmp_path.rglob("*"))
    done = call_command(capsys, *(argument.format(**names) for argument in arguments))
    assert_refused(done, message)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "--output", "nodir/x"], "nodir/x cannot be written: there is no folder nodir"),
        (["visualize", "--input", "1", "--output", "nodir/x.png"], "there is no folder nodir"),
        (["visualize", "--input", "1", "--output", "x.text"], "must be one of"),
        (["visualize", "--input", "1", "--output", "FORMAT"], "FORMAT already exists"),
    ],
)
def test_an_output_is_refused_before_the_model_is_loaded(
    trained_run, monkeypatch, capsys, tmp_path, arguments, message
):
    """The run has no weights, which loading would refuse."""
    shutil.copytree(trained_run, tmp_path / "run")
    (tmp_path / "run" / "best.weights.h5").unlink()
    monkeypatch.chdir(tmp_path / "run")
    verb, *options = arguments
    assert_refused(call_command(capsys, verb, ".", *options), message)
    assert_refused(call_command(capsys, verb, ".", *options[:-1], "new.png"), "no weights yet")


@pytest.mark.parametrize(
    "verb, backend",
    [("train", "torch"), *itertools.product(("demo", "export"), ("jax", "torch"))],
)
def test_what_only_tensorflow_can_do_is_refused_elsewhere(
    trained_run, dates_data, monkeypatch, capsys, tmp_path, verb, backend
):
    monkeypatch.setattr("keras.backend.backend", lambda: backend)
    more = {"train": ["translation", *dates_data, *SMALL], "demo": [], "export": [trained_run]}
    done = call_command(capsys, verb, *more[verb], "--output", tmp_path / "new")
    assert_refused(done, f"Keras runs on {backend}: set KERAS_BACKEND=tensorflow")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["absent", "empty"])
def test_resuming_what_was_not_begun_begins_it(capsys, tmp_path, kind):
    output = tmp_path / "run"
    if kind == "empty":
        output.mkdir()
    done = call_command(capsys, "train", "translation", "--resume", "--output", output)
    assert_refused(done, "name the training data")


def test_predict_refuses_no_input_and_bad_input_on_standard_input(trained_run):
    latin = "Stra\xdfe\n".encode("latin-1").decode("utf-8", "surrogateescape")
    for content, message in (("", "the input is empty"), (latin, "standard input, line 1")):
        done = run_command("predict", trained_run, input=content, errors="surrogateescape")
        assert_refused(Done(done.returncode, done.stdout, done.stderr), message)


@pytest.mark.parametrize("error", [TrainingDiverged("loss became nan"), KeyboardInterrupt()])
def test_exit_statuses_of_training_that_ends_otherwise(monkeypatch, capsys, tmp_path, error):
    def stop(self, options):
        raise error

    monkeypatch.setattr(type(TASK), "train", stop)
    options = parse(["train", "translation", "--output", str(tmp_path / "run")])
    expected = (3, "loss became nan") if isinstance(error, ValueError) else (130, "--resume")
    assert run(options) == expected[0]
    written = capsys.readouterr()
    assert expected[1] in written.err and written.out == "" and "Traceback" not in written.err


def test_an_error_of_our_own_is_no_traceback_unless_asked_for(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(type(TASK), "train", lambda self, options: [][0])
    options = parse(["train", "translation", "--output", str(tmp_path / "run")])
    assert run(options) == 1
    assert "IndexError: list index out of range" in capsys.readouterr().err
    monkeypatch.setenv("KERAS_ATTENTION_TRACEBACK", "1")
    assert run(options) == 1
    assert "Traceback" in capsys.readouterr().err


def test_help_needs_no_keras_and_usage_errors_are_one_line():
    watched = "import sys; sys.modules['keras'] = None; from keras_attention_command import main; "
    verbs = ("train", "evaluate", "predict", "visualize", "export", "demo")
    for arguments in (["--help"], *([verb, "--help"] for verb in verbs)):
        done = subprocess.run(
            [sys.executable, "-c", watched + f"sys.exit(main({arguments!r}))"],
            capture_output=True,
            encoding="utf-8",
        )
        assert done.returncode == 0 and done.stderr == ""
        assert done.stdout.startswith("usage: keras-attention")
    assert all(verb in build_parser().format_help() for verb in verbs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: VERB"),
        (["tran"], "invalid choice: 'tran'"),
        (["train"], "TASK is missing"),
        (["train", "translate"], "invalid choice: 'translate'"),
        (["train", "translation"], "--output RUN is missing"),
        (["predict"], "required: RUN"),
        (["predict", "x", "--foo", "3"], "unknown argument --foo"),
        (["predict", "x", "--beam", "0"], "expected a whole number from 1. Received: 0"),
        (["predict", "x", "--beam", "x"], "expected a whole number from 1. Received: x"),
        (["export", "x", "--format", "onnx", "--output", "y"], "invalid choice: 'onnx'"),
    ],
)
def test_misused_verbs_are_refused_in_one_line(capsys, arguments, message):
    assert_refused(call_command(capsys, *arguments), message)


def test_help_of_a_task_lists_its_keys(capsys):
    done = call_command(capsys, "train", "translation", "--help")
    assert done.status == 0 and done.err == ""
    assert "--training.learning_rate" in done.out and "with --data.dataset dates" in done.out
