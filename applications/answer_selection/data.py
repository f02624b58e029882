"""Questions with their candidate answers: at hand, in files, and those that the package makes."""

import dataclasses
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_attention.paths import input_path

from ..base.preprocessor import Splits, as_texts, weights_of
from ..errors import UserError, check_choice, counted, shown
from ..store.bad_lines import BadLine, checked
from ..store.files import lines_of, records
from .config import SPLITS, DataConfig

FILES = {"wikiqa": "WikiQA-{split}.tsv", "trecqa": "{split}.csv"}
WIKIQA = ("QuestionID", "Question", "SentenceID", "Sentence", "Label")
TRECQA = "qtext,label,atext"


@dataclass(frozen=True)
class Candidate:
    """A possible answer.

    Args:
        id: its name within the question.
        text: the answer.
        label: 1 for a right one, 0 for a wrong one.
    """

    id: str
    text: str
    label: int


@dataclass(frozen=True)
class Question:
    """A question and its candidates.

    Args:
        id: its name within the set.
        text: the question.
        candidates: its candidates, in the order of the file.
        weight: how much the training counts it.

    Example:

    ```python
    from keras_attention.applications.answer_selection import Candidate, Question

    candidates = [Candidate("a", "it is a dog .", 1), Candidate("b", "the sky is blue .", 0)]
    question = Question("q1", "who is it ?", candidates)
    print([candidate.text for candidate in question.right])
    ```
    """

    id: str
    text: str
    candidates: Sequence[Candidate]
    weight: float = 1.0

    @property
    def right(self) -> list[Candidate]:
        return [candidate for candidate in self.candidates if candidate.label]

    @property
    def wrong(self) -> list[Candidate]:
        return [candidate for candidate in self.candidates if not candidate.label]


@dataclass(frozen=True)
class QuestionSet(Splits):
    """The questions of a split.

    Args:
        name: where they come from.
        questions: those that have a candidate.
        empty: questions and candidates left out because they have no words.
        without_candidates: questions left out because no candidate of theirs has words.

    Example:

    ```python
    from pathlib import Path

    from keras_attention.applications.answer_selection import read_questions

    Path("lines.tsv").write_text("who is it ?\\ta dog\\t1\\nwho is it ?\\tthe sky\\t0\\n")
    questions = read_questions("lines.tsv")
    print(len(questions), questions.judgements)  # 1 {'1': {'1-0': 1, '1-1': 0}}
    ```
    """

    name: str
    questions: Sequence[Question]
    empty: int = 0
    without_candidates: int = 0
    columns, noun = ("questions",), "questions"

    @property
    def judgements(self) -> dict[str, dict[str, int]]:
        """The labels by the ids of question and candidate, as the metrics want them.

        Raises:
            ValueError: where two questions, or two candidates of one, have the same id.
        """
        found = {q.id: {each.id: each.label for each in q.candidates} for q in self.questions}
        count = sum(len(question.candidates) for question in self.questions)
        if len(found) < len(self) or sum(map(len, found.values())) < count:
            raise ValueError(
                f"{self.name}: questions, and the candidates of a question, should have different "
                "ids. Received: an id twice"
            )
        return found

    @property
    def texts(self) -> list[str]:
        """Every question and candidate, in order."""
        return [
            text
            for question in self.questions
            for text in (question.text, *(each.text for each in question.candidates))
        ]

    def scored(self, scores: Iterable[Sequence[float]]) -> dict[str, dict[str, float]]:
        """Return scores by the ids of question and candidate, as the metrics want them."""
        return {
            question.id: {
                each.id: float(score)
                for each, score in zip(question.candidates, values, strict=True)
            }
            for question, values in zip(self.questions, scores, strict=True)
        }

    def check(self, judged: bool = False) -> "QuestionSet":
        """Return the set, if something can be learned from it, or judged by it.

        Raises:
            UserError: where no candidate is right, or none is wrong that a ranking could put last.
        """
        right = [question for question in self.questions if question.right]
        if not right:
            raise UserError(f"{self.name}: no question has a right candidate (label 1).")
        if judged and not any(question.wrong for question in right):
            raise UserError(
                f"{self.name}: no question has both a right and a wrong candidate; without them, "
                "no ranking is better than another."
            )
        if sum(bool(each.candidates) for each in self.questions) == 1 and not right[0].wrong:
            raise UserError(f"{self.name}: there is no wrong candidate (label 0) to learn from.")
        return self

    @property
    def report(self) -> str:
        """How many there are, and what was left out."""
        candidates = sum(len(question.candidates) for question in self.questions)
        counts = {
            "questions have no right one": sum(not each.right for each in self.questions),
            "have right ones only": sum(not each.wrong for each in self.questions),
            "empty texts left out": self.empty,
            "questions without a candidate left out": self.without_candidates,
        }
        return counted(
            f"{self.name}: {len(self):,} questions with {candidates:,} candidates", counts
        )


def as_questions(x: Any, y: Any = None, weights: Any = None, name: str = "x") -> QuestionSet:
    """Return questions at hand, as `fit` takes them, as a set; `name` is what messages call `x`.

    Raises:
        ValueError: where something is missing, is no text, or has no words.
    """
    if isinstance(x, QuestionSet):
        if y is None and weights is None:
            return x
        x = x.questions
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
    if y is not None and any(isinstance(row, Question) for row in rows):
        raise ValueError("A Question holds its labels. Received: others in `y`")
    if y is not None:
        pairs = zip(rows, y, strict=True)
        rows = [(*row, labels) if hasattr(row, "__len__") else row for row, labels in pairs]
    questions = [
        _at_hand(row, f"{name}[{place}]", str(place + 1)) for place, row in enumerate(rows)
    ]
    if weights is not None:
        pairs = zip(questions, weights, strict=True)
        questions = [dataclasses.replace(each, weight=weight) for each, weight in pairs]
    return QuestionSet("the questions given", questions)


def _at_hand(row: Any, place: str, number: str) -> Question:
    if isinstance(row, Question):
        return row
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
    candidates = [
        Candidate(f"{number}-{index}", answer, int(label))
        for index, (answer, label) in enumerate(zip(answers, labels, strict=True))
    ]
    return Question(number, text, candidates)


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
    check_choice("`split`", split, SPLITS)
    path = getattr(data, split)
    if not path and data.dataset == "facts":
        return QuestionSet(f"facts ({split})", make_facts(split))
    if not path and not data.dataset:
        raise UserError(f"there is no {split} data: give data.{split}.")
    return read_questions(path or _known_file(data, split), data.on_empty)


def _known_file(data: DataConfig, split: str) -> Path:
    plain = input_path(data.folder) / FILES[data.dataset].format(split=split)
    packed = plain.with_name(f"{plain.name}.gz")
    return packed if packed.is_file() else plain


def read_questions(path: Path | str, on_empty: str = "error") -> QuestionSet:
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
    """
    grouped: dict[str, list[_Row]] = {}
    empty, emptied = 0, set()

    def check(row):
        is_empty = not (row.question.strip() and row.candidate.strip())
        if is_empty and on_empty == "error":
            texts = f"{shown(row.question)} and {shown(row.candidate)}"
            raise BadLine(
                f"{path}, line {row.line}",
                f"an empty question or candidate. Received: {texts}",
                "correct the file, or set data.on_empty to skip",
            )
        return row, is_empty

    for row, is_empty in checked(_rows(str(path)), check):
        name = row.question if row.question_id is None else row.question_id
        if not is_empty:
            grouped.setdefault(name, []).append(row)
            continue
        empty += 1
        emptied.add(name)
    if not grouped:
        raise UserError(f"{path}: no question with a candidate is left.")
    questions = [_question(path, number, rows) for number, rows in enumerate(grouped.values(), 1)]
    return QuestionSet(str(path), questions, empty, len(emptied - set(grouped)))


class _Row(NamedTuple):
    """A line of a file: a question and one candidate. Ids are None where the form has none."""

    line: int
    question_id: str | None
    question: str
    candidate_id: str | None
    candidate: str
    label: str


def _rows(path: str) -> Iterator[_Row]:
    lines = list(lines_of(path))
    rows = records(path, lines, quoted=lines[0].startswith(TRECQA))
    columns, places = 3, (None, 0, None, 1, 2)
    expected = "question, tab, candidate, tab, label"
    if lines[0].split("\t")[0] == WIKIQA[0]:
        _, header = next(rows)
        missing = [name for name in WIKIQA if name not in header]
        if missing:
            raise UserError(
                f"{path}, line 1: WikiQA's header lacks {', '.join(missing)}. "
                f"Received: {shown(', '.join(header))}."
            )
        columns, places = len(header), [header.index(name) for name in WIKIQA]
        expected = f"{columns} columns, as the header"
    elif lines[0].startswith(TRECQA):
        columns, places, expected = len(next(rows)[1]), (None, 0, None, 2, 1), TRECQA

    def row_of(numbered):
        number, fields = numbered
        where = f"{path}, line {number}"
        if len(fields) != columns:
            raise BadLine(where, f"expected {expected}. Received: {len(fields)} columns")
        row = _Row(number, *(None if place is None else fields[place] for place in places))
        if row.label.strip() not in ("0", "1"):
            problem = f"a label is 0 (wrong) or 1 (right). Received: {shown(row.label)}"
            raise BadLine(where, problem)
        return row

    yield from checked(rows, row_of)


def _question(path: Path | str, number: int, rows: list[_Row]) -> Question:
    name = rows[0].question_id or str(number)
    candidates, seen = [], {}
    for place, row in enumerate(rows):
        if row.question != rows[0].question:
            raise UserError(
                f"{path}, line {row.line}: question {name} has another text than in line "
                f"{rows[0].line}; questions of different texts need different ids. "
                f"Received: {shown(row.question)} and {shown(rows[0].question)}."
            )
        label = row.candidate_id or f"{name}-{place}"
        if label in seen:
            raise UserError(
                f"{path}, line {row.line}: candidate {label} of question {name} is already in "
                f"line {seen[label]}; ids must differ within a question."
            )
        seen[label] = row.line
        candidates.append(Candidate(label, row.candidate, int(row.label)))
    return Question(name, rows[0].question, candidates)


# ---- Facts: a data set that the package makes.

SIZES = {"train": 400, "dev": 60, "test": 60}
SEEDS = {"train": 11, "dev": 12, "test": 13}

FIRST = ("Mara", "Ilja", "Teun", "Aiko", "Rosa", "Emil", "Nils", "Petra", "Omar", "Lena", "Hugo")
LAST = ("Vel", "Horn", "Castell", "Brandt", "Okafor", "Lind", "Moreau", "Sato", "Novak", "Keller")
PLACES = ("Oslo", "Lima", "Kyoto", "Porto", "Accra", "Riga", "Quito", "Graz", "Turin", "Hanoi")
THINGS = ("clocks", "bridges", "violins", "maps", "kites", "ovens", "sails", "lamps", "carpets")
FRIENDS = ("Ana", "Boris", "Clara", "Dimitri", "Elsa", "Farid", "Greta", "Hans", "Ines", "Jonas")

# For each relation: ways to ask for it, and ways to say it.
RELATIONS = (
    (
        ("where was {name} born ?", "what is the birthplace of {name} ?"),
        ("{name} was born in {place} .", "The birthplace of {name} is {place} ."),
    ),
    (
        ("when did {name} die ?", "in what year was the death of {name} ?"),
        ("{name} died in {year} .", "The death of {name} was in {year} ."),
    ),
    (
        ("what did {name} make ?", "what was produced by {name} ?"),
        ("{name} made {thing} of wood .", "Many {thing} were produced by {name} ."),
    ),
    (
        ("who married {name} ?", "who was the spouse of {name} ?"),
        ("{name} married {friend} in spring .", "The spouse of {name} was {friend} ."),
    ),
    (
        ("where did {name} study ?", "which school taught {name} ?"),
        ("{name} studied for years in {place} .", "A school in {place} taught {name} ."),
    ),
)


def make_facts(split: str) -> list[Question]:
    """Return the questions of a split of `facts`, the same ones at every call.

    Each question asks one relation of a person ("where was Mara Vel born ?"). Its candidates are
    sentences about that person, one a relation, so that the words of the question but its relation
    are in all of them; only the sentence that holds the asked relation is right.
    """
    draw = random.Random(SEEDS[split])
    return [_fact(draw, f"F{index}") for index in range(SIZES[split])]


def _fact(draw: random.Random, number: str) -> Question:
    name = f"{draw.choice(FIRST)} {draw.choice(LAST)}"
    asked = draw.randrange(len(RELATIONS))
    relations = list(range(len(RELATIONS)))
    draw.shuffle(relations)
    candidates = []
    for place, relation in enumerate(relations):
        form = draw.choice(RELATIONS[relation][1])
        words = {"place": PLACES, "year": range(1700, 1950), "thing": THINGS, "friend": FRIENDS}
        words = {key: draw.choice(some) for key, some in words.items()}
        sentence = form.format(name=name, **words)
        candidates.append(Candidate(f"{number}-{place}", sentence, int(relation == asked)))
    return Question(number, draw.choice(RELATIONS[asked][0]).format(name=name), candidates)
