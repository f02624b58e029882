"""From the `data` section of a configuration to questions with their candidates.

A file is WikiQA's TSV, TREC-QA's CSV, or question, tab, candidate, tab, label on each line.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from keras_attention.applications.answer_selection import facts
from keras_attention.applications.answer_selection.config import SPLITS, DataConfig
from keras_attention.applications.answer_selection.questions import (
    Candidate,
    Question,
    QuestionSet,
)
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import read_lines

FILES = {"wikiqa": "WikiQA-{split}.tsv", "trecqa": "{split}.csv"}
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


def has_split(data: DataConfig, split: str) -> bool:
    """Return whether the configuration names data for `split`."""
    if getattr(data, split) or data.dataset == "facts":
        return True
    return data.dataset is not None and _known_file(data, split).is_file()


def load_questions(data: DataConfig, split: str) -> QuestionSet:
    """Return the questions of a split.

    A file that the configuration names for the split goes before that of a known data set.

    Args:
        data: the `data` section.
        split: `"train"`, `"dev"` or `"test"`.

    Raises:
        UserError: where there is no such split, or its file is missing, empty, no UTF-8 text, or
            has a line that is not as it should be.
    """
    if split not in SPLITS:
        raise UserError(f"`split` must be one of {list(SPLITS)}. Received: {split!r}.")
    path = getattr(data, split)
    if not path and data.dataset == "facts":
        return QuestionSet(f"facts ({split})", facts.generate(split))
    if not path and not data.dataset:
        raise UserError(f"there is no {split} data: give data.{split}.")
    return read_questions(path or _known_file(data, split), data.on_empty)


def read_questions(path: Path | str, on_empty: str = "error") -> QuestionSet:
    """Return the questions of a file; see `read_rows` for its forms.

    Without ids in the file, lines that have the same question's text belong together.

    Args:
        path: the file.
        on_empty: `"error"` or `"skip"`, for questions and candidates without words.

    Raises:
        UserError: naming file and line, where a line is not as it should be, an id has two
            questions or comes twice, or nothing is left.
    """
    grouped: dict[str, list[Row]] = {}
    empty, emptied = 0, set()
    for row in read_rows(str(path)):
        name = row.question if row.question_id is None else row.question_id
        if not row.question.strip() or not row.candidate.strip():
            if on_empty == "error":
                raise UserError(
                    f"{path}, line {row.line}: an empty question or candidate; correct the file, "
                    "or set data.on_empty to skip."
                )
            empty += 1
            emptied.add(name)
            continue
        grouped.setdefault(name, []).append(row)
    if not grouped:
        raise UserError(f"{path}: no question with a candidate is left.")
    questions = [_question(path, number, rows) for number, rows in enumerate(grouped.values(), 1)]
    return QuestionSet(str(path), questions, empty, len(emptied - set(grouped)))


def _question(path: Path | str, number: int, rows: list[Row]) -> Question:
    name = rows[0].question_id or str(number)
    candidates, seen = [], {}
    for place, row in enumerate(rows):
        if row.question != rows[0].question:
            raise UserError(
                f"{path}, line {row.line}: question {name} has another text than in line "
                f"{rows[0].line}; questions of different texts need different ids."
            )
        label = row.candidate_id or f"{name}-{place}"
        if label in seen:
            raise UserError(
                f"{path}, line {row.line}: candidate {label} of question {name} is already in "
                f"line {seen[label]}; ids must differ within a question."
            )
        seen[label] = row.line
        candidates.append(Candidate(label, row.candidate, row.label))
    return Question(name, rows[0].question, candidates)


def _known_file(data: DataConfig, split: str) -> Path:
    plain = Path(data.folder) / FILES[data.dataset].format(split=split)
    packed = plain.with_name(f"{plain.name}.gz")
    return packed if packed.is_file() else plain


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
