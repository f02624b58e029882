"""BLEU as papers on Multi30k measure it."""

import pytest

from benchmarks.__main__ import main


def test_bleu_of_tokenised_text_beside_that_of_text_as_written(tmp_path, capsys):
    pytest.importorskip("sacremoses", reason="needs sacremoses")
    lines = ["Ein Mann läuft, und ein Hund schläft.", "Sie sagt: „Guten Tag“, und geht davon."]
    (tmp_path / "a").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "b").write_text("\n".join(lines).lower() + "\n", encoding="utf-8")
    assert main(["tokenised-bleu", str(tmp_path / "b"), str(tmp_path / "a")]) == 0
    written, lower, moses = capsys.readouterr().out.split("\n")[2:5]
    assert "| 100.00 |" in lower and "case:lc" in lower
    assert "| 100.00 |" in moses and "tok:none" in moses
    assert "| 100.00 |" not in written and "case:mixed" in written
    out = tmp_path / "out"
    assert main(["tokenised-bleu", str(tmp_path / "a"), "--write", str(out)]) == 0
    text = (out / "a").read_text(encoding="utf-8").split("\n")[0]
    assert text == "ein mann läuft , und ein hund schläft ."
    assert main(["tokenised-bleu", str(tmp_path / "a"), "--write", str(out)]) == 2
    (tmp_path / "c").write_text("x\n")
    assert main(["tokenised-bleu", str(tmp_path / "c"), str(tmp_path / "a")]) == 2
    assert "a line for each of 2 references" in capsys.readouterr().err
