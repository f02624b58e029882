"""Batches of right candidates, each with wrong ones that are drawn anew in every epoch."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from keras_attention.applications.answer_selection.preprocessor import (
    AnswerPreprocessor,
    Coverage,
    padded,
)
from keras_attention.applications.answer_selection.questions import QuestionSet

if TYPE_CHECKING:
    import tensorflow as tf

BATCHES_SORTED_TOGETHER = 8
"""Rows of so many batches are sorted by length, so that little is padding."""


@dataclass(frozen=True)
class EncodedQuestions:
    """A set of questions as ids.

    Args:
        questions: ids of each question.
        candidates: for each question the ids of each candidate.
        labels: for each question the label of each candidate.
        coverage: what the vocabulary has of the text.
        weights: for each question how much the training counts it; None where all count alike.
        report: how many there are, and what the vocabulary has of them.
    """

    questions: Sequence[Sequence[int]]
    candidates: Sequence[Sequence[Sequence[int]]]
    labels: Sequence[Sequence[int]]
    coverage: Coverage
    weights: Sequence[float] | None = None
    report: str = ""

    def part(self, rows: Sequence[int]) -> "EncodedQuestions":
        """Return the questions of some rows."""
        columns = ("questions", "candidates", "labels")
        kept = {name: [getattr(self, name)[row] for row in rows] for name in columns}
        return dataclasses.replace(self, **kept, weights=None)


def encode(questions: QuestionSet, preprocessor: AnswerPreprocessor) -> EncodedQuestions:
    """Return the ids of a set of questions."""
    rows, coverage = preprocessor.encode(questions.texts)
    ids = iter(rows)
    asked, candidates, labels = [], [], []
    for question in questions.questions:
        asked.append(next(ids))
        candidates.append([next(ids) for _ in question.candidates])
        labels.append([candidate.label for candidate in question.candidates])
    weights = [question.weight for question in questions.questions]
    return EncodedQuestions(
        asked,
        candidates,
        labels,
        coverage,
        None if set(weights) <= {1.0} else weights,
        f"{questions.report}; {coverage}",
    )


class TrainingBatches:
    """Batches `({"question": (B, S), "candidates": (B, N, T)}, labels (B, N))`, or with weights.

    A row is a question, one of its right candidates first, and wrong ones: drawn among its own,
    and where it has too few, among the candidates of other questions. Which they are, and in which
    batch a row is, is a pure function of `(seed, epoch)`: training goes on from any step as if it
    had never stopped.

    Args:
        encoded: the questions.
        batch_size: rows of a batch.
        negatives: wrong candidates of a row.
        seed: the seed of all that is drawn.
        shuffle: whether each epoch draws anew; else all are the first one, rows in the order given.
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
        self._right = [
            (question, place)
            for question, labels in enumerate(encoded.labels)
            for place, label in enumerate(labels)
            if label
        ]
        self._wrong = [
            [place for place, label in enumerate(labels) if not label] for labels in encoded.labels
        ]
        self._all = [
            (question, place)
            for question, labels in enumerate(encoded.labels)
            for place in range(len(labels))
        ]
        self._epoch: tuple[int, list] | None = None

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return math.ceil(len(self._right) / self.batch_size)

    @property
    def rows(self) -> int:
        """How many right candidates there are: the rows of an epoch."""
        return len(self._right)

    def batch(self, epoch: int, index: int):
        """Return a batch of an epoch."""
        epoch = epoch if self.shuffle else 0
        kept = self._epoch  # one read: a prefetching thread may replace it
        if kept is None or kept[0] != epoch:
            kept = self._epoch = (epoch, self._draw(epoch))
        rows = kept[1][index]
        names = [name for _, candidates in rows for name in candidates]
        ids = padded([self.encoded.candidates[question][place] for question, place in names])
        candidates = ids.reshape(len(rows), self.negatives + 1, -1)
        labels = np.zeros(candidates.shape[:2], "float32")
        labels[:, 0] = 1.0
        question = padded([self.encoded.questions[question] for question, _ in rows])
        inputs = {"question": question, "candidates": candidates}
        if self.encoded.weights is None:
            return inputs, labels
        weights = [self.encoded.weights[question] for question, _ in rows]
        return inputs, labels, np.array(weights, "float32")

    def to_dataset(self, start_step: int = 0, epochs: int | None = None) -> "tf.data.Dataset":
        """Return the dataset of batches from step `start_step` of the training on.

        Args:
            start_step: the step of the whole training to begin with.
            epochs: end after so many epochs, counted from step 0; without end when not given.
        """
        import tensorflow as tf

        signature = (
            {
                "question": tf.TensorSpec([None, None], tf.int32),
                "candidates": tf.TensorSpec([None, self.negatives + 1, None], tf.int32),
            },
            tf.TensorSpec([None, self.negatives + 1], tf.float32),
        )
        if self.encoded.weights is not None:
            signature += (tf.TensorSpec([None], tf.float32),)

        def generate() -> Iterator:
            last = None if epochs is None else epochs * len(self)
            for step in itertools.count(start_step) if last is None else range(start_step, last):
                yield self.batch(*divmod(step, len(self)))

        dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
        if epochs is not None:  # or Keras warns at the end
            size = epochs * len(self) - start_step
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(size))
        return dataset.prefetch(tf.data.AUTOTUNE)

    def _draw(self, epoch: int) -> list[list[tuple[int, list[tuple[int, int]]]]]:
        """Return the rows of each batch: the question, and its candidates, the right one first."""
        random = np.random.default_rng([self.seed, epoch])
        rows = []
        for question, place in self._right:
            own = self._wrong[question]
            drawn = random.permutation(own)[: self.negatives].tolist() if own else []
            names = [(question, place), *((question, wrong) for wrong in drawn)]
            while len(names) <= self.negatives:
                other = self._all[random.integers(len(self._all))]
                if other[0] != question or len(self.encoded.questions) == 1:
                    names.append(other)
            rows.append((question, names))
        order = random.permutation(len(rows)) if self.shuffle else range(len(rows))
        chunk = self.batch_size * BATCHES_SORTED_TOGETHER
        batches = []
        for first in range(0, len(rows), chunk):
            part = sorted((rows[i] for i in order[first : first + chunk]), key=self._length)
            batches += [
                part[start : start + self.batch_size]
                for start in range(0, len(part), self.batch_size)
            ]
        return [batches[i] for i in random.permutation(len(batches))] if self.shuffle else batches

    def _length(self, row) -> int:
        return max(len(self.encoded.candidates[question][place]) for question, place in row[1])
