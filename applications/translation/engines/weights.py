"""What engines make of a network: when it is stale, and where a run folder or preset keeps it."""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from ...arguments import settings_of
from ...base.presets import PRESETS
from ...base.task import TextTask
from ...errors import UserError
from ...store.files import checksum, known_checksums, new_folder, write_checksums
from ..preprocessor import distinct_words

WAY_OUT = "without the engine, our own search does it."
MOST_KEPT = 12


class Weights:
    """The values of a network's weights, held to find out whether it has others now.

    A value of TensorFlow or JAX never changes. So a weight still has the value that is held if it
    lies at the same address; only others are compared.

    Args:
        network: the network.
    """

    def __init__(self, network: Any):
        self._variables = network.weights
        self._read = _reader(self._variables)
        self._contents = self._read()

    def are(self, network: Any) -> bool:
        """Whether a network has these values."""
        weights = network.weights
        if [id(each) for each in weights] != [id(each) for each in self._variables]:
            return False
        pairs = zip(self._contents, self._read(), strict=True)
        return all(_address(a) == _address(b) or np.array_equal(a, b) for a, b in pairs)


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _reader(weights: Sequence[keras.Variable]) -> Callable[[], list[np.ndarray]]:
    """Return a function that gives the bytes of each weight, without a copy in main memory."""

    def values() -> list[Any]:
        return [ops.convert_to_numpy(weight) for weight in weights]

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # The array of a variable is a copy, that of a tensor is not. A graph reads 138 variables
        # in 0.6 ms, while reading them one by one takes 3.6 ms.
        @tf.function(autograph=False)
        def tensors() -> list[Any]:
            return [weight.value.value() for weight in weights]

        values = tensors.get_concrete_function()

    def read() -> list[np.ndarray]:
        return [np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in values()]

    return read


def words_of(task: TextTask) -> list[list[str]]:
    """Return the vocabularies of source and target, no word twice in one."""
    return [distinct_words(side) for side in task.preprocessor.tokenizers]


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
    for content in _reader(task.backbone.weights)():
        digest.update(content)
    return digest.hexdigest()[:32]
