"""Fixtures of the applications' tests."""

import os

import filelock
import pytest

from tests.applications.commands import run_command, train_arguments, write_dates
from tests.applications.translation_runs import make_translator


@pytest.fixture(scope="session")
def dates_data(tmp_path_factory):
    """Options that name a few hundred written dates as TSV files."""
    return write_dates(tmp_path_factory.mktemp("dates"))


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory, dates_data):
    """The run folder of a small rnnsearch that the real command trained; not to be written to.

    The first test process that needs it trains, for all of them.
    """
    base = tmp_path_factory.getbasetemp()
    runs = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "runs"
    with filelock.FileLock(f"{runs}.lock"):
        if not runs.exists():
            runs.mkdir()
            done = run_command(*train_arguments(dates_data, runs / "dates"))
            assert done.returncode == 0, done.stderr
            (runs / "stdout").write_text(done.stdout)
            (runs / "stderr").write_text(done.stderr)
    return runs / "dates"


@pytest.fixture(scope="module")
def transformer():
    """A translator by a small Transformer, with random weights."""
    return make_translator(architecture="transformer")


@pytest.fixture
def preset(transformer, tmp_path):
    """A preset of it, which a test may write to."""
    transformer.save_to_preset(tmp_path / "preset")
    return tmp_path / "preset"
