"""Presets: folders with a task's parts, found by name, path or handle."""

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import keras_hub

from ..training.config import MOST
from .errors import UserError, check_choice, check_range, one_line, shown
from .files import MOST_JSON, json_object, read_bytes, verify_checksum
from .weights import check_sizes

TASK_FILE, NETWORK_FILE = "task.json", "config.json"
PREPROCESSOR_FILE, WEIGHTS_FILE = "preprocessor.json", "model.weights.h5"
PRESETS = Path(__file__).parents[1] / "presets"
"""The presets that come with the package, one folder each."""


def write_parts(task: keras_hub.models.Task, folder: Path) -> None:
    """Write what a preset holds beside weights into a folder."""
    described = keras.saving.serialize_keras_object(task)
    parts = {TASK_FILE: described, NETWORK_FILE: keras.saving.serialize_keras_object(task.backbone)}
    # A preprocessor, with the vocabularies, has a file of its own.
    if task.preprocessor is None:
        del described["config"]["preprocessor"]
    else:
        parts[PREPROCESSOR_FILE] = described["config"]["preprocessor"]
        described["config"]["preprocessor"] = None
    for name, part in parts.items():
        (folder / name).write_text(json.dumps(part, indent=2) + "\n", encoding="utf-8")


def preset_folder(preset: Path | str) -> Path:
    """Return the folder of a preset, fetched where it is a handle."""
    name = str(preset)
    if name.startswith("hf://"):
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name.removeprefix("hf://")))
    if name.startswith("kaggle://"):
        from kagglehub import model_download

        return Path(model_download(name.removeprefix("kaggle://")))
    if Path(preset).is_dir():
        return Path(preset)
    if (PRESETS / name).is_dir() and "/" not in name:
        return PRESETS / name
    known = sorted(each.name for each in PRESETS.iterdir()) if PRESETS.is_dir() else []
    raise UserError(
        f"there is no preset {preset}. Expected: a folder, hf://USER/NAME, kaggle://HANDLE, or one "
        f"of those that come with the package ({', '.join(known) or 'none'})."
    )


def read_part(folder: Path, name: str) -> dict[str, Any]:
    """Return a part of a preset as JSON types."""
    path = folder / name
    if not path.exists():
        raise UserError(f"{folder} is no preset, or half-written: it has no {name}.")
    text = read_bytes(path, MOST_JSON)
    verify_checksum(path)
    content = json_object(text, str(path))
    kinds = {"registered_name": str, "class_name": str, "config": dict}
    if not all(isinstance(content.get(key), kind) for key, kind in kinds.items()):
        raise UserError(f"{path} is damaged: expected an object with {', '.join(kinds)}.")
    return content


@contextmanager
def making(what: str, path: Path, given: Iterable[str] = ()) -> Iterator[None]:
    """Make something of a description; a `UserError` names the file where that fails.

    An altered description fails in many ways, and so do arguments `given` to change it.
    """
    wrong = "".join(f"`{name}`, as given, is wrong, or " for name in given)
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"{path} describes a {what} that this version cannot make "
            f"({one_line(error)[:200]}): {wrong}it is damaged, or from a newer keras-attention."
        ) from None


def check_arguments(task_class: type, dtype: Any, changes: Mapping[str, Any]) -> None:
    """Refuse arguments that no file is to blame for."""
    takes = [inspect.signature(each.__init__).parameters for each in task_class.__mro__]  # type: ignore[misc]
    known = set().union(*takes) - {"self", "args", "kwargs"}
    for name in changes:
        check_choice("an argument of `from_preset`", name, sorted(known))
    try:
        keras.dtype_policies.get(dtype)
    except (TypeError, ValueError):
        raise UserError(
            "`dtype` must be a dtype or policy of Keras, such as 'float32' or 'mixed_bfloat16'. "
            f"Received: {shown(dtype)}."
        ) from None


def read_task(
    task_class: type, folder: Path, load_weights: bool, dtype: Any = None, **changes: Any
) -> keras_hub.models.Task:
    """Return the task of a preset with new weights, its network in another `dtype` if wanted."""
    described = read_part(folder, TASK_FILE)
    found = keras.saving.get_registered_object(described["registered_name"])
    if not (isinstance(found, type) and issubclass(found, task_class)):
        raise UserError(
            f"{folder} is a preset of `{described['class_name']}`. Expected: {task_class.__name__}."
        )
    check_arguments(found, dtype, changes)
    config = described["config"]
    if load_weights:
        check_sizes(config.get("backbone"), folder / WEIGHTS_FILE)
    if "preprocessor" in config and "preprocessor" not in changes:
        config["preprocessor"] = read_part(folder, PREPROCESSOR_FILE)
    given = [*changes, *(["dtype"] if dtype is not None else [])]
    with making("task", folder / TASK_FILE, given):
        for name in ("beam_size", "n_best", "max_length", "batch_size"):  # else out of memory
            check_range(name, (config.get("search") or {}).get(name), at_most=MOST[name])
        if dtype is not None:
            policy = keras.dtype_policies.get(dtype)
            config["backbone"]["config"]["dtype"] = keras.dtype_policies.serialize(policy)
        # Keras would make the optimizer's variables, twice as many as weights: `fit` makes them.
        compiling = described.pop("compile_config", None)
        task = keras.saving.deserialize_keras_object({**described, "config": config | changes})
        if compiling and changes.get("compile", True):
            task.compile(**keras.saving.deserialize_keras_object(compiling))
        return task
