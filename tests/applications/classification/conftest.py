"""The small run that the tests of a trained classifier share."""

import pytest

from tests.applications.commands import run_command

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


def train_arguments(output, *more):
    return ["train", "classification", *SETTINGS, "--output", str(output), *more]


@pytest.fixture(scope="session")
def opinions_run(tmp_path_factory):
    """The run folder of a han that the real command trained; not to be written to."""
    path = tmp_path_factory.mktemp("opinions") / "run"
    done = run_command(*train_arguments(path))
    assert done.returncode == 0, done.stderr
    (path.parent / "stderr").write_text(done.stderr)
    assert done.stdout == ""
    return path


@pytest.fixture(scope="session")
def opinions_classifier(opinions_run):
    from keras_attention.applications.classification import TextClassifier

    return TextClassifier.load(opinions_run)
