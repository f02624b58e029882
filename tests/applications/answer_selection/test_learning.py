"""Batches with drawn wrong candidates, and the losses of training and of a whole question."""

import numpy as np
import pytest

from keras_attention.applications.answer_selection.batches import EncodedQuestions, TrainingBatches
from keras_attention.applications.answer_selection.config import TrainingConfig
from keras_attention.applications.answer_selection.losses import question_loss, training_loss
from keras_attention.applications.answer_selection.text import Coverage
from keras_attention.applications.common.errors import UserError

NEGATIVES = 3


@pytest.fixture(scope="module")
def encoded():
    """Questions of 0 to 6 wrong candidates; each text is one id that says which it is."""
    labels = [[1, 0, 0, 0, 0, 0, 0], [0, 1], [1], [0, 0], [1, 0, 1, 0, 0]]
    return EncodedQuestions(
        questions=[[100 + index] for index in range(len(labels))],
        candidates=[
            [[10 * index + place + 1] * (place + 1) for place in range(len(row))]
            for index, row in enumerate(labels)
        ],
        labels=labels,
        coverage=Coverage(1, 0, 0),
    )


def rows(batches, epoch):
    """(question, first id of each candidate) of all rows of an epoch."""
    for index in range(len(batches)):
        inputs, labels = batches.batch(epoch, index)
        assert labels[:, 0].all() and not labels[:, 1:].any()
        for question, candidates in zip(inputs["question"], inputs["candidates"], strict=True):
            yield question[0] - 100, candidates[:, 0].tolist()


def test_each_right_candidate_comes_once_with_wrong_ones(encoded):
    batches = TrainingBatches(encoded, batch_size=2, negatives=NEGATIVES, seed=5)
    assert batches.rows == 5 and len(batches) == 3
    found = list(rows(batches, epoch=0))
    assert sorted(first for _, (first, *_) in found) == [1, 12, 21, 41, 43]
    wrong = {0: {2, 3, 4, 5, 6, 7}, 1: {11}, 2: set(), 4: {42, 44, 45}}
    for question, (_, *drawn) in found:
        own = {name for name in drawn if (name - 1) // 10 == question}
        assert own <= wrong[question]
        assert len(own) == min(NEGATIVES, len(wrong[question]))  # own ones first, each once


def test_batches_are_a_function_of_seed_and_epoch(encoded):
    def stream(seed, start, number):
        batches = TrainingBatches(encoded, batch_size=2, negatives=NEGATIVES, seed=seed)
        dataset = batches.to_dataset(start).take(number)
        return [inputs["candidates"].numpy().tolist() for inputs, _ in dataset]

    whole = stream(5, 0, 9)
    assert stream(5, 4, 5) == whole[4:]
    assert whole[:3] != whole[3:6]  # drawn anew in each epoch
    assert stream(6, 0, 3) != whole[:3]


def test_hinge_takes_the_hardest_wrong_candidate():
    loss = training_loss(TrainingConfig(margin=0.5))
    scores = np.array([[0.9, 0.1, 0.3], [0.2, 0.4, -0.1], [0.8, 0.2, 0.6]], "float32")
    labels = np.array([[1, 0, 0]] * 3, "float32")
    assert float(loss(labels, scores)) == pytest.approx((0.0 + 0.7 + 0.3) / 3)


def test_log_loss_is_of_each_pair():
    loss = training_loss(TrainingConfig(loss="log"))
    scores = np.array([[2.0, -1.0]], "float32")
    expected = (np.log1p(np.exp(-2.0)) + np.log1p(np.exp(-1.0))) / 2
    assert float(loss(np.array([[1.0, 0.0]]), scores)) == pytest.approx(expected, rel=1e-5)


def test_the_loss_of_a_question():
    hinge = TrainingConfig(margin=0.5)
    scores = [0.9, 0.3, 0.6, 0.5]
    assert question_loss(hinge, scores, [1, 0, 0, 1]) == pytest.approx((0.2 + 0.6) / 2)
    assert question_loss(hinge, scores, [1, 1, 1, 1]) == 0.0
    log = TrainingConfig(loss="log")
    expected = np.mean(
        [np.log1p(np.exp(-s if y else s)) for s, y in zip(scores, [1, 0, 0, 1], strict=True)]
    )
    assert question_loss(log, scores, [1, 0, 0, 1]) == pytest.approx(expected)


@pytest.mark.parametrize("settings", [{"margin": 0.0}, {"negatives": 0}, {"label_smoothing": 0.1}])
def test_settings_without_a_meaning_are_refused(settings):
    with pytest.raises(UserError, match=f"training.{next(iter(settings))}"):
        TrainingConfig(**settings)
