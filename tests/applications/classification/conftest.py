"""The small tasks, and the run of the real command, that tests of classifiers share."""

import numpy as np
import pytest

from keras_attention.applications.classification import (
    ClassificationPreprocessor,
    Labels,
    ModelConfig,
    PairClassifier,
    TextClassifier,
    build_model,
)
from keras_attention.applications.text import WordTokenizer
from tests.applications.commands import train_here

SETTINGS = [
    "--data.dataset=opinions",
    "--model.architecture=han",
    "--model.embedding_size=16",
    "--model.units=16",
    "--model.dropout=0",
    "--training.batch_size=32",
    "--training.epochs=3",
    "--training.learning_rate=0.02",
    "--training.tensorboard=false",
]
REVIEWS = [
    "the food was bad . overall , it was good .",
    "",
    "we came by train .\nall in all , the stay was not excellent . the bed was good .",
    "in the end , it was terrible .",
]
TEXTS = ["good fun", "very good", "bad film", "so bad"] * 6
LABELS = ["yes", "yes", "no", "no"] * 6


def randomize(model, scale: float = 2.0) -> None:
    """Give every weight, the biases too, random values that make scores and attention uneven."""
    random = np.random.default_rng(3)
    for variable in model.trainable_variables:
        middle, spread = 0.0, 1.0
        if "norm" in variable.path:
            middle, spread = float("gamma" in variable.path), 0.2
        elif len(variable.shape) > 1 and "embedding" not in variable.path:
            spread = scale / variable.shape[0] ** 0.5
        variable.assign(random.normal(middle, spread, variable.shape))


def make_task(labels=None, pairs=False, **sizes):
    """A task of random weights that reads twelve tokens of a text, and sentences of four."""
    labels = labels or Labels("one", ("good", "bad", "so-so"))
    config = ModelConfig(**{"embedding_size": 6, "units": 5, **sizes})
    tokenizer = WordTokenizer.train(REVIEWS, vocabulary_size=100, lowercase=True)
    sentences = "punctuation" if config.architecture == "han" else None
    preprocessor = ClassificationPreprocessor(tokenizer, labels, pairs, 12, sentences, 4)
    model = build_model(config, tokenizer.vocabulary_size, labels.outputs)
    randomize(model)
    return (PairClassifier if pairs else TextClassifier)(model, preprocessor)


def train_arguments(output, *more):
    return ["train", "classification", *SETTINGS, "--output", str(output), *more]


@pytest.fixture(scope="session")
def opinions_run(tmp_path_factory):
    """The run folder of a han that the command trained; not to be written to."""
    path = tmp_path_factory.mktemp("opinions") / "run"
    (path.parent / "stderr").write_text(train_here(*train_arguments(path)))
    return path


@pytest.fixture(scope="session")
def opinions_classifier(opinions_run):
    return TextClassifier.load(opinions_run)
