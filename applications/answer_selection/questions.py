"""Questions with their candidate answers, and what was found wrong with them."""

from collections.abc import Sequence
from dataclasses import dataclass


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
    """

    id: str
    text: str
    candidates: Sequence[Candidate]

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

    def __str__(self) -> str:
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
