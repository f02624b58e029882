"""Fixtures of the applications' tests."""

import pytest

from tests.applications.commands import run_command, train_arguments, write_dates


@pytest.fixture(scope="session")
def dates_data(tmp_path_factory):
    """Options that name a few hundred written dates as TSV files."""
    return write_dates(tmp_path_factory.mktemp("dates"))


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory, dates_data):
    """The run folder of a small rnnsearch that the real command trained; not to be written to."""
    path = tmp_path_factory.mktemp("runs") / "dates"
    done = run_command(*train_arguments(dates_data, path))
    assert done.returncode == 0, done.stderr
    (path.parent / "stdout").write_text(done.stdout)
    (path.parent / "stderr").write_text(done.stderr)
    return path
