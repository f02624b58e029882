"""The baselines: figures of small files that can be checked by hand."""

import pytest

from benchmarks.__main__ import main


@pytest.fixture
def folder(tmp_path):
    """A data folder with questions that word overlap ranks right once in two, and TREC's form."""
    (tmp_path / "trecqa").mkdir()
    rows = ["who ran ?,1,he ran", "who ran ?,0,no", "who fell ?,0,who fell", "who fell ?,1,it did"]
    (tmp_path / "trecqa" / "dev.csv").write_text("\n".join(["qtext,label,atext", *rows]) + "\n")
    (tmp_path / "trec").mkdir()
    lines = ["HUM:ind Who ran ?", "LOC:city Where is Rome ?"] * 20
    for part in ("train", "test"):
        (tmp_path / "trec" / f"TREC.{part}").write_text("\n".join(lines) + "\n", encoding="latin-1")
    return tmp_path


def test_the_tables_have_the_sets_that_are_there(folder, capsys):
    assert main(["baselines", "--folder", str(folder)]) == 0
    out, error = capsys.readouterr()
    assert "| TREC-QA, dev | word overlap | 2 | 0.7500 | 0.7500 | 0.5000 |" in out
    assert "| trec | 100.0 | 100.0-100.0 | 1 |" in out
    assert "WikiQA is passed over: There is no file" in error and "WikiQA" not in out


def test_a_folder_without_any_set_ends_with_one_line(tmp_path, capsys):
    assert main(["baselines", "--folder", str(tmp_path)]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("has none of the sets.")
