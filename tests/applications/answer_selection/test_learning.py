"""Batches with drawn wrong candidates, and the losses of training and of a whole question."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_attention.applications.answer_selection.batches import TrainingBatches
from keras_attention.applications.answer_selection.config import TrainingConfig
from keras_attention.applications.answer_selection.networks.selector import HardestHinge
from keras_attention.applications.answer_selection.task import question_loss
from keras_attention.applications.data.corpus import Report
from keras_attention.applications.data.encoded import Encoded
from keras_attention.applications.errors import UserError
from keras_attention.applications.text import PackedIds

NEGATIVES = 3


@pytest.fixture(scope="module")
def encoded():
    """Questions of 0 to 6 wrong candidates; each text is one id that says which it is."""
    labels = [[1, 0, 0, 0, 0, 0, 0], [0, 1], [1], [0, 0], [1, 0, 1, 0, 0]]
    candidates = [
        [10 * index + place + 1] * (place + 1)
        for index, row in enumerate(labels)
        for place in range(len(row))
    ]
    return encoded_of([100 + index for index in range(len(labels))], candidates, labels)


def encoded_of(questions, candidates, labels):
    """Questions of one id each, the ids of all candidates, and the labels of each question's."""
    counts = np.array(list(map(len, labels)))
    return Encoded(
        {
            "question": PackedIds([[each] for each in questions]),
            "candidates": PackedIds(candidates),
        },
        Report("x", len(questions)),
        {"labels": np.concatenate(labels)},
        groups={"candidates": counts, "labels": counts},
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


def test_a_question_alone_has_its_own_wrong_candidates_again(encoded):
    alone = encoded.take([4])
    assert len(alone) == 1 and alone["question"] == [[104]]
    # Another question without candidates has none to lend.
    empty = encoded_of([104, 1], list(alone["candidates"]), [alone.values["labels"], []])
    for each in (alone, empty):
        found = rows(TrainingBatches(each, batch_size=2, negatives=7, seed=5), epoch=0)
        for _, (first, *drawn) in found:
            assert first in (41, 43) and set(drawn) == {42, 44, 45} and len(drawn) == 7


def test_batches_are_a_function_of_seed_and_epoch(encoded):
    def stream(seed, start, number):
        batches = TrainingBatches(encoded, batch_size=2, negatives=NEGATIVES, seed=seed)
        dataset = batches.to_dataset(start).take(number)
        return [inputs["candidates"].numpy().tolist() for inputs, _ in dataset]

    whole = stream(5, 0, 9)
    assert stream(5, 4, 5) == whole[4:]
    assert whole[:3] != whole[3:6]  # drawn anew in each epoch
    assert stream(6, 0, 3) != whole[:3]


def test_validation_batches_are_always_the_same_and_weights_go_with_their_question(encoded):
    weighted = dataclasses.replace(encoded, weights=np.arange(1.0, 6.0))
    batches = TrainingBatches(weighted, batch_size=2, negatives=NEGATIVES, seed=5, shuffle=False)
    passes = [list(batches.to_dataset(start, epochs=start // 3 + 1)) for start in (0, 3)]
    for one, other in zip(*passes, strict=True):
        np.testing.assert_array_equal(one[0]["candidates"], other[0]["candidates"])
    for inputs, _, weights in passes[0]:
        np.testing.assert_array_equal(weights, inputs["question"][:, 0] - 99)


def test_hinge_takes_the_hardest_wrong_candidate():
    scores = np.array([[0.9, 0.1, 0.3], [0.2, 0.4, -0.1], [0.6, 0.8, 0.2]], "float32")
    labels = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0]], "float32")
    assert float(HardestHinge(0.5)(labels, scores)) == pytest.approx((0.0 + 0.7 + 0.3) / 3)


def test_the_training_loss_of_a_question_is_that_of_all_its_candidates():
    random = np.random.default_rng(7)
    for labels in ([1, 0, 0, 1, 0], [0, 0, 0, 1, 0], [1, 1, 1, 1, 1]):
        scores = random.normal(size=(1, 5)).astype("float32")
        whole = question_loss(scores[0], labels, "hinge", 0.5)
        assert float(HardestHinge(0.5)(np.array([labels]), scores)) == pytest.approx(
            whole, abs=1e-6
        )


def test_the_loss_of_a_question():
    scores = [0.9, 0.3, 0.6, 0.5]
    assert question_loss(scores, [1, 0, 0, 1], "hinge", 0.5) == pytest.approx((0.2 + 0.6) / 2)
    for objective in ("hinge", "listwise"):
        assert question_loss(scores, [1, 1, 1, 1], objective, 0.5) == 0.0
    expected = np.mean(
        [np.log1p(np.exp(-s if y else s)) for s, y in zip(scores, [1, 0, 0, 1], strict=True)]
    )
    assert question_loss(scores, [1, 0, 0, 1], "log", 0.5) == pytest.approx(expected)
    # Listwise: each right candidate among the wrong ones, as a row of training has one.
    rows = np.array([[0.9, 0.3, 0.6], [0.5, 0.3, 0.6]], "float32")
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    expected = float(loss(np.array([[1.0, 0, 0]] * 2, "float32"), rows))
    found = question_loss(scores, [1, 0, 0, 1], "listwise", 0.5)
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("settings", [{"margin": 0.0}, {"negatives": 0}, {"label_smoothing": 0.1}])
def test_settings_without_a_meaning_are_refused(settings):
    with pytest.raises(UserError, match=f"training.{next(iter(settings))}"):
        TrainingConfig(**settings)
