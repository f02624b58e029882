"""The small run that the tests of a trained classifier share."""

import numpy as np
import pytest

from tests.applications.commands import train_here

SETTINGS = [
    "--data.dataset=opinions",
    "--model.architecture=han",
    "--model.embedding_size=16",
    "--model.units=16",
    "--model.dropout=0",
    "--training.batch_size=16",
    "--training.epochs=4",
    "--training.learning_rate=0.01",
    "--training.tensorboard=false",
]


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
    from keras_attention.applications.classification import TextClassifier

    return TextClassifier.load(opinions_run)
