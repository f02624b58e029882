"""The command: each verb, its exit status, what goes to which stream, and how it refuses."""

import dataclasses
import io
import itertools
import json
import os
import pty
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from keras_attention.applications.command import TASKS, build_parser, cli, parse
from keras_attention.applications.command.cli import run
from keras_attention.applications.errors import TrainingDiverged
from keras_attention.applications.schema.reading import load_config
from keras_attention.applications.training.run_folder import RunFolder, read_metrics
from keras_attention.applications.translation import TranslationConfig, Translator
from tests.applications.commands import COMMAND, SMALL, call_command

# Each verb loads the run and searches anew: tracing that would be most of it.
pytestmark = pytest.mark.usefixtures("module_traced_nowhere")
LINES = ["2 ottobre 1999", "", "am 10.01.2095"]


def give_input(monkeypatch, content):
    """Let the command find these bytes on its standard input."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.fixture(scope="module")
def tasks_read():
    return {}


@pytest.fixture
def read_once(monkeypatch, trained_run, tasks_read):
    """The verbs share the task of the trained run, which other tests read each time."""
    read = Translator.from_preset

    def from_preset(folder, **options):
        if Path(folder) != trained_run:
            return read(folder, **options)
        key = str(options)
        if key not in tasks_read:
            tasks_read[key] = read(folder, **options)
        return tasks_read[key]

    monkeypatch.setattr(Translator, "from_preset", from_preset)


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
    assert written.count("epoch ") >= 4 and "\r" not in written
    assert "all 4 epochs are done: best val_bleu" in written
    assert len(read_metrics(RunFolder(trained_run).metrics)) == 4
    for noise in ("oneDNN", "cuda", "absl", "Traceback", "Warning"):
        assert noise not in written


def test_predict_reads_and_writes_files_or_streams(
    trained_run, read_once, monkeypatch, capsys, tmp_path
):
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    give_input(monkeypatch, source.read_bytes())
    done = call_command(capsys, "predict", trained_run)
    assert (done.status, done.err) == (0, "")
    expected = [each.text for each in Translator.load(trained_run).translate(LINES)]
    assert done.out.split("\n") == [*expected, ""]
    assert expected[0] and expected[1] == ""
    to_file = call_command(capsys, "predict", trained_run, "--input", source, "--output", output)
    assert (to_file.status, to_file.out) == (0, "")
    assert output.read_text(encoding="utf-8") == done.out
    again = call_command(capsys, "predict", trained_run, "--input", source, "--output", output)
    assert_refused(again, "out.txt already exists. Choose another name")
    assert output.read_text(encoding="utf-8") == done.out


def test_predict_n_best_alignments_and_beam(trained_run, read_once, capsys, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    options = ("--input", source, "--n-best", 2, "--beam-size", 4, "--max-length", 5)
    options += ("--alignments",)
    done = call_command(capsys, "predict", trained_run, *options)
    rows = [line.split(" ||| ") for line in done.out.splitlines()]
    assert [row[0] for row in rows] == ["0", "0", "1", "2", "2"]
    assert float(rows[0][2]) >= float(rows[1][2])
    best = Translator.load(trained_run).translate(LINES, beam_size=4, n_best=2, max_length=5)
    assert rows[0][1] == best[0].text and rows[1][1] == best[0].alternatives[0].text
    source, target = rows[0][3].split()[0].split("-")
    assert int(source) in range(3) and target == "0"


@pytest.mark.slow
def test_predict_sample_is_seeded(trained_run, read_once, capsys, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("\n".join(LINES * 4), encoding="utf-8")
    options = ("predict", trained_run, "--input", source, "--sample", "--temperature", 3)
    options += ("--max-length", 5)
    one, same = (call_command(capsys, *options, "--seed", 5) for _ in range(2))
    other = call_command(capsys, *options, "--seed", 6)
    assert one.status == 0 and len(one.out.splitlines()) == 12
    assert one.out == same.out != other.out
    first, second = (call_command(capsys, *options).out for _ in range(2))
    assert first != second  # without a seed, each call draws anew


def test_evaluate_gives_a_table_or_json(trained_run, read_once, monkeypatch, capsys):
    as_json = call_command(capsys, "evaluate", trained_run, "--json", "--beam", 1)
    report = json.loads(as_json.out)
    assert report["sentences"] == 40 and report["beam_size"] == 1
    assert report["perplexity"] > 1 and 0 <= report["bleu"] <= 100
    monkeypatch.setattr(Translator, "evaluate_text", lambda *_, **options: report)  # once is enough
    table = call_command(capsys, "evaluate", trained_run, "--beam", 1)
    assert table.status == 0
    for name, key in (("BLEU", "bleu"), ("chrF", "chrf"), ("perplexity", "perplexity")):
        line = next(line for line in table.out.splitlines() if line.startswith(name))
        assert line.split() == [name, f"{report[key]:.2f}"]


@pytest.mark.slow
def test_evaluate_on_files_with_gold_alignments(trained_run, read_once, capsys, tmp_path):
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


def test_visualize_draws_into_a_new_file_or_the_terminal(trained_run, read_once, capsys, tmp_path):
    expected = Translator.load(trained_run).translate(LINES[0])
    picture = tmp_path / "x.png"
    options = ("visualize", trained_run, "--input", LINES[0], "--output", picture)
    done = call_command(capsys, *options)
    assert done.status == 0 and picture.read_bytes().startswith(b"\x89PNG")
    assert done.out.strip() == expected.text
    assert_refused(call_command(capsys, *options), "already exists")
    done = call_command(capsys, *options[:-2])
    assert (done.status, done.err) == (0, "")
    assert done.out == f"{expected.text}\n{expected.show()}\n"


def test_score_writes_a_log_probability_for_each_pair(trained_run, read_once, capsys, tmp_path):
    pairs = [("2 ottobre 1999", "1999-10-02"), ("am 10.01.2095", "2095-01-10")]
    table = tmp_path / "pairs.tsv"
    table.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    done = call_command(capsys, "score", trained_run, "--input", table)
    found = Translator.load(trained_run).score(*zip(*pairs, strict=True))
    expected = [each.log_probability for each in found]
    assert done.status == 0
    assert [float(line) for line in done.out.splitlines()] == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_average_is_the_mean_of_the_weights(trained_run, capsys, tmp_path):
    other = Translator.load(trained_run)
    own = [np.array(variable) for variable in other.backbone.trainable_variables]
    for variable in other.backbone.trainable_variables:
        variable.assign_add(np.ones(variable.shape))
    other.save_to_preset(tmp_path / "other")
    output = tmp_path / "mean"
    done = call_command(capsys, "average", trained_run, tmp_path / "other", "--output", output)
    assert (done.status, done.out) == (0, "")
    mean = Translator.from_preset(output)
    for one, two in zip(mean.backbone.trainable_variables, own, strict=True):
        np.testing.assert_allclose(one, two + 0.5, atol=1e-5)
    checkpoints = call_command(capsys, "average", trained_run, "--output", tmp_path / "last")
    assert checkpoints.status == 0, checkpoints.err
    assert Translator.from_preset(tmp_path / "last").translate(LINES[0], max_length=2).text
    dates = call_command(capsys, "predict", output, "--input", tmp_path / "none")
    assert_refused(dates, "no file")  # a preset is used as a run is


@pytest.mark.slow
def test_predict_answers_each_line_that_is_typed(trained_run):
    """On a terminal each line has its answer before the next is read."""
    ours, theirs = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    process = subprocess.Popen(
        [COMMAND, "predict", str(trained_run)],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=environment,
    )
    os.close(theirs)
    for line in (LINES[0], LINES[2]):
        os.write(ours, f"{line}\n".encode())
        assert process.stdout.readline().strip()
    os.write(ours, b"\x04")
    rest, errors = process.communicate(timeout=60)
    os.close(ours)
    assert (process.returncode, rest) == (0, "")
    assert errors == "Type a line; Ctrl-D ends.\n"  # nothing of TensorFlow's


def test_visualize_a_given_translation(trained_run, read_once, capsys, tmp_path):
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
        (
            ["predict", "{run}", "--input", "{text}", "--n-best", "9"],
            "Received: n_best=9, beam_size=3",
        ),
        (
            ["predict", "{run}", "--beam", "9999"],
            "--beam-size must be at most 1000. Received: 9999",
        ),
        (
            ["predict", "{run}", "--max-length", "9999999"],
            "--max-length must be at most 1.04858e+06",
        ),
        (["predict", "{run}", "--input", "{text}", "--top-k", "9"], "--top-k goes with --sample"),
        (["predict", "{run}", "--input", "{text}", "--seed", "9"], "--seed goes with --sample"),
        (["predict", "{run}", "--sample", "--beam", "2"], "--beam-size or --sample, not both"),
        (["predict", "{run}", "--attention-layer", "0"], "RNNSearch has no attention layers and"),
        (["predict", "{absent}"], "there is no preset {absent}. Expected: a folder, hf://"),
        (["predict", "{folder}"], "is no preset, or half-written: it has no task.json"),
        (["average", "{run}", "--output", "{folder}"], "folder already exists"),
        (["average", "{run}", "{absent}", "--output", "{new}"], "there is no preset"),
        (["score", "{run}", "--input", "{text}"], "expected source, tab, target"),
        (["score", "{run}", "--source", "{text}", "--target", "{two}"], "two has 2"),
        (["evaluate", "{run}", "--source", "{text}"], "--source and --target go together: give b"),
        (["evaluate", "{run}", "--target", "{text}"], "--source and --target go together: give b"),
        (
            ["evaluate", "{run}", "--source", "{text}", "--target", "{text}", "--input", "{tsv}"],
            "give --source and --target, or --input, not both",
        ),
        (["evaluate", "{run}", "--input", "{text}"], "expected source, tab, target"),
        (["evaluate", "{run}", "--split", "dev", "--input", "{text}"], "not both"),
        (["evaluate", "{run}", "--gold", "{text}"], "line 1: a link is two positions"),
        (["evaluate", "{run}", "--gold", "{gold}"], "has 1 lines for 40 sentence pairs"),
        (["visualize", "{run}", "--input", " ", "--output", "{absent}.png"], "nothing to draw"),
        (["visualize", "{run}", "--input", "1", "--output", "{absent}.x"], "must be one of"),
        (["train", "translation", "--output", "{run}", *SMALL], "already holds a run"),
        (["train", "translation", "--output", "{folder}", *SMALL], "already exists"),
        (["train", "translation", "--output", "{absent}", *SMALL], "name the training data"),
        (["train", "translation", "--output", "{absent}", "--training.epoch=1"], "'epochs'?"),
        (
            ["train", "translation", "--output", "{absent}", "--data.train={tsv}"],
            "name a development set",
        ),
        (
            [
                *["train", "translation", "--output", "{absent}"],
                *["--data.train_source={text}", "--data.train_target={two}"],
                *["--data.dev={tsv}"],
            ],
            "two has 2",
        ),
        (
            [
                *["train", "translation", "--output", "{absent}", "--data.max_length=2"],
                *["--data.train={long}", "--data.dev={tsv}", "--tokenizer.kind=words"],
            ],
            "long, line 1: 3 tokens, more than data.max_length 2",
        ),
        (
            ["train", "translation", "--output", "{run}", "--resume", "--model.units=7"],
            "cannot be continued with another model.units: only training.epochs,",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    trained_run, read_once, capsys, tmp_path, arguments, message
):
    names = {"run": str(trained_run)} | {n: str(tmp_path / n) for n in ("absent", "new")}
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
    assert_refused(done, message.format(**names))
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
    (tmp_path / "run" / "model.weights.h5").unlink()
    monkeypatch.chdir(tmp_path / "run")
    verb, *options = arguments
    assert_refused(call_command(capsys, verb, ".", *options), message)
    assert_refused(call_command(capsys, verb, ".", *options[:-1], "new.png"), "has no weights")


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


def test_predict_refuses_no_input_and_bad_input_on_standard_input(
    trained_run, read_once, monkeypatch, capsys
):
    latin = "Stra\xdfe\n".encode("latin-1")
    for content, message in ((b"", "the input is empty"), (latin, "standard input, line 1")):
        give_input(monkeypatch, content)
        assert_refused(call_command(capsys, "predict", trained_run), message)


@pytest.mark.parametrize(
    ("error", "has_run", "expected"),
    [
        (TrainingDiverged("loss became nan"), True, (3, "loss became nan")),
        (KeyboardInterrupt(), True, (130, "stopped by Ctrl-C. --resume continues ")),
        (KeyboardInterrupt(), False, (130, "stopped by Ctrl-C.\n")),
    ],
)
def test_exit_statuses_of_training_that_ends_otherwise(
    monkeypatch, capsys, tmp_path, error, has_run, expected
):
    def stop(*arguments):
        if has_run:
            (tmp_path / "run").mkdir()
            (tmp_path / "run" / "FORMAT").write_text("{}")
        raise error

    monkeypatch.setattr(cli, "train_task", stop)
    options = parse(["train", "translation", "--output", str(tmp_path / "run")])
    assert run(options) == expected[0]
    written = capsys.readouterr()
    assert expected[1] in written.err and written.out == "" and "Traceback" not in written.err


def test_an_error_of_our_own_is_no_traceback_unless_asked_for(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(cli, "train_task", lambda *arguments: [][0])
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
        ([], "name a verb"),
        (["trian"], "there is no verb trian. Did you mean 'train'? Expected: train, evaluate,"),
        (["train"], "TASK is missing"),
        (["train", "translate"], "invalid choice: 'translate'"),
        (["train", "translation"], "--output RUN is missing"),
        (
            ["train", "translation", "--output", "new", "--accept-changes"],
            "--accept-changes needs --resume",
        ),
        (["predict"], "required: RUN"),
        (["predict", "x", "--foo", "3"], "unknown argument --foo"),
        (["predict", "x", "--beem", "3"], "unknown argument --beem. Did you mean '--beam'?"),
        (["predict", "x", "--beam", "-1"], "expected a whole number from 0. Received: -1"),
        (["predict", "x", "--beam-size", "x"], "expected a whole number from 0. Received: x"),
        (["export", "x", "--format", "onnx", "--output", "y"], "invalid choice: 'onnx'"),
    ],
)
def test_misused_verbs_are_refused_in_one_line(capsys, arguments, message):
    assert_refused(call_command(capsys, *arguments), message)


@pytest.mark.parametrize("task", TASKS)
def test_a_configuration_that_init_prints_is_accepted(capsys, tmp_path, task):
    printed = call_command(capsys, "init", task)
    assert printed.status == 0 and printed.err == ""
    path = tmp_path / "my.yaml"
    path.write_text(printed.out)
    task_class = cli.load_task(task)
    assert cli.read_config(task_class, str(path)) == task_class.config_class()
    train = ["train", task, "--config", path, "--output", tmp_path / "run"]
    assert_refused(call_command(capsys, *train), "data.")  # it names no data


def test_a_data_set_brings_its_defaults_which_options_beat():
    plain = cli.read_config(Translator)
    dates = cli.read_config(Translator, None, ["--data.dataset", "dates", "--model.units=7"])
    assert plain == Translator.config_class()
    assert dates.model.units == 7
    assert (dates.training.epochs, plain.training.epochs) == (3, 30)
    overrides = ["--data.dataset=dates", "--model.architecture=transformer"]
    transformer = cli.read_config(Translator, None, overrides).model
    assert transformer.feed_forward_size == 128 and transformer.units is None


def test_resuming_reads_the_runs_own_configuration(trained_run):
    folder = RunFolder(trained_run)
    own = load_config(TranslationConfig, [folder.config])
    assert cli.read_config(Translator, run=folder) == own
    longer = cli.read_config(Translator, None, ["--training.epochs=99"], folder)
    assert longer.training == dataclasses.replace(own.training, epochs=99)


def test_version_and_completion(capsys):
    done = call_command(capsys, "--version")
    assert (done.status, done.out) == (0, f"keras-attention {version('keras-attention-layers')}\n")
    script = call_command(capsys, "--print-completion", "bash")
    assert script.status == 0 and "keras_attention" in script.out and "predict" in script.out


def test_help_of_a_task_lists_its_keys(capsys):
    usual = call_command(capsys, "train", "translation", "--help")
    done = call_command(capsys, "train", "translation", "--help-all")
    assert (usual.status, done.status, usual.err, done.err) == (0, 0, "", "")
    assert "--training.learning_rate" in usual.out and "--training.beta_2" not in usual.out
    assert "--training.beta_2" in done.out and "with --data.dataset dates" in done.out
