"""Which options a verb takes: those of the run's task."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from keras_attention.applications.base.task import TextTask
from keras_attention.applications.command import TASKS, parse, parser
from keras_attention.applications.command.cli import load_task

VERBS = ("evaluate", "predict", "visualize", "export")


@pytest.fixture
def runs(tmp_path):
    """A folder for each task that looks like its run, as far as the parser looks."""
    for task in TASKS:
        (tmp_path / task).mkdir()
        (tmp_path / task / "FORMAT").write_text(json.dumps({"format": 1, "task": task}))
    return tmp_path


@pytest.mark.parametrize(
    ("hub", "unused"),
    [("0.21.0", []), ("0.31.1", []), ("0.32.0", ["tensorflow_text"]), ("1.0", ["tensorflow_text"])],
)
def test_what_a_verb_does_not_use_is_left_out_of_the_start(runs, monkeypatch, hub, unused):
    monkeypatch.setattr(parser, "version", lambda name: hub)
    packages = ["rouge_score", *parser.OF_KERASHUBS_NETWORKS, *unused]
    wanted = {
        ("predict", "translation"): packages,
        ("evaluate", "summarization"): packages,
        ("visualize", "classification"): ["rouge_score"],
    }
    for (verb, task), packages in wanted.items():
        options = {"visualize": ["--input", "a"]}.get(verb, [])
        assert parser._not_needed(parse([verb, str(runs / task), *options])) == packages
    assert parser._not_needed(parse(["predict", "kaggle://some/where"])) == ["rouge_score"]
    assert parser._not_needed(parse(["demo"])) == ["rouge_score"]


def test_packages_that_are_left_out_can_be_imported_afterwards():
    name = "xdrlib_of_nobody"
    with parser._left_out("this", "json"), pytest.raises(ImportError):
        import this  # noqa: F401
    assert sys.modules["json"] is json  # one that is there stays
    assert "this" not in sys.modules and importlib.util.find_spec("this")
    with pytest.raises(ZeroDivisionError), parser._left_out(name):
        raise ZeroDivisionError
    assert name not in sys.modules


@pytest.mark.parametrize(
    ("variable", "configured", "unused"),
    [
        (None, None, True),
        (None, "jax", False),
        (None, "tensorflow", True),
        ("tensorflow", "jax", True),
        ("jax", None, False),
    ],
)
def test_a_backend_keeps_what_it_needs(monkeypatch, tmp_path, variable, configured, unused):
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    if variable:
        monkeypatch.setenv("KERAS_BACKEND", variable)
    if configured:
        (tmp_path / "keras.json").write_text(json.dumps({"backend": configured}))
    assert ("jax" in parser._not_needed_by_keras()) == unused


STARTED = """
import gc, sys
sys.argv = ["keras-attention", "predict", "dates"]
from keras_attention_command import main
status = main()
print(sorted({"jax", "sklearn", "matplotlib", "scipy", "IPython"} & set(sys.modules)), status)
print(gc.isenabled(), gc.get_freeze_count() > 10_000)
"""


def test_a_line_is_translated_without_what_only_keras_would_use():
    environment = {name: each for name, each in os.environ.items() if name != "KERAS_BACKEND"}
    done = subprocess.run(
        [sys.executable, "-c", STARTED],
        input="3 March 2024\n",
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.stdout.split("\n")[:3] == ["2024-03-03", "[] 0", "True True"], done.stderr


def test_a_backend_that_is_not_there_is_an_error_of_one_line():
    program = "from keras_attention_command import main; raise SystemExit(main(['demo']))"
    environment = {**os.environ, "KERAS_BACKEND": "nonsense"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "keras-attention: cannot start (" in done.stderr.strip().split("\n")[-1]


def refusal(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        parse([str(argument) for argument in arguments])
    written = capsys.readouterr()
    assert ended.value.code == 2 and written.out == ""
    (line,) = written.err.strip().split("\n")
    return line


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_its_verbs_and_its_module(name):
    assert issubclass(load_task(name), TextTask)
    assert set(VERBS) <= set(TASKS[name].verbs)
    assert f"keras-attention train {name} " in TASKS[name].examples


def test_a_run_takes_the_options_of_its_task(runs, capsys):
    answers, lines = runs / "answer-selection", runs / "translation"
    options = parse(["predict", str(answers), "--question", "who ?", "--top", "3"])
    assert (options.question, options.top, options.run) == ("who ?", 3, str(answers))
    assert parse(["predict", "--beam", "3", str(lines)]).beam_size == 3  # the run may come last
    assert parse(["score", str(lines), "--input", "x"]).input == "x"
    assert "a run of answer-selection has no verb score" in refusal(capsys, "score", answers)
    assert "unknown argument --beam" in refusal(
        capsys, "predict", answers, "--question", "a", "--beam", 3
    )
    assert "unknown argument --top" in refusal(capsys, "predict", lines, "--top", 3)
    assert "required: --question" in refusal(capsys, "predict", answers)
    assert "required: RUN (" in refusal(capsys, "predict")  # though it may be followed by more


@pytest.mark.parametrize(
    "content", [None, "{", '{"task": "chess"}', "[]", pytest.param("[" * 10**5, id="deep")]
)
def test_without_a_known_run_the_options_of_any_task_are_taken(tmp_path, capsys, content):
    run = tmp_path / "run"
    if content is not None:
        run.mkdir()
        (run / "FORMAT").write_text(content)
    assert parse(["predict", str(run), "--beam-size", "3"]).beam_size == 3
    assert parse(["predict", str(run), "--question", "who ?"]).question == "who ?"
    assert "unknown argument --chess" in refusal(capsys, "predict", run, "--chess", "3")


def test_a_file_without_end_is_not_read_to_learn_the_task(tmp_path):
    with open(tmp_path / "FORMAT", "wb") as file:
        file.truncate(1 << 40)
    assert parse(["predict", str(tmp_path), "--beam-size", "3"]).beam_size == 3


@pytest.mark.parametrize("verb", VERBS)
def test_help_is_of_the_runs_task_or_of_all(runs, capsys, verb):
    def shown(*arguments):
        with pytest.raises(SystemExit) as ended:
            parse([verb, *arguments, "--help"])
        written = capsys.readouterr()
        assert ended.value.code == 0 and written.err == ""
        return written.out

    everything = shown()
    assert everything.startswith(f"usage: keras-attention {verb}")
    for name in TASKS:
        assert f"(a run of {name})." in everything
        own = shown(str(runs / name))
        assert f"(a run of {name})." in own and own.count("(a run of") == 1


def test_help_of_train_has_an_example_of_each_task(capsys):
    options = parse(["train", "--help"])
    text = options.show_train_help()
    assert all(f"keras-attention train {name} " in text for name in TASKS)


@pytest.mark.parametrize("task", TASKS)
def test_help_of_visualize_says_that_more_pictures_are_written(runs, capsys, task):
    with pytest.raises(SystemExit):
        parse(["visualize", str(runs / task), "--help"])
    assert "other picture that matplotlib writes" in " ".join(capsys.readouterr().out.split())
