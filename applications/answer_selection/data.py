"""Questions with their candidate answers: at hand, in files, and those that the package makes.

A corpus of questions has the columns `question`, a text; `candidates`, the texts of its possible
answers; `labels`, for each of them 1 (right) or 0 (wrong); `id`, the question's name within the
set; and `candidate_ids`, their names within the question.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..base.preprocessor import as_texts, weights_of
from ..data.corpus import Corpus, Places, Report, corpus_at_hand
from ..data.made import facts
from ..data.readers import Row, rows_of
from ..errors import UserError, check_choice, shown
from ..schema.keys import SPLITS
from ..store.bad_lines import BadLine, checked
from ..store.files import lines_of
from .config import DataConfig

WIKIQA = {
    "id": "QuestionID",
    "question": "Question",
    "candidate_id": "SentenceID",
    "candidate": "Sentence",
    "label": "Label",
}
TRECQA = {"question": "qtext", "label": "label", "candidate": "atext"}
PLAIN = {name: name for name in ("question", "candidate", "label")}
"""The columns of each form of file, by what they hold."""
EMPTY = "lines with an empty text"
ALONE = "questions without a candidate"
"""Why a file has more than is read."""


def texts_of(corpus: Corpus) -> list[str]:
    """Return every question and candidate, in order."""
    pairs = zip(corpus["question"], corpus["candidates"], strict=True)
    return [text for question, candidates in pairs for text in (question, *candidates)]


def judgements_of(corpus: Corpus) -> dict[str, dict[str, int]]:
    """Return the labels by the ids of question and candidate, as the metrics want them.

    Raises:
        ValueError: where two questions, or two candidates of one, have the same id.
    """
    found = by_ids(corpus, corpus["labels"])
    count = sum(map(len, corpus["labels"]))
    if len(found) < len(corpus) or sum(map(len, found.values())) < count:
        raise ValueError(
            f"{corpus.name}: questions, and the candidates of a question, should have different "
            "ids. Received: an id twice"
        )
    return found


def by_ids(corpus: Corpus, values: Iterable[Sequence[Any]]) -> dict[str, dict[str, Any]]:
    """Return values of candidates, such as scores, by the ids of question and candidate."""
    rows = zip(corpus["id"], corpus["candidate_ids"], values, strict=True)
    return {question: dict(zip(ids, found, strict=True)) for question, ids, found in rows}


def check(corpus: Corpus, judged: bool = False) -> Corpus:
    """Return a corpus, if something can be learned from it, or judged by it.

    Raises:
        UserError: where no candidate is right, or none is wrong that a ranking could put last.
    """
    right = [labels for labels in corpus["labels"] if any(labels)]
    if not right:
        raise UserError(f"{corpus.name}: no question has a right candidate (label 1).")
    if judged and all(map(all, right)):
        raise UserError(
            f"{corpus.name}: no question has both a right and a wrong candidate; without them, "
            "no ranking is better than another."
        )
    if sum(map(bool, corpus["labels"])) == 1 and all(right[0]):
        raise UserError(f"{corpus.name}: there is no wrong candidate (label 0) to learn from.")
    return corpus


def as_questions(x: Any, y: Any = None, weights: Any = None, name: str = "x") -> Corpus:
    """Return questions at hand, as `fit` takes them, as a corpus; messages call `x` by `name`.

    Raises:
        ValueError: where something is missing, is no text, or has no words.
    """
    if isinstance(x, Corpus):
        return x
    if isinstance(x, (str, bytes)) or not hasattr(x, "__iter__"):
        raise ValueError(
            f"`{name}` should be a sequence of (question, candidates, labels). "
            f"Received: {name}={shown(x)}"
        )
    rows = list(x)
    if not rows:
        raise ValueError(f"`{name}` should have at least one question. Received: none")
    if y is not None and len(y) != len(rows):
        raise ValueError(
            f"`y` should have an entry for each question. "
            f"Received: {len(y)} for {len(rows)} questions"
        )
    weights = weights_of(weights, **{name: rows})
    if y is not None:
        pairs = zip(rows, y, strict=True)
        rows = [(*row, labels) if hasattr(row, "__len__") else row for row, labels in pairs]
    found = [_at_hand(row, f"{name}[{place}]") for place, row in enumerate(rows)]
    questions, candidates, labels = zip(*found, strict=True)
    columns = questions_of(questions, candidates, labels)
    return corpus_at_hand(columns, weights, "the questions given", "questions", name)


def questions_of(
    questions: Sequence[str], candidates: Sequence[Sequence[str]], labels: Sequence[Sequence[int]]
) -> dict[str, list[Any]]:
    """Return the columns of questions that have numbers for ids."""
    numbers = range(1, len(questions) + 1)
    return {
        "question": list(questions),
        "candidates": list(candidates),
        "labels": list(labels),
        "id": [str(number) for number in numbers],
        "candidate_ids": [
            [f"{number}-{place}" for place in range(len(some))]
            for number, some in zip(numbers, candidates, strict=True)
        ],
    }


def _at_hand(row: Any, place: str) -> tuple[str, list[str], list[int]]:
    is_row = hasattr(row, "__len__") and not isinstance(row, (str, bytes, Mapping))
    if not is_row or len(row) != 3:
        raise ValueError(
            "A question should be (question, candidates, labels): a string, strings, and for each "
            f"of them 1 (right) or 0 (wrong). Received: {place}={shown(row)}"
        )
    (text,) = as_texts([row[0]], f"question of {place}")
    answers = as_texts(row[1], f"candidates of {place}")
    labels = list(row[2]) if hasattr(row[2], "__iter__") else [row[2]]
    are_labels = all(np.ndim(label) == 0 and label in (0, 1) for label in labels)
    if len(labels) != len(answers) or not labels or not are_labels:
        raise ValueError(
            "Each candidate should have a label, 1 (right) or 0 (wrong), and there should be at "
            f"least one. Received: {len(answers)} candidates and labels {shown(labels)} in {place}"
        )
    for each in (text, *answers):
        if not each.strip():
            raise ValueError(
                f"A question or candidate should have words. Received: {shown(each)} in {place}"
            )
    return text, list(answers), list(map(int, labels))


def load_corpus(data: DataConfig, split: str) -> Corpus:
    """Return the questions of a split.

    A file that the configuration names for the split goes before that of a known data set.

    Args:
        data: the `data` section.
        split: `"train"`, `"dev"` or `"test"`.

    Raises:
        UserError: where there is no such split, or its file is missing, empty, no UTF-8 text, or
            has a line that is not as it should be.
    """
    check_choice("`split`", split, SPLITS)
    path = getattr(data, split)
    if not path and data.dataset == "facts":
        return _facts(split)
    if not path and not data.dataset:
        raise UserError(f"There is no {split} data: give data.{split}.")
    return read_corpus(path or data.known_file(split), data.on_empty)


def read_corpus(path: Path | str, on_empty: str = "error") -> Corpus:
    """Return the questions of a file, whose first line says which form it has.

    - WikiQA's: a header with `QuestionID`, `Question`, `SentenceID`, `Sentence` and `Label` among
      its columns, between tabs;
    - TREC-QA's: the header `qtext,label,atext`, quoted as CSV is;
    - else question, tab, candidate, tab, label on each line, without a header.

    Without ids in the file, lines that have the same question's text belong together.

    Args:
        path: the file, plain or `.gz`.
        on_empty: `"error"` or `"skip"`, for questions and candidates without words.

    Raises:
        UserError: naming file and line, where a line has other columns, a label is not 0 or 1, an
            id has two questions or comes twice, or nothing is left.

    Example:

    ```python
    from pathlib import Path

    from keras_attention.applications.answer_selection import read_corpus

    Path("lines.tsv").write_text("who is it ?\\ta dog\\t1\\nwho is it ?\\tthe sky\\t0\\n")
    corpus = read_corpus("lines.tsv")
    print(corpus["candidates"], corpus["labels"])  # [['a dog', 'the sky']] [[1, 0]]
    ```
    """
    columns, rows = _rows(path)
    names = ("question", "candidates", "labels", "id", "candidate_ids")
    found: dict[str, list[Any]] = {name: [] for name in names}
    lines: list[int] = []
    numbers: dict[str, int] = {}
    seen: list[dict[str, int]] = []
    emptied = []

    def add(row: Row) -> None:
        text, answer, label = (row.values[columns[name]] for name in PLAIN)
        key = row.values[columns["id"]] if "id" in columns else text
        if label.strip() not in ("0", "1"):
            problem = f"a label is 0 (wrong) or 1 (right). Received: {shown(label)}"
            raise BadLine(row.place, problem)
        if not (text.strip() and answer.strip()):
            if on_empty == "error":
                texts = f"{shown(text)} and {shown(answer)}"
                problem = f"an empty question or candidate. Received: {texts}"
                raise BadLine(row.place, problem, "correct the file, or set data.on_empty to skip")
            emptied.append(key)
            return
        number = numbers.setdefault(key, len(lines))
        if number == len(lines):
            new = (text, [], [], (key if "id" in columns else "") or str(number + 1), [])
            for name, value in zip(names, new, strict=True):
                found[name].append(value)
            lines.append(row.place.number)
            seen.append({})
        _, candidates, labels, name, ids = (found[each][number] for each in names)
        if text != found["question"][number]:
            raise BadLine(
                row.place,
                f"question {name} has another text than in line {lines[number]}; questions of "
                f"different texts need different ids. Received: {shown(text)} and "
                f"{shown(found['question'][number])}",
            )
        own = row.values[columns["candidate_id"]] if "candidate_id" in columns else ""
        own = own or f"{name}-{len(ids)}"
        if own in seen[number]:
            raise BadLine(
                row.place,
                f"candidate {own} of question {name} is already in line {seen[number][own]}; ids "
                "must differ within a question",
            )
        seen[number][own] = row.place.number
        candidates.append(answer)
        labels.append(int(label))
        ids.append(own)

    for _ in checked(rows, add):
        pass
    if not lines:
        raise UserError(f"{path}: no question with a candidate is left.")
    left_out = {EMPTY: len(emptied), ALONE: len(set(emptied) - set(numbers))}
    report = Report(str(path), len(lines), "questions", left_out)
    return Corpus(found, report, Places(str(path), lines))


def _rows(path: Path | str) -> tuple[Mapping[str, str], Iterator[Row]]:
    """Return the columns of a file, by what they hold, and its rows."""
    first = next(lines_of(path))
    if first.split("\t")[0] == WIKIQA["id"]:
        return WIKIQA, rows_of(path, list(WIKIQA.values()), kind=".tsv")
    if first.startswith(",".join(TRECQA.values())):
        return TRECQA, rows_of(path, list(TRECQA.values()), kind=".csv")
    return PLAIN, rows_of(path, kind=".tsv", header=list(PLAIN))


def _facts(split: str) -> Corpus:
    columns = questions_of(*zip(*facts.generate(split), strict=True))
    name = f"facts ({split})"
    places = [f"{name}, question {number}" for number in columns["id"]]
    return Corpus(columns, Report(name, len(places), "questions"), places)
