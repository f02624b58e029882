"""Classifying texts with a trained run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np

from keras_attention.applications.classification.encoding import INPUTS, make_batches
from keras_attention.applications.classification.reading import length_of
from keras_attention.applications.classification.run import ClassificationRun, load_run
from keras_attention.applications.common.backend import compiled
from keras_attention.applications.common.errors import UserError

THRESHOLD = 0.5


@dataclass(frozen=True)
class Prediction:
    """What a model says of a text.

    Args:
        labels: the likeliest label; of many labels those with a probability of at least 0.5.
        probabilities: of each label; none for a number.
        number: where the model gives a number.
        truncated: whether the model read the first `data.max_length` tokens only.
        empty: whether a text has no words, so that the answer is what the model says of nothing.
    """

    labels: tuple[str, ...]
    probabilities: dict[str, float]
    number: float | None = None
    truncated: bool = False
    empty: bool = False


@dataclass(frozen=True)
class Weights:
    """What a model attended to in one text.

    Args:
        tokens: the written tokens of each sentence; a text read as a whole is one.
        words: the weights of the tokens, which sum to 1 in each sentence where they are those of
            attention pooling.
        sentences: the weight of each sentence; 1 for a text read as a whole.
    """

    tokens: list[list[str]]
    words: list[np.ndarray]
    sentences: np.ndarray


class TextClassifier:
    """A trained run, ready to classify.

    Args:
        run: the run.
        batch_size: texts read together.

    Example:

    ```
    classifier = TextClassifier.load("runs/reviews")
    print(classifier.predict(["It was not bad at all."])[0].probabilities)
    ```
    """

    def __init__(self, run: ClassificationRun, batch_size: int = 64):
        self.run = run
        self.batch_size = batch_size
        self._call = _in_graph(run)

    @classmethod
    def load(cls, path: Path | str) -> "TextClassifier":
        """Load a run folder.

        Raises:
            UserError: if there is no such run, or it has no weights yet.
        """
        return cls(load_run(path))

    def predict(self, texts: Sequence[str | tuple[str, str]]) -> list[Prediction]:
        """Return what the model says of each text, or pair of texts.

        A text longer than `data.max_length` is cut, one without words gets what the model says of
        nothing; both say so.

        Raises:
            UserError: where single texts are given to a model of pairs, or the other way round.
        """
        texts = [self._checked(text) for text in texts]
        limit = self.run.config.data.max_length
        ids = [[self.run.reader.ids(part) for part in text] for text in texts]
        cut = [any(length_of(part) > limit for part in parts) for parts in ids]
        for index, text in enumerate(texts):
            if cut[index]:
                ids[index] = [self.run.reader.ids(part, limit) for part in text]
        columns = list(map(list, zip(*ids, strict=True)))
        answers = self.answers(columns) if texts else []
        empty = [not all(map(length_of, parts)) for parts in ids]
        return [self._prediction(*each) for each in zip(answers, cut, empty, strict=True)]

    def answers(self, columns: Sequence[Sequence[Sequence[int]]]) -> np.ndarray:
        """Return probabilities `(examples, labels)`, or numbers `(examples, 1)`, of ids."""
        return probabilities(self.scores(columns), self.run.labels)

    def scores(self, columns: Sequence[Sequence[Sequence[int]]]) -> np.ndarray:
        """Return the model's scores `(examples, outputs)` of ids, in their order."""
        batches = make_batches(
            columns, self.batch_size, sentences=self.run.reader.in_sentences, shuffle=False
        )
        result = np.zeros((len(columns[0]), self.run.labels.outputs), "float32")
        for index in range(len(batches)):
            rows = batches.rows(0, index)
            scores = np.asarray(self._call(batches.batch(0, index)[0])[0])
            result[rows[rows >= 0]] = scores[rows >= 0]
        return result

    def attend(self, text: str | tuple[str, str]) -> list[Weights]:
        """Return what the model attends to in a text, or in each text of a pair."""
        limit = self.run.config.data.max_length
        reader, parts = self.run.reader, self._checked(text)
        columns = [[reader.ids(part, limit)] for part in parts]
        batches = make_batches(columns, 1, sentences=reader.in_sentences, shuffle=False)
        _, weights = self._call(batches.batch(0, 0)[0])
        weights = {name: np.asarray(each)[0] for name, each in weights.items()}
        result = []
        for part, name in zip(parts, ("words", "second"), strict=False):
            tokens = reader.tokens(part, limit)
            words = weights[name] if reader.in_sentences else weights[name][None]
            words = [row[: len(line)] for row, line in zip(words, tokens, strict=False)]
            sentences = weights["sentences"] if reader.in_sentences else np.ones(1, "float32")
            result.append(Weights(tokens, words, sentences[: len(tokens)]))
        return result

    def _checked(self, text) -> tuple[str, ...]:
        parts = (text,) if isinstance(text, str) else tuple(text)
        wanted = 2 if self.run.config.data.second_column else 1
        if len(parts) != wanted:
            raise UserError(
                f"this run reads {'pairs of texts' if wanted == 2 else 'single texts'}. "
                f"Received: {'a single text' if len(parts) == 1 else f'{len(parts)} texts'}."
            )
        return parts

    def _prediction(self, answer: np.ndarray, cut: bool, empty: bool) -> Prediction:
        labels = self.run.labels
        if labels.kind == "number":
            return Prediction((), {}, float(answer[0]), cut, empty)
        by_name = {name: float(p) for name, p in zip(labels.names, answer, strict=True)}
        if labels.kind == "one":
            chosen = (labels.names[int(answer.argmax())],)
        else:
            chosen = tuple(name for name, p in by_name.items() if p >= THRESHOLD)
        return Prediction(chosen, by_name, None, cut, empty)


def probabilities(scores, labels) -> np.ndarray:
    """Return what scores `(..., outputs)` mean: probabilities, or numbers in the data's units."""
    if labels.kind == "number":
        return np.asarray(scores) * labels.scale + labels.mean
    function = keras.ops.softmax if labels.kind == "one" else keras.ops.sigmoid
    return np.asarray(function(scores))


def _in_graph(run: ClassificationRun):
    """Return `model.attend` as one graph for batches of all lengths."""
    rank = 3 if run.reader.in_sentences else 2
    names = INPUTS if run.config.data.second_column else INPUTS[:1]

    def call(inputs):
        return run.model.attend(inputs, training=False)

    return compiled(call, run.model, dict.fromkeys(names, rank))
