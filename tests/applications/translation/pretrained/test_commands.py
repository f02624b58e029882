"""The command on models that others have trained: wherever a preset is taken, so are they."""

import json

import pytest

from keras_attention.applications.command.cli import load_task
from keras_attention.applications.translation import Translator
from tests.applications.commands import call_command
from tests.applications.translation.pretrained.marian_files import write_folder

LINES = ["Ein Mann", "", "Zwei Kinder putzen"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("others") / "student"
    write_folder(folder, "int8", seed=3)
    (folder / "LICENSE").write_text("Some licence.")
    return folder


def test_convert_writes_an_ordinary_preset_with_its_origin(folder, tmp_path, capsys):
    done = call_command(capsys, "convert", folder, "--output", tmp_path / "preset")
    assert (done.status, done.out) == (0, "") and f"wrote {tmp_path / 'preset'}" in done.err
    found = Translator.from_preset(tmp_path / "preset").translate(LINES[0], max_length=5)
    wanted = Translator.from_preset(folder).translate(LINES[0], max_length=5)
    assert (found.text, found.score) == (wanted.text, wanted.score)
    card = (tmp_path / "preset" / "README.md").read_text()
    assert "Read from `student/model.bin`" in card and "(`LICENSE` of the folder)" in card
    # A copy of a preset is the same verb, and keeps the card.
    call_command(capsys, "convert", tmp_path / "preset", "--output", tmp_path / "copy")
    assert (tmp_path / "copy" / "README.md").read_text() == card
    again = call_command(capsys, "convert", folder, "--output", tmp_path / "copy")
    assert again.status == 2 and "copy" in again.err and again.err.count("\n") == 1


def test_verbs_take_a_folder_of_others_where_a_preset_is_taken(folder, tmp_path, capsys):
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    options = ["--input", lines, "--max-length", 5]
    done = call_command(capsys, "predict", folder, *options)
    found = Translator.from_preset(folder).translate(LINES, max_length=5)
    assert (done.status, done.out.split("\n")[:-1]) == (0, [each.text for each in found])
    (tmp_path / "targets.txt").write_text("Ein\nZwei\n", encoding="utf-8")
    (tmp_path / "sources.txt").write_text("Mann\nKinder\n", encoding="utf-8")
    pairs = ["--source", tmp_path / "sources.txt", "--target", tmp_path / "targets.txt"]
    done = call_command(capsys, "score", folder, *pairs)
    assert done.status == 0 and len(list(map(float, done.out.split()))) == 2
    picture = tmp_path / "picture.svg"
    shown = ["--input", "Ein Mann", "--target", "Zwei Kinder"]
    done = call_command(capsys, "visualize", folder, *shown, "--output", picture)
    assert done.status == 0 and ">Kinder<" in picture.read_text().replace("<!-- ", ">").replace(
        " -->", "<"
    )


def test_what_cannot_be_read_is_one_line(tmp_path, capsys):
    write_folder(tmp_path / "bad", "bin", **{"transformer-ffn-activation": "gelu", "ulr": True})
    for verb in ("convert", "predict", "export"):
        output = ["--output", tmp_path / "new"]
        done = call_command(capsys, verb, tmp_path / "bad", *output)
        assert (done.status, done.err.count("\n")) == (2, 1)
        assert "transformer-ffn-activation is 'gelu'; the option ulr is True" in done.err
        assert not (tmp_path / "new").exists()
    content = (tmp_path / "bad" / "model.bin").read_bytes()
    (tmp_path / "bad" / "model.bin").write_bytes(content[:999])
    done = call_command(capsys, "predict", tmp_path / "bad")
    assert (done.status, done.err.count("\n")) == (2, 1) and "is damaged" in done.err


def test_other_tasks_read_no_translators(folder):
    for name in ("summarization", "classification", "answer-selection"):
        task = load_task(name)
        assert not task.reads_foreign(folder)
        with pytest.raises(ValueError, match=r"is no preset, or half-written"):
            task.from_preset(folder)


def test_folders_of_nothing_are_named(tmp_path, capsys):
    (tmp_path / "model.bin").write_bytes(b"x" * 99)
    (tmp_path / "config.json").write_text(json.dumps({"a": 1}))
    done = call_command(capsys, "predict", tmp_path)
    assert done.status == 2 and "is no preset, or half-written: it has no task.json" in done.err
