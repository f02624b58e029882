"""The weights of a network in a file: written whole, and read only where they are sound."""

import math
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_attention.paths import input_path, output_path

from ..errors import UserError, one_line, shown
from .files import note_checksum, open_regular, refuse_existing_output, replacing, verify_checksum


class SavedWhole:
    """Mixin of a Keras model whose files are written whole or not at all, where there is room.

    A file that is there already is kept where a write fails, or where `overwrite` is False. A model
    in several files (`zipped=False`, `max_shard_size`) is written by Keras, file by file.
    """

    def save(
        self,
        filepath: Path | str,
        overwrite: bool = True,
        zipped: bool | None = None,
        **kwargs: Any,
    ) -> None:
        _write(super().save, self, filepath, overwrite, zipped=zipped, **kwargs)  # type: ignore[misc]

    def save_weights(
        self, filepath: Path | str, overwrite: bool = True, max_shard_size: float | None = None
    ) -> None:
        write = super().save_weights  # type: ignore[misc]
        _write(write, self, filepath, overwrite, max_shard_size=max_shard_size)

    def load_weights(self, filepath: Path | str, *args: Any, **kwargs: Any) -> None:
        super().load_weights(input_path(filepath), *args, **kwargs)  # type: ignore[misc]


def _write(write: Callable, model: Any, path: Path | str, overwrite: bool, **options: Any) -> None:
    path = output_path(path)
    check_room(path, model)
    if not overwrite:
        refuse_existing_output(path)
    has_parts = options.get("max_shard_size") or options.get("zipped") is False
    if has_parts or path.suffix not in (".keras", ".h5"):  # several files
        return write(path, **options)
    with replacing(path, new=not overwrite) as temporary:
        write(temporary, **options)


def save_weights(model: keras.Model, path: Path) -> None:
    """Write the weights of `model` alone, without its optimizer's, to a `.weights.h5` file.

    Where the folder has checksums, that of the file is among them.
    """
    optimizer, model.optimizer = getattr(model, "optimizer", None), None
    try:
        with replacing(path) as temporary:
            check_room(path, model)
            keras.Model.save_weights(model, temporary)
            note_checksum(path, temporary)
    finally:
        model.optimizer = optimizer


def check_room(path: Path, model: keras.Model) -> None:
    """Raise an OSError where the disk has no room for a model beside `path`.

    HDF5 may crash the process there, so this comes before Keras writes a file.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    optimizer = getattr(model, "optimizer", None)
    size = 16384
    for variable in [*model.variables, *(optimizer.variables if optimizer else [])]:
        bits = int((re.findall(r"\d+", str(variable.dtype)) or [8])[0])  # 8 of bool
        size += 4096 + math.prod(variable.shape) * bits // 8  # HDF5 adds less than 4 KiB to each
    folder = next(each for each in path.absolute().parents if each.is_dir())
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def load_weights(model: keras.Model, path: Path, is_checked: bool = False) -> None:
    """Load the weights of `model` alone from a file, which `check_weights` refuses if not sound.

    `is_checked` says that the file was checked already, as `check_sizes` does.
    """
    path = Path(path)
    if not path.exists():
        raise UserError(
            f"{path.parent} has no weights: {path.name} is missing. A run has them from the end of "
            "its first epoch on: continue it with `train --resume`."
        )
    if not is_checked:
        check_weights(path)
    optimizer, model.optimizer = getattr(model, "optimizer", None), None
    try:
        model.load_weights(path)
    except Exception as error:  # a damaged file fails in many ways, none of them useful here
        raise _unsound(path, type(error).__name__) from None
    finally:
        model.optimizer = optimizer


def check_weights(path: Path) -> int:
    """Refuse a file of weights that is damaged, changed, leads elsewhere, or is not finite.

    Return the length of its longest axis.
    """
    import h5py

    verify_checksum(path)
    open_regular(path).close()
    left, longest = path.stat().st_size, 0

    def check(group):
        nonlocal left, longest
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise UserError(f"{path} is refused: its entry {name!r} leads out of the file.")
            item = group[name]
            if isinstance(item, h5py.Group):
                check(item)
                continue
            if item.external or item.is_virtual:
                raise UserError(f"{path} is refused: its entry {item.name!r} lies in another file.")
            left, longest = left - item.nbytes, max(longest, 0, *item.shape)
            if left < 0:
                raise _unsound(path, "it says that it holds more than it does")
            if item.dtype.kind == "f" and not np.isfinite(item[()]).all():
                raise UserError(
                    f"{path} holds weights that are NaN or infinite (in {item.name}): no result of "
                    "them would mean anything. Train again, or restore the file from a copy."
                )

    try:
        with h5py.File(path, "r") as file:
            check(file)
    except UserError:
        raise
    except Exception as error:  # HDF5's own errors are many and say nothing to a user
        raise _unsound(path, type(error).__name__) from None
    return longest


_SIZE = re.compile(r"(^|_)(units|size|dim|heads|layers|outputs)$")
"""The keys of a description whose number is the length of an axis of weights, or a part of it."""
_SMALL = {"layers": 64}
_SMALL_OTHERS = 4096
"""Arguments that any network may have: some describe sizes without weights in their encoder."""


def check_sizes(described: Any, path: Path) -> None:
    """Refuse a description whose network is larger than its file of weights, which is checked.

    A network is built before its weights are read, and a size of billions would take all memory.

    Raises:
        UserError: naming the size.
    """
    if not path.exists():
        return
    longest = check_weights(path)

    def check(value):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(each, (dict, list)):
                check(each)
            elif type(each) is int and (found := _SIZE.search(str(key))):
                if each <= max(longest, _SMALL.get(found[2], _SMALL_OTHERS)):
                    continue
                raise UserError(
                    f"{path.parent} describes a network with {key} {shown(each)}, and {path.name} "
                    f"has no axis that long. It is damaged, or its parts are of several models."
                )

    check([described])


def _unsound(path: Path, cause: str) -> UserError:
    return UserError(
        f"{path} cannot be loaded ({one_line(cause)}): it is damaged, or fits another model than "
        "its folder describes. `train --resume` on a run writes it anew once a better epoch comes."
    )
