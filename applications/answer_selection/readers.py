"""Files of questions and candidates: WikiQA's TSV, TREC-QA's CSV, and a plain TSV."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.text_files import read_lines

WIKIQA = ("QuestionID", "Question", "SentenceID", "Sentence", "Label")
TRECQA = ("qtext", "label", "atext")


@dataclass(frozen=True)
class Row:
    """A line of a file: a question and one candidate. Ids are None where the form has none."""

    line: int
    question: str
    candidate: str
    label: int
    question_id: str | None = None
    candidate_id: str | None = None


def read_rows(path: str) -> list[Row]:
    """Return the rows of a file, whose first line says which form it has.

    - WikiQA's: a header with `QuestionID`, `Question`, `SentenceID`, `Sentence` and `Label` among
      its columns, between tabs;
    - TREC-QA's: the header `qtext,label,atext`, quoted as CSV is;
    - else question, tab, candidate, tab, label on each line, without a header.

    Raises:
        UserError: naming file and line, where a line has other columns or a label is not 0 or 1.
    """
    lines = read_lines(path)
    if lines[0].split("\t")[0] == WIKIQA[0]:
        return list(_wikiqa(path, lines))
    if lines[0].startswith(",".join(TRECQA)):
        return list(_trecqa(path, lines))
    return list(_plain(path, lines))


def _wikiqa(path: str, lines: Sequence[str]) -> Iterator[Row]:
    header = lines[0].split("\t")
    missing = [name for name in WIKIQA if name not in header]
    if missing:
        raise UserError(f"{path}, line 1: WikiQA's header lacks {', '.join(missing)}.")
    places = [header.index(name) for name in WIKIQA]
    for number, line in enumerate(lines[1:], 2):
        fields = line.split("\t")
        if len(fields) != len(header):
            raise _columns(path, number, f"{len(header)} columns, as the header", len(fields))
        question_id, question, candidate_id, candidate, label = (fields[p] for p in places)
        label = _label(path, number, label)
        yield Row(number, question, candidate, label, question_id, candidate_id)


def _trecqa(path: str, lines: Sequence[str]) -> Iterator[Row]:
    reader = csv.reader(lines, strict=True)
    try:
        header = next(reader)
        for fields in reader:
            if len(fields) != len(header) or len(fields) < len(TRECQA):
                raise _columns(path, reader.line_num, "qtext,label,atext", len(fields))
            question, label, candidate = fields[:3]
            label = _label(path, reader.line_num, label)
            yield Row(reader.line_num, question, candidate, label)
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: no CSV ({error}).") from None


def _plain(path: str, lines: Sequence[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        fields = line.split("\t")
        if len(fields) != 3:
            raise _columns(path, number, "question, tab, candidate, tab, label", len(fields))
        yield Row(number, fields[0], fields[1], _label(path, number, fields[2]))


def _columns(path: str, number: int, expected: str, received: int) -> UserError:
    return UserError(f"{path}, line {number}: expected {expected}. Received: {received} columns.")


def _label(path: str, number: int, text: str) -> int:
    if text.strip() not in ("0", "1"):
        raise UserError(
            f"{path}, line {number}: a label is 0 (wrong) or 1 (right). Received: {text!r}."
        )
    return int(text)
