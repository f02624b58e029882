"""The one command of all measurements: what it lists, what it parses, and how it ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from tests.docs_examples import commands, pages

REPOSITORY = Path(__file__).resolve().parents[2]
NAMES = [name for names in command.PROGRAMS.values() for name in names]
CALLS = [
    words[2:]
    for page in pages(REPOSITORY)
    for words in commands(page.read_text(encoding="utf-8"), "python")
    if words[:2] == ["-m", "benchmarks"]
]
"""The arguments of each call on the pages."""
WITHOUT_FRAMEWORKS = """
import sys
from benchmarks import __main__ as command
for names in command.PROGRAMS.values():
    for name in names:
        command.parser_of(command.load(name)).format_help()
print(sorted({"keras", "tensorflow", "jax", "torch", "sklearn", "matplotlib"} & set(sys.modules)))
"""


def test_each_program_is_a_module_and_each_module_with_options_a_program():
    for folder, names in command.PROGRAMS.items():
        paths = (REPOSITORY / "benchmarks" / folder).glob("*.py")
        found = {path.stem for path in paths if "\ndef add_options(" in path.read_text("utf-8")}
        assert found == {name.replace("-", "_") for name in names}
    assert len(set(NAMES)) == len(NAMES)


def test_the_help_of_all_needs_no_framework():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_FRAMEWORKS], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.stdout == "[]\n", done.stderr


def test_the_list_has_a_sentence_for_each(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["--help"])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    for name in NAMES:
        (line,) = [each for each in lines if each.split()[:1] == [name]]
        sentence = line.split(maxsplit=1)[1]
        assert sentence[0].isupper() and sentence.endswith("."), line


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_the_calls_on_the_pages_are_parsed(words):
    command.parse([word for word in words if not word.startswith("$")])


def test_the_pages_call_programs_by_their_names():
    for page in [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]:
        if page.name == "CHANGELOG.md":  # of what was there, too
            continue
        assert "-m benchmarks." not in page.read_text(encoding="utf-8"), page


def test_the_pages_call_nearly_all():
    assert len({words[0] for words in CALLS} - {"--help"}) >= len(NAMES) - 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the following arguments are required: PROGRAM"),
        (["--only", "luong"], "the following arguments are required: PROGRAM"),
        (["layer"], "invalid choice: 'layer'"),
        (["luong", "--seed", "3"], "unrecognized arguments: --seed 3"),
        (["luong", "--training.epochs=1"], "unrecognized arguments: --training.epochs=1"),
        (["recipes"], "the following arguments are required: --folder"),
        (["recipes", "--folder", "x", "--seeds", "0"], "Expected a positive number. Received: '0'"),
        (["crf", "--output", __file__], "exists already: name a new file."),
    ],
)
def test_wrong_words_are_refused(words, message, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_seeds_count_from_one_and_settings_are_words_of_the_command():
    line = "recipes --folder x --seeds 3 --only parsing --only tagging"
    options = command.parse(line.split())[1]
    assert options.seeds == [1, 2, 3] and options.only == ["parsing", "tagging"]
    assert options.output == Path("runs/recipes")
    options = command.parse(["luong", "--set", "training.seed=7", "--set", "model.units=5"])[1]
    assert options.settings == ["training.seed=7", "model.units=5"]


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (ValueError("No such thing."), 2, "error: No such thing.\n"),
        (ImportError("No module named 'x'"), 2, "error: No module named 'x'\n"),
        (OSError(2, "No such file", "x"), 2, "error: [Errno 2] No such file: 'x'\n"),
        (KeyboardInterrupt(), 130, "It was interrupted; the same command goes on from there.\n"),
    ],
)
def test_what_is_raised_ends_it_with_one_line(error, status, told, monkeypatch, capsys):
    def run(options):
        raise error

    monkeypatch.setattr(command.load("architectures"), "run", run)
    assert command.main(["architectures"]) == status
    assert capsys.readouterr().err == told


def test_a_reader_that_leaves_is_no_error():
    line = f"{sys.executable} -m benchmarks roofline | true"
    done = subprocess.run(line, shell=True, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.stderr == ""


def test_sizes_are_named_as_the_package_names_them():
    from benchmarks.speed import transformer_sizes
    from keras_attention.applications.translation.config import SIZES
    from keras_attention.layers.transformer.decoder import AUTOREGRESSIONS

    assert tuple(SIZES) == transformer_sizes.NAMES
    assert transformer_sizes.AUTOREGRESSIONS == AUTOREGRESSIONS
