"""Scores of all candidates of many questions, from a model."""

from collections.abc import Callable, Sequence

import numpy as np
from keras import ops

from keras_attention.applications.answer_selection.batches import EncodedQuestions
from keras_attention.applications.answer_selection.model import AnswerSelector
from keras_attention.applications.answer_selection.text import padded
from keras_attention.applications.common.backend import compiled

PAIRS_IN_A_BATCH = 256


def scorer(model: AnswerSelector) -> Callable:
    """Return a function from ids `(P, S)` and `(P, T)` to scores `(P,)` and weights `(P, T)`.

    Where the model gives no weights, they are zeros.
    """

    def score(question, candidate):
        inputs = {"question": question, "candidates": candidate[:, None]}
        scores, weights = model.score(inputs, training=False)
        if weights is None:
            return scores[:, 0], ops.zeros(ops.shape(candidate))
        return scores[:, 0], weights[:, 0]

    return compiled(score, model, 2, 2)


def score_questions(
    score: Callable, encoded: EncodedQuestions
) -> tuple[list[np.ndarray], list[list[np.ndarray]]]:
    """Return for each question the scores of its candidates, and the weights of their words.

    Args:
        score: what `scorer` returned.
        encoded: the questions.
    """
    pairs = [
        (question, place)
        for question, candidates in enumerate(encoded.candidates)
        for place in range(len(candidates))
    ]
    order = sorted(pairs, key=lambda pair: len(encoded.candidates[pair[0]][pair[1]]))
    scores = [np.zeros(len(candidates), "float32") for candidates in encoded.candidates]
    weights = [[np.zeros(0)] * len(candidates) for candidates in encoded.candidates]
    for first in range(0, len(order), PAIRS_IN_A_BATCH):
        part: Sequence[tuple[int, int]] = order[first : first + PAIRS_IN_A_BATCH]
        candidates = [encoded.candidates[question][place] for question, place in part]
        questions = padded([encoded.questions[question] for question, _ in part])
        values, shades = (np.asarray(array) for array in score(questions, padded(candidates)))
        for (question, place), ids, value, shade in zip(
            part, candidates, values, shades, strict=True
        ):
            scores[question][place] = value
            weights[question][place] = shade[: len(ids)]
    return scores, weights
