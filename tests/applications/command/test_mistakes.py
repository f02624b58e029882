"""What people mistype: options, verbs, choices and settings; and several bad lines at once."""

import argparse
import dataclasses
import io
import json

import keras
import pytest

from keras_attention.applications.answer_selection import read_corpus as read_questions
from keras_attention.applications.base import verbs
from keras_attention.applications.classification.config import DataConfig as TableConfig
from keras_attention.applications.classification.data import read_corpus as read_table
from keras_attention.applications.command import TASKS, build_parser, parse
from keras_attention.applications.command import tasks as command_tasks
from keras_attention.applications.command.cli import load_task
from keras_attention.applications.errors import UserError
from keras_attention.applications.schema.reading import load_config, read_yaml
from keras_attention.applications.store.files import lines_of, refuse_wide
from keras_attention.applications.summarization.data import read_corpus
from keras_attention.applications.translation import DataConfig, TranslationConfig, Translator
from keras_attention.applications.translation.data import load_corpus
from keras_attention.applications.translation.shortlist import Shortlist
from keras_attention.decoding import SearchOptions
from keras_attention.metrics import read_alignments
from tests.applications.commands import call_command

pytestmark = pytest.mark.usefixtures("module_traced_nowhere")


def every_option():
    """Each option of each verb, and a misspelling of it."""
    for task in [None, *TASKS.values()]:
        for verb, parser in build_parser(task).verbs.choices.items():
            for action in parser._actions:
                for flag in action.option_strings:
                    if len(flag) > 5 and (task is None or verb in task.verbs):
                        yield task, verb, flag


def refusal(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        parse([str(argument) for argument in arguments])
    written = capsys.readouterr()
    assert ended.value.code == 2 and written.out == "" and written.err.count("\n") == 1
    return written.err


def test_every_option_is_known_by_its_misspelling(capsys, tmp_path):
    for name in TASKS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "FORMAT").write_text(json.dumps({"format": 1, "task": name}))
    tried = 0
    for task, verb, flag in every_option():
        if task is None and verb in TASKS["translation"].verbs:
            continue
        swapped = f"{flag[:-2]}{flag[-1]}{flag[-2]}"
        misspelt = f"{flag}e" if swapped == flag else swapped
        run = [tmp_path / task.name] if task else []
        for given in ([misspelt], [f"{misspelt}=x"], [misspelt, "x"]):
            said = refusal(capsys, verb, *run, *given)
            assert f"unknown argument {misspelt}. Did you mean '{flag}'?" in said or (
                f"unknown argument {misspelt}. Did you mean '--" in said and "-" in flag[3:]
            ), said
        tried += 1
    assert tried > 100


def test_every_option_without_a_value_can_be_taken_back():
    for task in [None, *TASKS.values()]:
        for parser in build_parser(task).verbs.choices.values():
            for action in parser._actions:
                if action.nargs == 0 and not {"--help", "--help-all"} & {*action.option_strings}:
                    assert isinstance(action, argparse.BooleanOptionalAction), action


def test_every_choice_is_known_by_its_misspelling(capsys):
    for task in TASKS.values():
        for verb, options in task.options.items():
            for option in options:
                for choice in map(str, option.settings.get("choices", ())):
                    wrong = f"{choice[:-2]}{choice[-1]}{choice[-2]}" if len(choice) > 3 else choice
                    if wrong != choice:
                        said = refusal(capsys, verb, "no-run", option.flags[0], wrong)
                        assert f"'{wrong}'. Did you mean '{choice}'?" in said or "int8" in choice


def test_an_empty_value_is_refused_where_no_text_is_asked_for(tmp_path, capsys):
    """An unset variable of the shell leaves one: it would stand for this folder, or for nothing."""
    for name in TASKS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "FORMAT").write_text(json.dumps({"format": 1, "task": name}))
    tried = 0
    for task in [None, *TASKS.values()]:
        for verb, parser in build_parser(task).verbs.choices.items():
            for action in parser._actions:
                if action.nargs == 0 or action.metavar == "TEXT":
                    continue
                own = [tmp_path / task.name] if task and verb in task.verbs else []
                given = [f"{action.option_strings[0]}="] if action.option_strings else [""]
                said = refusal(capsys, verb, *(own if action.option_strings else []), *given)
                assert "Received: an empty text" in said or "invalid choice: ''" in said, (
                    action,
                    said,
                )
                tried += 1
    assert tried > 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "translation", "--outptu", "x"], "--outptu. Did you mean '--output'?"),
        (["train", "tranlation"], "invalid choice: 'tranlation'. Did you mean 'translation'?"),
        (["init", "tranlation"], "invalid choice: 'tranlation'. Did you mean 'translation'?"),
        (["trian"], "there is no verb trian. Did you mean 'train'?"),
        (["train"], "TASK is missing, and so is --output RUN"),
        (
            ["train", "translation", "--outptu", "x", "--confg=y", "--training.epochs", "3"],
            "--outptu. Did you mean '--output'? Unknown argument --confg. Did you mean '--config'?",
        ),
        (["predict", "no-run", "--qestion", "x"], "--qestion. Did you mean '--question'?"),
        (["predict", "", "--input", "x"], "argument RUN: expected a path or a name"),
        (["predict", "no-run", "--question"], "argument --question: expected one argument"),
        (["predict", "no-run", "--seed", "nul"], "a whole number from 0, or null. Received: nul"),
    ],
)
def test_what_was_meant_is_said_before_what_is_missing(capsys, arguments, message):
    assert message in refusal(capsys, *arguments)


# ---- A search.


def test_help_says_null_where_it_is_accepted(capsys):
    for name, option in command_tasks.SEARCH.items():
        field = SearchOptions.__dataclass_fields__[name]
        takes_null = "None" in str(field.type)
        assert ("null" in option.settings["help"]) == takes_null
        if takes_null:
            flag = f"--{name.replace('_', '-')}"
            options = parse(["predict", "no-run", flag, "null", "--sample"])
            own = SearchOptions(**{name: 3}, sample=True)
            assert getattr(verbs.search_of(options, own), name) is None
    kinds = {name: each.strip("; ") for name, each in command_tasks.NEEDS.items()}
    assert kinds == {
        **dict.fromkeys(verbs.OF_SAMPLES, "with --sample"),
        **dict.fromkeys(verbs.OF_BEAMS, "without --sample"),
    }


@pytest.mark.parametrize(
    ("samples", "given", "expected"),
    [
        (True, "--no-sample --beam 3", {"sample": False, "beam_size": 3}),
        (True, "--temperature 0.5 --top-k 3", {"sample": True, "temperature": 0.5, "top_k": 3}),
        (False, "--sample --temperature 0.5", {"sample": True, "temperature": 0.5}),
        (False, "--beam 3 --length-penalty 0.5", {"beam_size": 3, "length_penalty": 0.5}),
        (True, "--beam 3", "run samples, which --beam-size does not change: add --no-sample"),
        (True, "--length-penalty 1", "which --length-penalty does not change"),
        (False, "--sample --beam 3", "Give --beam-size or --sample, not both"),
        (False, "--top-p 0.5 --seed 1", "--top-p, --seed go with --sample only"),
        (True, "--no-sample --temperature 2", "--temperature goes with --sample only"),
    ],
)
def test_a_run_that_samples_can_be_searched_and_the_reverse(samples, given, expected):
    options = parse(["predict", "no-run", *given.split()])
    own = SearchOptions(sample=samples)
    if isinstance(expected, str):
        with pytest.raises(UserError, match=expected):
            verbs.search_of(options, own)
    else:
        found = dataclasses.asdict(verbs.search_of(options, own))
        assert {name: found[name] for name in expected} == expected


# ---- A configuration.


def test_all_that_is_wrong_in_a_configuration_is_said_at_once(tmp_path):
    (tmp_path / "a.yaml").write_text(
        "data:\n  trian: x\n  train: none.tsv\nmodell:\n  units: 3\n"
        "training:\n  epochs: 0\n  batch_size: 0\ntokenizer:\n  kind: wrds\n"
    )
    overrides = ["--training.optimzer", "adam", "--units", "3", "--model.layers=x", "--stray"]
    with pytest.raises(UserError) as caught:
        load_config(TranslationConfig, [tmp_path / "a.yaml"], overrides)
    said = str(caught.value)
    for part in (
        "section 'data' has no key 'trian'. Did you mean 'train'?",
        "the configuration has no key 'modell'. Did you mean 'model'?",
        "training.epochs must be at least 1. Received: 0",
        "training.batch_size must be at least 1. Received: 0",
        "tokenizer.kind must be one of sentencepiece, words. Did you mean 'words'?",
        "section 'training' has no key 'optimzer'. Did you mean 'optimizer'?",
        "there is no option --units. Did you mean '--model.units'?",
        "model.layers must be a whole number",
        "--stray needs a value",
        "data.train: There is no file none.tsv",
    ):
        assert part in said, part
    assert said.count("Also: ") >= 9


def test_a_key_of_another_section_is_found(tmp_path):
    with pytest.raises(UserError, match=r"'model' has no key 'epochs'. Did you mean 'training.ep"):
        load_config(TranslationConfig, [], ["--model.epochs=3"])


@pytest.mark.parametrize("task", TASKS)
def test_wrong_paths_are_not_hidden_behind_missing_data(task, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("")
    key = {"translation": "train", "answer-selection": "train"}.get(task, "train")
    train = ["train", task, f"--data.{key}=none.csv", "--output=taken"]
    done = call_command(capsys, *train)
    assert done.status == 2 and done.err.count("\n") == 1
    assert f"Also: data.{key}: There is no file none.csv." in done.err
    assert "taken already exists" in done.err
    if task not in ("classification", "tagging"):  # which draw a development set
        assert "name a development set" in done.err
    assert load_task(task) and [each.name for each in tmp_path.iterdir()] == ["taken"]


# ---- Lines of files.

ROWS = [f"{{0}}{number}" for number in range(3)]
GOOD_AND_BAD = {
    "utf8": (lambda path: list(lines_of(path)), b"a\n", b"\xff\n", "expected UTF-8"),
    "tsv": (
        lambda path: load_corpus(DataConfig(dev=str(path)), "dev"),
        b"a\tb\n",
        b"a\n",
        "expected source, tab, target",
    ),
    "empty": (
        lambda path: load_corpus(DataConfig(dev=str(path)), "dev"),
        b"a\tb\n",
        b"a\t \n",
        "empty, where a sentence is expected",
    ),
    "candidates": (read_questions, b"q\ta\t1\n", b"q\ta\t7\n", "a label is 0"),
    "questions": (read_questions, b"q\ta\t1\n", b"q\t \t1\n", "an empty question or candidate"),
    "summaries": (
        read_corpus,
        b'{"source": "a", "target": "b"}\n',
        b'{"source": 3, "target": "b"}\n',
        "`source` must be a text",
    ),
    "json": (read_corpus, b'{"source": "a", "target": "b"}\n', b"{\n", "expected a JSON object"),
    "wordless": (
        read_corpus,
        b'{"source": "a", "target": "b"}\n',
        b'{"source": "a", "target": ""}\n',
        "the target has no words",
    ),
    "table.jsonl": (
        lambda path: read_table(path, TableConfig()),
        b'{"text": "a", "label": "x"}\n',
        b'{"text": "a"}\n',
        "there is no column 'label'",
    ),
    "labels.jsonl": (
        lambda path: read_table(path, TableConfig()),
        b'{"text": "a", "label": "x"}\n',
        b'{"text": "a", "label": null}\n',
        "must hold one label",
    ),
    "gold": (read_alignments, b"0-0 1p1\n", b"0:0\n", "a link is two positions"),
}


@pytest.mark.parametrize("name", GOOD_AND_BAD)
@pytest.mark.parametrize("count", [1, 2, 9])
def test_the_first_bad_lines_are_named_together(tmp_path, name, count):
    read, good, bad, message = GOOD_AND_BAD[name]
    path = tmp_path / name
    path.write_bytes(good + (bad + good) * count)
    with pytest.raises(ValueError, match=f"line 2: .*{message}") as caught:
        read(path)
    said = str(caught.value)
    assert "\n" not in said and said.count(", line ") == min(count, 5)
    for number in range(min(count, 5)):
        assert f"{path}, line {2 * number + 2}: " in said
    assert ("4 more such lines" in said) == (count == 9)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le", "utf-16-be", "utf-32-be"])
@pytest.mark.parametrize("text", ["4 juin 1999\nété\n", "Привет мир\nкак дела\n", "שלום עולם\nx\n"])
def test_wide_encodings_are_recognised(tmp_path, monkeypatch, capsys, encoding, text):
    content = text.encode(encoding)
    wanted = rf"is UTF-{encoding[4:6]} text\. .* iconv -f UTF-{encoding[4:6]}"
    for name in ("a.txt", "a.yaml"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"a.txt {wanted}"):
        list(lines_of(tmp_path / "a.txt"))
    with pytest.raises(UserError, match=f"a.txt {wanted}"):
        list(lines_of(tmp_path / "a.txt", "latin-1"))  # which takes all bytes for letters
    with pytest.raises(UserError, match=f"a.yaml {wanted}"):
        read_yaml(tmp_path / "a.yaml")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    with pytest.raises(UserError, match=f"standard input {wanted}"):
        list(verbs.chunks_of_lines(None, 10))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0",
        b"a\n\x01\n",
        b"word\0\nwords\n",
        "été Привет 你好 שלום\n".encode() * 50,
        "你好\n".encode("gb18030"),
        b"\xef\xbb\xbfa\n",
        b"a\0b\n" + b"a line of text\n" * 20,
    ],
)
def test_other_texts_are_not_taken_for_wide_ones(content):
    refuse_wide(content[:1024], "a.txt")


def test_bytes_that_may_be_wide_are_not_called_latin(tmp_path):
    (tmp_path / "a").write_bytes("你好世界你好世界\n再见世界\n".encode("utf-16-le"))
    with pytest.raises(UserError, match="iconv -f UTF-16 -t UTF-8"):
        list(lines_of(tmp_path / "a"))


def test_a_shortlist_names_all_its_bad_lines(tmp_path):
    preprocessor = Translator.from_preset("dates").preprocessor
    (tmp_path / "s").write_text("x\ny\n")
    with pytest.raises(UserError, match=r"s, line 1: expected source word.* Also .*s, line 2"):
        Shortlist.load(tmp_path / "s", preprocessor)
    assert keras.backend.backend()


def test_null_streams_are_as_many_as_help(monkeypatch, capsys):
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"4 juin 1999\n")))
    done = call_command(capsys, "predict", "dates", "--streams", "null", "--beam", "1")
    assert (done.status, done.out) == (0, "1999-06-04\n")
