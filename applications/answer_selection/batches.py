"""Batches of right candidates, each with wrong ones that are drawn anew in every epoch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..text import BucketedBatches
from .data import QuestionSet
from .preprocessor import AnswerPreprocessor, Coverage, padded

BATCHES_SORTED_TOGETHER = 8
"""Rows of so many batches are sorted by length, so that little is padding."""


@dataclass(frozen=True)
class EncodedQuestions:
    """A set of questions: their ids, the ids and labels of their candidates, their weights."""

    questions: Sequence[Sequence[int]]
    candidates: Sequence[Sequence[Sequence[int]]]
    labels: Sequence[Sequence[int]]
    coverage: Coverage
    weights: Sequence[float] | None = None
    """How much training counts each question; None where all count alike."""
    report: str = ""

    def part(self, rows: Sequence[int]) -> "EncodedQuestions":
        """Return the questions of some rows, without weights."""
        columns = (self.questions, self.candidates, self.labels)
        return EncodedQuestions(*([each[row] for row in rows] for each in columns), self.coverage)


def encode(questions: QuestionSet, preprocessor: AnswerPreprocessor) -> EncodedQuestions:
    """Return the ids of a set of questions."""
    rows, coverage = preprocessor.encode(questions.texts)
    ids = iter(rows)
    asked, candidates, labels = [], [], []
    for question in questions.questions:
        asked.append(next(ids))
        candidates.append([next(ids) for _ in question.candidates])
        labels.append([each.label for each in question.candidates])
    weights = [question.weight for question in questions.questions]
    weights = None if set(weights) <= {1.0} else weights
    report = f"{questions.report}; {coverage}"
    return EncodedQuestions(asked, candidates, labels, coverage, weights, report)


class TrainingBatches:
    """Batches `({"question": (B, S), "candidates": (B, N, T)}, labels (B, N))`, or with weights.

    A row is a question, one of its right candidates first, and `negatives` wrong ones: drawn among
    its own, and where it has too few, among the candidates of other questions. Which they are, and
    in which batch a row is, is a pure function of `(seed, epoch)`: training goes on from any step
    as if it had never stopped. Without `shuffle`, all epochs are the first, rows in their order.
    """

    def __init__(
        self,
        encoded: EncodedQuestions,
        batch_size: int,
        negatives: int,
        seed: int,
        shuffle: bool = True,
    ):
        self.encoded = encoded
        self.batch_size = batch_size
        self.negatives = negatives
        self.seed = seed
        self.shuffle = shuffle
        places = [range(len(labels)) for labels in encoded.labels]
        self._all = [(question, place) for question, some in enumerate(places) for place in some]
        self._right = [pair for pair in self._all if encoded.labels[pair[0]][pair[1]]]
        self.rows = len(self._right)
        self._wrong = [
            [place for place, label in enumerate(labels) if not label] for labels in encoded.labels
        ]
        self._is_alone = len({question for question, _ in self._all}) == 1
        if not self._right or self._is_alone and not any(self._wrong):
            raise ValueError(
                "Questions to learn from, and each part of a `validation_split`, need a right "
                "candidate, and a wrong one or a second question. Received: "
                f"{len(places)} questions with {self.rows} right and "
                f"{len(self._all) - self.rows} wrong candidates"
            )
        self._epoch: tuple[int, list] | None = None

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return math.ceil(self.rows / self.batch_size)

    def batch(self, epoch: int, index: int):
        """Return a batch of an epoch."""
        epoch = epoch if self.shuffle else 0
        kept = self._epoch  # one read: a prefetching thread may replace it
        if kept is None or kept[0] != epoch:
            kept = self._epoch = (epoch, self._draw(epoch))
        rows = kept[1][index]
        asked = [row[0][0] for row in rows]
        texts = padded([self.encoded.candidates[q][place] for row in rows for q, place in row])
        candidates = texts.reshape(len(rows), self.negatives + 1, -1)
        labels = np.zeros(candidates.shape[:2], "float32")
        labels[:, 0] = 1.0
        question = padded([self.encoded.questions[question] for question in asked])
        inputs = {"question": question, "candidates": candidates}
        if self.encoded.weights is None:
            return inputs, labels
        weights = [self.encoded.weights[question] for question in asked]
        return inputs, labels, np.array(weights, "float32")

    # The rows follow from the length and `batch`, not from the buckets.
    stream, to_dataset = BucketedBatches.stream, BucketedBatches.to_dataset

    def _draw(self, epoch: int) -> list[list[list[tuple[int, int]]]]:
        """Return the rows of each batch: question and place of candidates, the right one first."""
        random = np.random.default_rng([self.seed, epoch])
        rows = []
        for question, place in self._right:
            own = self._wrong[question]
            drawn = random.permutation(own)[: self.negatives].tolist() if own else []
            row = [(question, place), *((question, wrong) for wrong in drawn)]
            while len(row) <= self.negatives:
                other = self._all[random.integers(len(self._all))]
                # A question that is alone has its own wrong ones again.
                if other[1] in own if self._is_alone else other[0] != question:
                    row.append(other)
            rows.append(row)

        def longest(row):
            return max(len(self.encoded.candidates[question][place]) for question, place in row)

        order = random.permutation(len(rows)) if self.shuffle else range(len(rows))
        chunk, batches = self.batch_size * BATCHES_SORTED_TOGETHER, []
        for first in range(0, len(rows), chunk):
            part = sorted((rows[i] for i in order[first : first + chunk]), key=longest)
            starts = range(0, len(part), self.batch_size)
            batches += [part[start : start + self.batch_size] for start in starts]
        return [batches[i] for i in random.permutation(len(batches))] if self.shuffle else batches
