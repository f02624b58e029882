"""The small run that the tests of a trained model share."""

import numpy as np
import pytest

from keras_attention.applications.answer_selection import AnswerRanker
from tests.applications.commands import train_here

VOCABULARY = 31
SETTINGS = [
    "--data.dataset=facts",
    "--tokenizer.unknown_buckets=50",
    "--model.encoder=inner-context",
    "--model.occam=true",
    "--training.epochs=2",
    "--training.early_stopping=mrr",
    "--training.negatives=3",
]


def ids(*shape, seed=3):
    """Words of networks of so many."""
    return np.random.default_rng(seed).integers(1, VOCABULARY, shape).astype("int32")


def train_arguments(output, *more):
    return ["train", "answer-selection", *SETTINGS, "--output", str(output), *more]


@pytest.fixture(scope="session")
def answers_run(tmp_path_factory):
    """The run folder that the command trained on facts; not to be written to."""
    path = tmp_path_factory.mktemp("answers") / "facts"
    (path.parent / "stderr").write_text(train_here(*train_arguments(path)))
    return path


@pytest.fixture(scope="session")
def answers_ranker(answers_run):
    """The ranker of that run, for tests that change nothing in it."""
    return AnswerRanker.load(answers_run)
