"""Checkpoints of a training in progress: one file each, whole or not at all."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import replacing


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds.

    Args:
        step: updates made.
        arrays: every variable of model and optimizer, in the order of `training_variables`.
        state: JSON-able state of everything else (epoch, callbacks).
    """

    step: int
    arrays: list[np.ndarray]
    state: dict


class Checkpoints:
    """The newest `keep` checkpoints in a folder.

    Args:
        folder: where `step-00001234.npz` files are.
        keep: how many to keep; two, so that a damaged one leaves the one before it.
    """

    def __init__(self, folder: Path, keep: int = 2):
        self.folder = Path(folder)
        self.keep = keep

    def paths(self) -> list[Path]:
        """Return the checkpoint files, oldest first."""
        return sorted(self.folder.glob("step-*.npz"))

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write `checkpoint`, then delete all but the newest `keep`.

        Raises:
            UserError: where it cannot be written; those before it are kept.
        """
        self.folder.mkdir(exist_ok=True)
        path = self.folder / f"step-{checkpoint.step:08d}.npz"
        named = {f"{index:05d}": array for index, array in enumerate(checkpoint.arrays)}
        text = np.frombuffer(json.dumps(checkpoint.state).encode(), dtype=np.uint8)
        try:
            with replacing(path) as temporary, open(temporary, "wb") as file:
                np.savez(file, state=text, **named)
        except OSError as error:
            raise UserError(
                f"checkpoint {path} could not be written ({error.strerror or error}). The last "
                "good one is kept: make room, and continue with --resume."
            ) from None
        for old in self.paths()[: -self.keep]:
            old.unlink()
        return path

    def latest(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest checkpoint that can be read, and a line for each damaged one passed.

        Raises:
            UserError: if there are checkpoints and none can be read.
        """
        problems = []
        for path in reversed(self.paths()):
            try:
                return read_checkpoint(path), problems
            except UserError as error:
                problems.append(str(error))
        if problems:
            raise UserError(" ".join(problems) + " No checkpoint is left to resume from.")
        return None, []


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint file; every array is verified against its checksum in the file.

    Raises:
        UserError: naming the file, if it is cut short or altered.
    """
    try:
        with open(path, "rb") as file, np.load(file) as archive:
            state = json.loads(archive["state"].tobytes().decode())
            arrays = [archive[name] for name in sorted(archive.files) if name != "state"]
        return Checkpoint(int(path.stem.removeprefix("step-")), arrays, state)
    except Exception as error:  # an altered archive fails in many ways, none of them useful here
        raise UserError(f"checkpoint {path} is damaged ({type(error).__name__}).") from None
