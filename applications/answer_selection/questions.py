"""Questions with their candidate answers, and what was found wrong with them."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.preprocessor import as_texts


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
class QuestionSet:
    """The questions of a split.

    Args:
        name: where they come from.
        questions: those that have a candidate.
        empty: questions and candidates left out because they have no words.
        without_candidates: questions left out because no candidate of theirs has words.
    """

    name: str
    questions: Sequence[Question]
    empty: int = 0
    without_candidates: int = 0

    def __len__(self) -> int:
        return len(self.questions)

    @property
    def judgements(self) -> dict[str, dict[str, int]]:
        """The labels by the ids of question and candidate, as the metrics want them."""
        return {
            question.id: {candidate.id: candidate.label for candidate in question.candidates}
            for question in self.questions
        }

    @property
    def texts(self) -> list[str]:
        """Every question and candidate, in order."""
        return [
            text
            for question in self.questions
            for text in (question.text, *(candidate.text for candidate in question.candidates))
        ]

    def scored(self, scores: Iterable[Sequence[float]]) -> dict[str, dict[str, float]]:
        """Return scores by the ids of question and candidate, as the metrics want them."""
        return {
            question.id: {
                candidate.id: float(score)
                for candidate, score in zip(question.candidates, values, strict=True)
            }
            for question, values in zip(self.questions, scores, strict=True)
        }

    def split(self, fraction: float) -> tuple["QuestionSet", "QuestionSet"]:
        """Return the first questions, and the last ones, which are `fraction` of all."""
        first = len(self) - max(1, round(fraction * len(self)))
        if first < 1:
            raise ValueError(
                f"Too few questions to hold {fraction:g} of them out. Received: {len(self)}"
            )
        parts = self.questions[:first], self.questions[first:]
        return tuple(dataclasses.replace(self, questions=part) for part in parts)

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
        if len(self) == 1 and not right[0].wrong:
            raise UserError(f"{self.name}: there is no wrong candidate (label 0) to learn from.")
        return self

    @property
    def report(self) -> str:
        """How many there are, and what was left out."""
        candidates = sum(len(question.candidates) for question in self.questions)
        none = sum(not question.right for question in self.questions)
        only = sum(not question.wrong for question in self.questions)
        parts = [f"{self.name}: {len(self):,} questions with {candidates:,} candidates"]
        if none:
            parts.append(f"{none:,} questions have no right one")
        if only:
            parts.append(f"{only:,} have right ones only")
        if self.empty:
            parts.append(f"{self.empty:,} empty texts left out")
        if self.without_candidates:
            parts.append(f"{self.without_candidates:,} questions without a candidate left out")
        return ", ".join(parts)


def as_questions(x: Any, y: Any = None, weights: Any = None, name: str = "x") -> QuestionSet:
    """Return questions that are at hand as a set.

    Args:
        x: triples `(question, [candidates], [labels])`, `Question`s, or a `QuestionSet`; pairs
            `(question, [candidates])` where `y` is given.
        y: for each question its labels, 1 for a right candidate and 0 for a wrong one.
        weights: for each question how much the training counts it.
        name: what messages call `x`.

    Raises:
        ValueError: where something is missing, is no text, or has no words.
    """
    if isinstance(x, QuestionSet):
        return x
    if isinstance(x, (str, bytes)) or not hasattr(x, "__iter__"):
        raise ValueError(
            f"`{name}` should be a sequence of (question, candidates, labels). "
            f"Received: {name}={x!r}"
        )
    rows = list(x)
    if not rows:
        raise ValueError(f"`{name}` should have at least one question. Received: none")
    for other, column in (("y", y), ("sample_weight", weights)):
        if column is not None and len(column) != len(rows):
            raise ValueError(
                f"`{other}` should have an entry for each question. "
                f"Received: {len(column)} for {len(rows)} questions"
            )
    if y is not None:
        rows = [(*row, labels) for row, labels in zip(rows, y, strict=True)]
    weights = [1.0] * len(rows) if weights is None else [float(weight) for weight in weights]
    questions = [
        _question(row, f"{name}[{place}]", str(place + 1), weight)
        for place, (row, weight) in enumerate(zip(rows, weights, strict=True))
    ]
    return QuestionSet("the questions given", questions)


def _question(row: Any, place: str, number: str, weight: float) -> Question:
    if isinstance(row, Question):
        return dataclasses.replace(row, weight=weight)
    if isinstance(row, (str, bytes)) or not hasattr(row, "__len__") or len(row) != 3:
        raise ValueError(
            "A question should be (question, candidates, labels): a string, strings, and for each "
            f"of them 1 (right) or 0 (wrong). Received: {place}={row!r}"
        )
    (text,) = as_texts([row[0]], f"question of {place}")
    candidates = as_texts(row[1], f"candidates of {place}")
    labels = [int(label) if label in (0, 1) else label for label in row[2]]
    if len(labels) != len(candidates) or not labels or not set(labels) <= {0, 1}:
        raise ValueError(
            "Each candidate should have a label, 1 (right) or 0 (wrong), and there should be at "
            f"least one. Received: {len(candidates)} candidates and labels {labels} in {place}"
        )
    for each in (text, *candidates):
        if not each.strip():
            raise ValueError(
                f"A question or candidate should have words. Received: {each!r} in {place}"
            )
    named = enumerate(zip(candidates, labels, strict=True))
    return Question(
        number,
        text,
        [Candidate(f"{number}-{index}", answer, label) for index, (answer, label) in named],
        weight,
    )
