"""Files written whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from keras_attention.applications.common.errors import UserError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`, and rename it to `path` when the block succeeds.

    The contents reach the disk before the name does, so a kill or a power cut at any moment
    leaves either the old file or the new one, and what a kill leaves behind is overwritten next
    time. The suffixes of `path` are kept, because Keras chooses its format by them.
    """
    path = Path(path)
    temporary = path.with_name(f".partial-{path.name}")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextmanager
def new_folder(output: Path | str) -> Iterator[Path]:
    """Give a path to write a folder at, which becomes `output` as a whole or not at all.

    Raises:
        UserError: if there is something at `output`.
    """
    output = Path(output)
    refuse_existing_output(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f".{output.name}.preparing")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        yield temporary
        temporary.rename(output)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 to `path`, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def refuse_existing_output(path: Path | str) -> None:
    """Refuse to write over a file or folder.

    Raises:
        UserError: if there is something at `path`.
    """
    if os.path.lexists(path):
        raise UserError(f"{path} already exists. Choose another --output.")


def check_new_file(path: Path | str) -> None:
    """Refuse a file that cannot be written new, before work is done for it.

    Raises:
        UserError: if there is something at `path`, or no folder to hold it.
    """
    refuse_existing_output(path)
    folder = Path(path).parent
    if not folder.is_dir():
        raise UserError(f"{path} cannot be written: there is no folder {folder}.")


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable, on systems where a folder can be opened."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
