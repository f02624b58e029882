"""A trained run in use: candidates to scores, ranks and weights of words."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from keras_attention.applications.answer_selection.batches import encode
from keras_attention.applications.answer_selection.questions import (
    Candidate,
    Question,
    QuestionSet,
)
from keras_attention.applications.answer_selection.run import AnswerSelectionRun, load_run
from keras_attention.applications.answer_selection.scoring import score_questions, scorer
from keras_attention.applications.common.errors import UserError


@dataclass(frozen=True)
class Answer:
    """A candidate as the model sees it for a question.

    Args:
        text: the candidate.
        score: its score: a cosine, or log-odds where the run was trained with the log loss.
        tokens: its words, as far as they are read.
        weights: how much attention each of them got; None where the model's attention gives no
            weights of words.
        position: its place among the candidates that were given, from 0.
    """

    text: str
    score: float
    tokens: list[str]
    weights: np.ndarray | None
    position: int


class Ranker:
    """Ranks candidate answers.

    Args:
        run: a loaded run.

    Example:

    ```
    ranker = Ranker.load("runs/wikiqa")
    best = ranker.rank("when was it opened ?", ["It opened in 1931 .", "It is in Oslo ."])[0]
    print(best.score, best.text)
    ```
    """

    def __init__(self, run: AnswerSelectionRun):
        self.run = run
        self._score = scorer(run.model)

    @classmethod
    def load(cls, path: Path | str) -> "Ranker":
        """Return the ranker of a run folder.

        Raises:
            UserError: if there is no such run, or it has no weights yet.
        """
        return cls(load_run(path))

    def rank(self, question: str, candidates: Sequence[str]) -> list[Answer]:
        """Return the candidates, best first; equal ones in the order given.

        Raises:
            UserError: where there is no candidate, or a text has no words.
        """
        if isinstance(candidates, str):
            raise UserError("candidates are a list of texts. Received: one text; put it in a list.")
        if not candidates:
            raise UserError("there is no candidate to rank.")
        for name, text in [
            ("the question", question),
            *((f"candidate {place}", text) for place, text in enumerate(candidates, 1)),
        ]:
            if not self.run.words.tokens(text):
                raise UserError(f"{name} has no words.")
        asked = Question(
            "1", question, [Candidate(str(i), text, 0) for i, text in enumerate(candidates)]
        )
        encoded = encode(QuestionSet("the question", [asked]), self.run.words)
        scores, weights = score_questions(self._score, encoded)
        has_weights = self.run.model.has_weights
        answers = [
            Answer(
                text=text,
                score=float(scores[0][place]),
                tokens=self.run.words.tokens(text),
                weights=weights[0][place] if has_weights else None,
                position=place,
            )
            for place, text in enumerate(candidates)
        ]
        return sorted(answers, key=lambda answer: (-answer.score, answer.position))
