"""Commands in the README and the pages use verbs, options, keys and targets that exist."""

import re
from pathlib import Path

import pytest

from keras_attention.applications.command import parse
from keras_attention.applications.command.cli import load_task
from keras_attention.applications.errors import UserError
from keras_attention.applications.schema.reading import load_config
from tests.docs_examples import commands, pages

REPOSITORY = Path(__file__).resolve().parent.parent
TEXTS = {
    page.relative_to(REPOSITORY): page.read_text(encoding="utf-8") for page in pages(REPOSITORY)
}
CALLS = [words for text in TEXTS.values() for words in commands(text, "keras-attention")]
MAKES = [words for text in TEXTS.values() for words in commands(text, "make")]


def check(words: list[str]) -> None:
    """Parse a command line, and for `train` its configuration too."""
    if words == ["--help"]:
        return
    options = parse(words)
    if options.verb == "train":
        load_config(load_task(options.task).config_class, [], options.overrides)


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_command_exists(words):
    check(words)


@pytest.mark.parametrize("words", MAKES, ids=" ".join)
def test_target_exists(words):
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    for word in words:
        name, given, _ = word.partition("=")  # a target, or a variable
        assert re.search(
            rf"\$\({name}\)" if given else rf"^{re.escape(word)}:", makefile, re.MULTILINE
        )


def test_every_verb_is_shown():
    shown = {words[0] for words in CALLS}
    assert {"train", "evaluate", "predict", "visualize", "export", "demo"} <= shown


def test_the_readme_begins_with_demo_and_test():
    first = commands((REPOSITORY / "README.md").read_text(encoding="utf-8"), "make")[:2]
    assert first == [["demo"], ["test"]]


@pytest.mark.parametrize(
    "line",
    ["predict run --bean 3", "translate run", "evaluate", "train translation --model.unit 3"],
)
def test_a_wrong_command_is_found(line):
    text = f"```bash\necho a | keras-attention {line}  # comment\n```\n"
    with pytest.raises((SystemExit, UserError)):
        check(commands(text, "keras-attention")[0])


def test_installations_in_a_clone_are_editable():
    # Python that starts in a clone imports its folder `keras_attention`, which without
    # `--editable` has no `keras_attention.applications`.
    installs = re.compile(r"pip install[^`\n|]*?(?=[`\n|]|$)")
    found = [
        (page.name, command)
        for page in pages(REPOSITORY)
        for command in installs.findall(page.read_text(encoding="utf-8"))
        if re.search(r"""(^|\s)["']?\.(\[[\w,]+\])?["']?(\s|$)""", command)
    ]
    assert len(found) >= 8
    assert not [each for each in found if "--editable" not in each[1]]
