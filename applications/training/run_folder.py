"""The folder of one training run: its files, their checks, and the lock of the process that trains.

    RUN/FORMAT              {"format": 1, "task": "translation", "package": "0.2.0", ...}: what made
                            the run, its configuration and the checksums of its data
    RUN/CHECKSUMS           the checksums of the files below that do not grow
    RUN/config.yaml         the configuration, complete
    RUN/task.json ...       the task as a preset: task.json, config.json, preprocessor.json
    RUN/vectors.npy, backbone/   what some tasks need beside that
    RUN/README.md           the model card, written anew after each epoch unless it was edited
    RUN/model.weights.h5    the weights that were best on the development set
    RUN/start.weights.h5    the weights that it started from, of a run with `train --from`
    RUN/checkpoints/        step-00001234.npz: all that an exact resume needs
    RUN/metrics.jsonl       one line an epoch
    RUN/tensorboard/        the same figures for TensorBoard

A run folder appears whole: it is prepared under another name and renamed, so that a kill during
preparation leaves no run folder at all.
"""

import hashlib
import io
import json
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import keras
import numpy as np

from keras_attention import __version__
from keras_attention.paths import input_path, output_path

from ..errors import UserError, shown
from ..schema.reading import MOST_BYTES, by_key, changed_keys, read_yaml, save_config
from ..store import files
from ..store.files import json_object, read_bytes, write_text

FORMAT_VERSION = 1
FORMAT, CARD_FILE, START_WEIGHTS = "FORMAT", "README.md", "start.weights.h5"


class RunFolder:
    """The paths of an existing run folder of a known format.

    One that is half-written, foreign, from a newer version, of another task than `task` or, unless
    `changed`, whose config.yaml differs from what the program wrote, is refused.
    """

    def __init__(self, path: Path | str, changed: bool = False, task: str | None = None):
        self.path = input_path(path)
        self.about = _read_format(self.path)
        self.task: str = self.about["task"]
        if task not in (None, self.task):
            raise UserError(f"{self.path} is a run of task {shown(self.task)}. Expected: {task}.")
        self.best_weights = self.path / "model.weights.h5"
        self.start_weights = self.path / START_WEIGHTS
        self.config = self.path / "config.yaml"
        self.checkpoints = self.path / "checkpoints"
        self.metrics = self.path / "metrics.jsonl"
        self.tensorboard = self.path / "tensorboard"
        if not self.config.is_file():
            raise UserError(
                f"{self.path} is half-written: it has no config.yaml. Delete it and train again."
            )
        if not changed and (keys := self.changed_keys()):
            more = f" and {len(keys) - 5} more" if len(keys) > 5 else ""
            raise UserError(
                f"{self.config} was cut or edited since the run wrote it: {', '.join(keys[:5])}"
                f"{more}. Restore it, or take it as it is with `train --resume --accept-changes`."
            )

    def changed_keys(self) -> list[str]:
        """Return the keys of config.yaml that another hand changed."""
        # Read before its checksum: a training that replaces it notes the new one first.
        content = read_bytes(self.config, MOST_BYTES)
        known = files.known_checksums(self.path).get(self.config.name)
        if not known:
            raise UserError(f"{self.path} is damaged: {files.CHECKSUMS} does not name config.yaml.")
        if hashlib.sha256(content).hexdigest() in known:
            return []
        return changed_keys(self.about["config"], read_yaml(self.config))

    def changes(self, given: Mapping[str, str] | None = None) -> list[str]:
        """Return what differs from when the run was begun, but its configuration, a line each.

        `given` are the checksums of data that Python hands over, by their use.
        """
        changes = [
            f"{name} is {now}, and was {self.about[name]}"
            for name, now in VERSIONS.items()
            if self.about[name] != now
        ]
        for key, (path, digest) in self.about["inputs"].items():
            if not os.path.exists(path):
                changes.append(f"{key}: {path} is gone")
            elif files.checksum(path) != digest:
                changes.append(f"{key}: the contents of {path} are others")
        known = self.about["given"] if given is not None else {}
        return changes + [f"the {key} are others" for key in known if given.get(key) != known[key]]

    def verify_parts(self) -> None:
        """Refuse the run where a vocabulary or another part was damaged or changed."""
        for name in files.known_checksums(self.path):
            if name not in (self.config.name, self.best_weights.name, CARD_FILE):
                files.verify_checksum(self.path / name, self.path)

    def write_config(
        self,
        config: Any,
        accepted: Sequence[str] = (),
        given: Mapping[str, str] | None = None,
    ) -> None:
        """Make `config` the run's own, and record what else of it is `accepted` to differ.

        `given` are the checksums of data that come from no file, as of `changes`.
        """
        save_config(config, self.config)
        self.about |= _about(read_yaml(self.config), self.task, self.path)
        self.about |= {"given": dict(given)} if given else {}
        if accepted:
            newest = [path.stem for path in Checkpoints(self.checkpoints).paths()[-1:]]
            record = {"after": newest[0] if newest else "the start", "changes": list(accepted)}
            self.about["accepted"].append(record)
        write_text(self.path / FORMAT, json.dumps(self.about) + "\n")

    @classmethod
    @contextmanager
    def prepare(
        cls,
        path: Path | str,
        task: str,
        given: Mapping[str, str] | None = None,
        origin: Mapping[str, str] | None = None,
    ) -> Iterator[Path]:
        """Give a temporary folder to fill, and make it the run folder `path` at the end.

        `given` are the checksums of data that come from no file, `origin` the preset that the
        training starts from.
        """
        with files.new_folder(path, refuse_existing) as folder:
            folder.mkdir()
            yield folder
            (folder / "checkpoints").mkdir()
            about = _about(read_yaml(folder / "config.yaml"), task, folder)
            about |= {"given": dict(given)} if given else {}
            about |= {"from": dict(origin)} if origin else {}
            write_text(folder / FORMAT, json.dumps(about) + "\n")
            files.write_checksums(folder, but=(FORMAT,))


VERSIONS = {"package": __version__, "keras": keras.__version__}


def is_free(path: Path | str) -> bool:
    """Return whether a run folder can be made at `path`: nothing is there, or an empty folder."""
    path = output_path(path, is_preset=True)
    return not any(path.iterdir()) if path.is_dir() else not path.exists()


def refuse_existing(path: Path | str) -> None:
    """Refuse to use `path` for something new unless it is free or an empty folder."""
    path = output_path(path, is_preset=True)
    if is_free(path):
        return
    if (path / FORMAT).is_file():
        raise UserError(
            f"{path} already holds a run. Choose another --output, "
            "or continue that run with --resume."
        )
    raise UserError(f"{path} already exists. Choose another --output.")


@contextmanager
def writing(run: RunFolder) -> Iterator[None]:
    """Hold the run folder for one training process; the lock goes when the process does.

    Files that a kill left half-written are removed first.
    """
    lock = run.path / "LOCK"
    for path in (run.checkpoints, run.tensorboard, lock):
        if path.is_symlink():
            raise UserError(
                f"{path} is a symbolic link, and training would write where it leads. Put a "
                "folder or file of its own there."
            )
    try:
        held = filelock.FileLock(lock, timeout=0).acquire()
    except filelock.Timeout:
        raise UserError(f"another process is training {run.path}.") from None
    except OSError as error:
        raise files.NotWritten(lock, error.strerror) from None
    with held:
        for left in (*run.path.glob(".partial-*"), *run.checkpoints.glob(".partial-*")):
            left.unlink(missing_ok=True)
        yield


def inputs_of(config: Any) -> dict[str, str]:
    """Return the files and folders that a configuration names and that are there, by their keys."""
    return {
        name: value
        for name, value in by_key(config).items()
        if isinstance(value, str)
        and name != "data.label_separator"  # "/" is no path there
        and Path(value).is_absolute()
        and Path(value).exists()
    }


def _about(config: Any, task: str, folder: Path) -> dict[str, Any]:
    """Return what FORMAT says of a run with this configuration, which is all texts.

    An input that the run folder keeps a copy of, under the name of its key, may change or go.
    """
    inputs = {
        name: (value, files.checksum(value))
        for name, value in inputs_of(config).items()
        if not (folder / name.rpartition(".")[2]).is_dir()
    }
    about = {"format": FORMAT_VERSION, "task": task, **VERSIONS}
    return {**about, "config": config or {}, "inputs": inputs}


def _read_format(path: Path) -> dict:
    if not path.exists():
        raise UserError(f"no run folder {path}.")
    marker = path / FORMAT
    if not marker.exists():
        if (path / "config.yaml").exists() or (path / "checkpoints").exists():
            raise UserError(f"{path} is a half-written run folder: its FORMAT file is missing.")
        raise UserError(f"{path} is not a run folder: it has no FORMAT file.")
    try:
        about = json_object(read_bytes(marker, files.MOST_JSON), str(marker))
    except UserError as error:
        raise UserError(f"{marker} is damaged: {error}") from None
    number = about.get("format")
    is_known = type(number) is int and number >= 1 and isinstance(about.get("task"), str)
    if is_known and number > FORMAT_VERSION:
        raise UserError(
            f"{path} was written by a newer keras-attention (run format {shown(number)}; this "
            f"version reads up to {FORMAT_VERSION}). Upgrade keras-attention-layers to use it."
        )
    if not is_known:
        raise UserError(f"{marker} is damaged: expected JSON with 'format' and 'task'.")
    about = {"given": {}, "from": {}, "accepted": [], **about}
    for field, is_right in FIELDS.items():
        if not is_right(about.get(field)):
            raise UserError(
                f"{marker} is damaged: `{field}` is not what a run has there. "
                f"Received: {shown(about.get(field))}."
            )
    named = by_key(about["config"])
    for key, (file, _) in about["inputs"].items():
        # Else it could have files read that the configuration does not name.
        if named.get(key) != file:
            raise UserError(
                f"{marker} is damaged: its `inputs` say that {shown(key)} is {shown(file)}, "
                "and its `config` does not."
            )
    return about


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


FIELDS: dict[str, Callable[[Any], bool]] = {
    "package": lambda value: isinstance(value, str) and len(value) < 80,
    "keras": lambda value: isinstance(value, str) and len(value) < 80,
    "config": lambda value: isinstance(value, dict),
    "inputs": lambda value: (
        isinstance(value, dict) and all(_are_texts(v) and len(v) == 2 for v in value.values())
    ),
    "given": lambda value: isinstance(value, dict) and _are_texts(list(value.values())),
    "from": lambda value: (
        isinstance(value, dict)
        and _are_texts(list(value.values()))
        and (not value or "preset" in value)
    ),
    "accepted": lambda value: (
        isinstance(value, list)
        and all(isinstance(each, dict) and _are_texts(each.get("changes")) for each in value)
    ),
}
"""The fields of FORMAT beside `format` and `task`, and their checks."""


class MetricsLog:
    """`metrics.jsonl`: read, cut back to a checkpoint, and appended to, always whole on disk.

    Only the lines up to `step` updates and `epoch`, where a resumed run continues, are kept: an
    epoch may make no update.
    """

    def __init__(self, path: Path, step: int = 0, epoch: float = math.inf):
        self.path = path
        lines = [line for line in read_metrics(path) if line["step"] <= step]
        self.lines = [line for line in lines if line.get("epoch", 0) <= epoch]
        self._write()

    def append(self, line: dict) -> None:
        """Add one epoch's figures; `line["step"]` is the number of updates made."""
        self.lines.append(dict(line))
        self._write()

    def _write(self) -> None:
        lines = (json.dumps(line, default=float) for line in self.lines)
        write_text(self.path, "".join(f"{line}\n" for line in lines))


def read_metrics(path: Path) -> list[dict]:
    """Return the lines of a metrics file, `[]` where there is none."""
    if not path.exists():
        return []
    try:
        text = read_bytes(path, files.MOST_JSON).decode("utf-8")
        lines = [json_object(line, str(path)) for line in text.splitlines()]
        if not all(type(line.get("step")) is int for line in lines):
            raise ValueError
    except ValueError:
        raise UserError(
            f"{path} is damaged: expected a JSON object on each line. Restore or delete it."
        ) from None
    return lines


@dataclass(frozen=True)
class Checkpoint:
    """Updates made, every variable in the order of `training_variables`, and the state of
    everything else (epoch, callbacks), which JSON can hold."""

    step: int
    arrays: list[np.ndarray]
    state: dict


KEPT = 2
"""How many checkpoints are kept, so that a damaged one leaves the one before it."""
NEWEST = "NEWEST"
"""The file that names them, so that one that goes missing is noticed."""


def _age(path: Path) -> tuple[int, str]:
    """Return what sorts checkpoints by their steps, which have eight digits or more."""
    return len(path.name), path.name


class Checkpoints:
    """The newest checkpoints in a folder. A process that does not write them saves nothing."""

    def __init__(self, folder: Path, writes: bool = True):
        self.folder, self.writes = Path(folder), writes

    def paths(self) -> list[Path]:
        """Return the checkpoint files, oldest first."""
        return sorted(self.folder.glob("step-*.npz"), key=_age)

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write `checkpoint`, then delete all but the newest ones."""
        path = self.folder / f"step-{checkpoint.step:08d}.npz"
        if not self.writes:
            return path
        named = {f"{index:05d}": array for index, array in enumerate(checkpoint.arrays)}
        text = np.frombuffer(json.dumps(checkpoint.state).encode(), dtype=np.uint8)
        try:
            self.folder.mkdir(exist_ok=True)
            with files.replacing(path) as temporary, open(temporary, "wb") as file:
                np.savez(file, state=text, **named)
            self.list_newest()
        except (OSError, files.NotWritten) as error:
            cause = error.strerror or error if isinstance(error, OSError) else error.cause
            kept = "The last good one is kept" if self.paths() else "There is none yet"
            raise UserError(
                f"checkpoint {path} could not be written ({cause}). {kept}: make room, and "
                "continue with --resume."
            ) from None
        for old in self.paths()[:-KEPT]:
            old.unlink()
        return path

    def list_newest(self) -> None:
        """Write down which checkpoints there are."""
        if self.writes:
            names = (f"{each.name}\n" for each in self.paths()[-KEPT:])
            write_text(self.folder / NEWEST, "".join(names))

    def latest(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest checkpoint that can be read, and a line for each one passed over.

        None is returned where there never was one; that none can be read is an error.
        """
        problems = []
        for path in sorted({*self.paths(), *self._listed()}, key=_age, reverse=True):
            try:
                if not path.exists():
                    raise UserError(f"checkpoint {path} was removed.")
                return read_checkpoint(path), problems
            except UserError as error:
                problems.append(str(error))
        if problems:
            raise UserError(" ".join(problems) + " No checkpoint is left to resume from.")
        return None, []

    def _listed(self) -> list[Path]:
        """Return the checkpoints that were there after the last one was written."""
        listed = self.folder / NEWEST
        if not listed.exists():
            return []
        names = read_bytes(listed, 1 << 12).decode("utf-8", "replace").split()
        return [self.folder / name for name in names if re.fullmatch(r"step-\d+\.npz", name)]


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint file; every array is verified against its checksum in the file."""
    try:
        with files.open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            # Members that are compressed or share their bytes could be without end.
            if any(each.compress_type != zipfile.ZIP_STORED for each in members):
                raise ValueError
            if sum(each.file_size for each in members) > path.stat().st_size:
                raise ValueError
            # Read whole, as the archive's checksums are compared then alone. A header that claims
            # more than there is gets memory that is never touched, or none.
            arrays = {
                name: np.lib.format.read_array(io.BytesIO(archive.read(name)))
                for name in sorted(archive.namelist())
            }
        state = json_object(arrays.pop("state.npy").tobytes(), str(path))
        step = int(path.stem.removeprefix("step-"))
        return Checkpoint(step, list(arrays.values()), state)
    except Exception as error:  # an altered archive fails in many ways, none of them useful here
        raise UserError(f"checkpoint {path} is damaged ({type(error).__name__}).") from None
