"""What engines make of a network: when it is stale, and where a run folder or preset keeps it."""

import hashlib
import json
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from ..common.arguments import settings_of
from ..common.errors import UserError
from ..common.files import checksum, known_checksums, new_folder, write_checksums
from ..common.presets import PRESETS
from ..common.task import TextTask

WAY_OUT = "without the engine, our own search does it."
MOST_KEPT = 12
BLOCK, PARTS = 509, 16
"""Of a fingerprint: numbers in a row, a prime number, and parts whose rows are added up."""


def fingerprint(network: Any) -> list[int]:
    """Return numbers that change with the weights, in the time that it takes to read them once.

    They find changes between two calls. Files are named by a digest.
    """
    found, size = [], 8 * BLOCK * PARTS
    for content in _contents(network):
        whole = len(content) // size * size
        rows = content[:whole].view(np.uint64).reshape(PARTS, -1, BLOCK)
        # In rows of a prime number weights that are swapped change the sums of their columns.
        found += [zlib.crc32(rows.sum(axis=1).tobytes()), zlib.crc32(content[whole:].tobytes())]
    return found


def _contents(network: Any) -> Iterator[np.ndarray]:
    """Yield the bytes of each weight, on TensorFlow without a copy."""
    for weight in network.weights:
        value = ops.convert_to_tensor(weight)
        is_at_hand = keras.backend.backend() == "tensorflow"
        array = np.asarray(value) if is_at_hand else ops.convert_to_numpy(value)
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def words_of(task: TextTask) -> list[list[str]]:
    """Return the vocabularies of source and target."""
    sides = task.preprocessor.source_tokenizer, task.preprocessor.target_tokenizer
    return [list(side.vocabulary) for side in sides]


@contextmanager
def kept(
    task: TextTask,
    engine: str,
    version: int,
    make: Callable[[Path], None],
    kind: str = "",
    **settings: Any,
) -> Iterator[Path]:
    """Give what `make` writes at a path for a task's network; `kind` says which of several.

    A run folder or preset keeps it in the folder `engine`, where it can be written to, until the
    weights, the vocabularies, the settings or the `version` of the conversion are others. Of all
    kinds it keeps the twelve that were used last.
    """
    folder = task.preset_folder
    if folder is None or folder.parent == PRESETS or not _can_be_written(folder / engine):
        with tempfile.TemporaryDirectory() as temporary:
            model = Path(temporary) / "model"
            make(model)
            yield model
        return
    own = _digest(task, version, settings)
    model = folder / engine / (own + kind)
    if not _is_whole(model):
        shutil.rmtree(model, ignore_errors=True)
        with suppress(FileExistsError), new_folder(model, _refuse_whole) as new:
            make(new)
            write_checksums(new)
    with suppress(OSError):
        os.utime(model)
    found = [each for each in model.parent.iterdir() if re.match("[0-9a-f]{32}", each.name)]
    own_ones = [each for each in found if each.name.startswith(own)]
    newest = sorted(own_ones, key=lambda each: each.stat().st_mtime, reverse=True)
    for other in set(found) - set(newest[:MOST_KEPT]):
        shutil.rmtree(other, ignore_errors=True)
    yield model


def _can_be_written(folder: Path) -> bool:
    """Whether a folder can be made and written to, and leads nowhere else."""
    if folder.is_symlink():
        return False
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    return False


def _refuse_whole(model: Path) -> None:
    """Leave a conversion that another process has made meanwhile as it is."""
    if _is_whole(model):
        raise FileExistsError(model)


def _is_whole(model: Path) -> bool:
    """Whether a folder holds a conversion, undamaged."""
    try:
        known = known_checksums(model)
        return bool(known) and all(checksum(model / name) in known[name] for name in known)
    except UserError:
        return False


def _digest(task: TextTask, version: int, settings: dict[str, Any]) -> str:
    """Return a name for all that a conversion is made of: settings, vocabularies, weights."""
    parts = [version, {**settings_of(task.backbone), **settings}, *words_of(task)]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode())
    for content in _contents(task.backbone):
        digest.update(content)
    return digest.hexdigest()[:32]
