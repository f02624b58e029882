"""The small run that the tests of a trained model share."""

import pytest

from tests.applications.commands import run_command

SETTINGS = [
    "--data.dataset=facts",
    "--vocabulary.unknown_buckets=50",
    "--model.encoder=inner-context",
    "--model.occam=true",
    "--training.epochs=3",
    "--training.early_stopping=mrr",
    "--training.negatives=3",
]


def train_arguments(output, *more):
    return ["train", "answer-selection", *SETTINGS, "--output", str(output), *more]


@pytest.fixture(scope="session")
def answers_run(tmp_path_factory):
    """The run folder that the real command trained on facts; not to be written to."""
    path = tmp_path_factory.mktemp("answers") / "facts"
    done = run_command(*train_arguments(path))
    assert done.returncode == 0, done.stderr
    (path.parent / "stderr").write_text(done.stderr)
    assert done.stdout == ""
    return path
