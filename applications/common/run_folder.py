"""The folder of one training run: what is in it, and who may write there.

    RUN/FORMAT              {"format": 1, "task": "translation", "package": "0.1.0"}
    RUN/config.yaml         the configuration, complete
    RUN/tokenizers/         what the task needs beside weights (tokenisers, vocabularies)
    RUN/checkpoints/        step-00001234.npz: all that an exact resume needs
    RUN/best.weights.h5     the weights that were best on the development set
    RUN/metrics.jsonl       one line an epoch
    RUN/tensorboard/        the same figures for TensorBoard

A run folder appears whole: it is prepared under another name and renamed, so that a kill during
preparation leaves no run folder at all.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import write_text

FORMAT_VERSION = 1


class RunFolder:
    """The paths of an existing run folder of a known format.

    Args:
        path: the folder.

    Raises:
        UserError: where there is none, or it is half-written, foreign or from a newer version.
    """

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.task = _read_format(self.path)["task"]
        if not self.config.is_file():
            raise UserError(
                f"{self.path} is half-written: it has no config.yaml. Delete it and train again."
            )

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def tokenizers(self) -> Path:
        return self.path / "tokenizers"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def best_weights(self) -> Path:
        return self.path / "best.weights.h5"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    def require_weights(self) -> Path:
        """Return the path of the best weights.

        Raises:
            UserError: if training has not reached the end of its first epoch.
        """
        if not self.best_weights.is_file():
            raise UserError(
                f"{self.path} has no weights yet: its training did not reach the end of an epoch. "
                "Continue it with `train --resume`."
            )
        return self.best_weights

    @classmethod
    @contextmanager
    def prepare(cls, path: Path | str, task: str) -> Iterator[Path]:
        """Give a temporary folder to fill, and make it the run folder `path` at the end.

        Raises:
            UserError: if `path` exists and is not an empty folder.
        """
        path = Path(path)
        refuse_existing(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.preparing")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        try:
            yield temporary
            (temporary / "tokenizers").mkdir(exist_ok=True)
            (temporary / "checkpoints").mkdir()
            about = {"format": FORMAT_VERSION, "task": task, "package": _package_version()}
            write_text(temporary / "FORMAT", json.dumps(about) + "\n")
            temporary.replace(path)
        except OSError as error:
            refuse_existing(path)
            raise UserError(f"cannot make the run folder {path}: {error}") from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def is_free(path: Path | str) -> bool:
    """Return whether a run folder can be made at `path`: nothing is there, or an empty folder."""
    path = Path(path)
    return not any(path.iterdir()) if path.is_dir() else not path.exists()


def refuse_existing(path: Path | str) -> None:
    """Refuse to use `path` for something new unless it is free or an empty folder."""
    path = Path(path)
    if is_free(path):
        return
    if (path / "FORMAT").is_file():
        raise UserError(
            f"{path} already holds a run. Choose another --output, "
            "or continue that run with --resume."
        )
    raise UserError(f"{path} already exists. Choose another --output.")


@contextmanager
def writing(run: RunFolder) -> Iterator[None]:
    """Hold the run folder for one training process; the lock goes when the process does.

    Raises:
        UserError: while another process trains this run.
    """
    try:
        import fcntl
    except ImportError:  # Windows has no flock: two trainings of one run are not caught there.
        yield
        return
    with open(run.path / "FORMAT", "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process is training {run.path}.") from None
        yield


def _read_format(path: Path) -> dict:
    if not path.exists():
        raise UserError(f"no run folder {path}.")
    marker = path / "FORMAT"
    if not marker.is_file():
        ours = (path / "config.yaml").exists() or (path / "checkpoints").exists()
        raise UserError(
            f"{path} is a half-written run folder: its FORMAT file is missing."
            if ours
            else f"{path} is not a run folder: it has no FORMAT file."
        )
    try:
        about = json.loads(marker.read_text(encoding="utf-8"))
        version, _ = int(about["format"]), str(about["task"])
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{marker} is damaged: expected JSON with 'format' and 'task'.") from None
    if version > FORMAT_VERSION:
        raise UserError(
            f"{path} was written by a newer keras-attention (run format {version}; this version "
            f"reads up to {FORMAT_VERSION}). Upgrade keras-attention to use it."
        )
    return about


def _package_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("keras-attention")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"
