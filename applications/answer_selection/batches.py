"""Batches of right candidates, each with wrong ones that are drawn anew in every epoch."""

import dataclasses
import math

import numpy as np

from ..data.corpus import Corpus
from ..data.encoded import Encoded
from ..text import BucketedBatches
from .data import texts_of
from .preprocessor import AnswerPreprocessor, padded

BATCHES_SORTED_TOGETHER = 8
"""Rows of so many batches are sorted by length, so that little is padding."""


def encode(corpus: Corpus, preprocessor: AnswerPreprocessor) -> Encoded:
    """Return the ids of a corpus of questions; `"labels"` are a value of each candidate."""
    ids, coverage = preprocessor.encode(texts_of(corpus))
    counts = np.array([len(candidates) for candidates in corpus["candidates"]], "int64")
    asked = np.cumsum(counts + 1) - counts - 1
    labels = [label for some in corpus["labels"] for label in some]
    weights = None if corpus.weights is None else np.array(corpus.weights, "float32")
    return Encoded(
        {
            "question": ids.take(asked),
            "candidates": ids.take(np.delete(np.arange(len(ids)), asked)),
        },
        dataclasses.replace(corpus.report, **vars(coverage), notes=_notes(corpus)),
        {"labels": np.array(labels, "int64")},
        weights,
        groups={"candidates": counts, "labels": counts},
    )


def _notes(corpus: Corpus) -> tuple[str, ...]:
    """Return sentences about the candidates of a corpus."""
    counts = {
        "no right candidate": sum(not any(labels) for labels in corpus["labels"]),
        "right candidates only": sum(map(all, corpus["labels"])),
    }
    found = [
        f"{count:,} of them {'has' if count == 1 else 'have'} {what}."
        for what, count in counts.items()
        if count
    ]
    return f"They have {sum(map(len, corpus['labels'])):,} candidates.", *found


class TrainingBatches:
    """Batches `({"question": (B, S), "candidates": (B, N, T)}, labels (B, N))`, or with weights.

    A row is a question, one of its right candidates first, and `negatives` wrong ones: drawn among
    its own, and where it has too few, among the candidates of other questions. Which they are, and
    in which batch a row is, is a pure function of `(seed, epoch)`: training goes on from any step
    as if it had never stopped. Without `shuffle`, all epochs are the first, rows in their order.
    """

    def __init__(
        self,
        encoded: Encoded,
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
        labels, counts = encoded.values["labels"], encoded.groups["labels"]
        self._lengths = encoded["candidates"].lengths
        self._asked = np.repeat(np.arange(len(counts)), counts)  # the question of each candidate
        self._right = np.flatnonzero(labels).tolist()
        self.rows = len(self._right)
        numbers = encoded.entries("labels")
        self._wrong = [some[labels[some] == 0].tolist() for some in numbers]
        self._is_alone = np.count_nonzero(counts) == 1
        if not self._right or self._is_alone and not any(self._wrong):
            raise ValueError(
                "Questions to learn from, and each part of a `validation_split`, need a right "
                "candidate, and a wrong one or a second question. Received: "
                f"{len(counts)} questions with {self.rows} right and "
                f"{len(labels) - self.rows} wrong candidates"
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
        rows = np.array(kept[1][index])
        asked = self._asked[rows[:, 0]]
        texts = padded(self.encoded["candidates"].take(rows.ravel()))
        candidates = texts.reshape(*rows.shape, -1)
        labels = np.zeros(candidates.shape[:2], "float32")
        labels[:, 0] = 1.0
        question = padded(self.encoded["question"].take(asked))
        inputs = {"question": question, "candidates": candidates}
        if self.encoded.weights is None:
            return inputs, labels
        return inputs, labels, self.encoded.weights[asked]

    # The rows follow from the length and `batch`, not from the buckets.
    stream, to_dataset = BucketedBatches.stream, BucketedBatches.to_dataset

    def _draw(self, epoch: int) -> list[list[list[int]]]:
        """Return the rows of each batch: the numbers of candidates, the right one first."""
        random = np.random.default_rng([self.seed, epoch])
        rows = []
        for right in self._right:
            question = self._asked[right]
            own = self._wrong[question]
            drawn = random.permutation(own)[: self.negatives].tolist() if own else []
            row = [right, *drawn]
            while len(row) <= self.negatives:
                other = int(random.integers(len(self._asked)))
                # A question that is alone has its own wrong ones again.
                if other in own if self._is_alone else self._asked[other] != question:
                    row.append(other)
            rows.append(row)

        def longest(row):
            return self._lengths[row].max()

        order = random.permutation(len(rows)) if self.shuffle else range(len(rows))
        chunk, batches = self.batch_size * BATCHES_SORTED_TOGETHER, []
        for first in range(0, len(rows), chunk):
            part = sorted((rows[i] for i in order[first : first + chunk]), key=longest)
            starts = range(0, len(part), self.batch_size)
            batches += [part[start : start + self.batch_size] for start in starts]
        return [batches[i] for i in random.permutation(len(batches))] if self.shuffle else batches
