"""From the `data` section of a configuration to questions with their candidates."""

from pathlib import Path

from keras_attention.applications.answer_selection import facts
from keras_attention.applications.answer_selection.config import SPLITS, DataConfig
from keras_attention.applications.answer_selection.questions import (
    Candidate,
    Question,
    QuestionSet,
)
from keras_attention.applications.answer_selection.readers import Row, read_rows
from keras_attention.applications.common.errors import UserError

FILES = {"wikiqa": "WikiQA-{split}.tsv", "trecqa": "{split}.csv"}


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
    """Return the questions of a file; see `readers.read_rows` for its forms.

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
