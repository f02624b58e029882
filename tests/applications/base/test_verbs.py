"""Verbs read their input in parts: memory does not grow with the length of a file."""

import io
import json
import tracemalloc
from argparse import Namespace
from types import SimpleNamespace

import pytest

from keras_attention.applications.base.verbs import chunks_of_lines
from keras_attention.applications.classification import verbs as classification
from keras_attention.applications.classification.config import DataConfig
from keras_attention.applications.errors import UserError
from keras_attention.applications.summarization import verbs as summarization

CLASSIFIER = SimpleNamespace(pairs=False)


def chunks_of_table(path):
    config = SimpleNamespace(data=DataConfig())
    return classification._texts(CLASSIFIER, Namespace(input=str(path), config=config))


def chunks_of_documents(path):
    return summarization._chunks(Namespace(input=str(path), json=True), 500)


KINDS = {
    "a.txt": (lambda path: chunks_of_lines(str(path), 500), "{0}\n"),
    "a.tsv": (chunks_of_table, "{0}\n"),
    "a.csv": (chunks_of_table, '"{0}"\n'),
    "a.jsonl": (chunks_of_table, '{{"text": "{0}"}}\n'),
    "documents.jsonl": (chunks_of_documents, '{{"source": ["{0}"]}}\n'),
}


@pytest.mark.by_default("a.txt", "a.jsonl")
@pytest.mark.parametrize("name", KINDS)
def test_a_long_file_is_never_held_as_a_whole(tmp_path, name):
    chunks_of, form = KINDS[name]
    path, text = tmp_path / name, "a text of some words " * 10
    with open(path, "w") as file:
        file.write("text\n" if path.suffix in (".tsv", ".csv") else "")
        file.writelines(form.format(f"{text}{number}") for number in range(10_000))
    for _ in chunks_of(path):  # imports what it needs, which would count
        break
    tracemalloc.start()
    try:
        count = sum(len(chunk) for chunk in chunks_of(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 10_000
    assert peak < path.stat().st_size / 3


def test_the_mark_at_the_start_of_standard_input_is_no_letter(monkeypatch):
    lines = io.TextIOWrapper(io.BytesIO("\ufeffa b\n\ufeffc\n".encode()))
    monkeypatch.setattr("sys.stdin", lines)
    assert list(chunks_of_lines(None, 500)) == [["a b", "\ufeffc"]]


@pytest.mark.parametrize("name", ["a.jsonl", "documents.jsonl"])
def test_a_file_with_a_bad_line_is_refused_before_the_work(tmp_path, name):
    chunks_of, form = KINDS[name]
    path = tmp_path / name
    path.write_text("".join([form.format("x")] * 1200 + ["{}\n"]))
    with pytest.raises(UserError, match=f"{name}, line 1201"):
        next(chunks_of(path))


def test_a_table_without_rows_is_refused(tmp_path):
    (tmp_path / "a.tsv").write_text("text\n")
    with pytest.raises(UserError, match="a.tsv: there is no text in it"):
        next(chunks_of_table(tmp_path / "a.tsv"))


def test_texts_come_in_their_order_and_those_without_words_stay(tmp_path):
    rows = [{"source": [f"s{number}", " "]} for number in range(2)] + [{"source": ""}]
    path = tmp_path / "documents.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (chunk,) = chunks_of_documents(path)
    assert [document for _, document in chunk] == [["s0"], ["s1"], []]
    assert str(chunk[1][0]) == f"{path}, line 2"
