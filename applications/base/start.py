"""Training that starts from a preset: its settings, and what a configuration may change of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..errors import UserError, shown
from ..schema.help import option_value
from ..schema.keys import Config
from ..schema.reading import KEPT_SECTIONS, by_key, given_keys, load_config
from .task import TextTask

SOURCES = ("dataset", "dev_fraction", "folds", "fold")
"""The keys of a data section, beside its paths, that say which data there are."""


def config_from(
    task: TextTask,
    preset: str,
    own: Path,
    paths: Sequence[Path | str] = (),
    overrides: Sequence[str] = (),
) -> Any:
    """Return the configuration of a training that starts from a preset.

    It has the settings of the preset where files and options give no others. Where they name data,
    none of the data of the preset are left.

    Args:
        task: the task of the preset.
        preset: its name, for messages.
        own: where its configuration lies, if it is a run folder.
        paths: files of settings.
        overrides: options, as `load_config` takes them.

    Raises:
        UserError: where settings contradict the network or the vocabularies of the preset, or
            nothing of it can be trained.
    """
    _check_learns(task, preset)
    kind = task.config_class
    given = given_keys(kind, paths, overrides)
    known = _written(kind, own)
    known |= task.settings(known)
    data = next(field.type for field in fields(kind) if field.name == "data")
    named = {f"data.{name}" for name in (*SOURCES[:1], *data.paths)}
    if named & set(given):
        left_out = {*named, *(f"data.{name}" for name in SOURCES)}
        known = {key: value for key, value in known.items() if key not in left_out}
    start = [f"--{key}={option_value(value)}" for key, value in known.items()]
    # Null stands for what the network has, which files of settings do not know.
    nulls = [key for key, is_null in given.items() if is_null and _is_kept(task, key)]
    overrides = [
        *overrides,
        *(f"--{key}={option_value(known[key])}" for key in nulls if key in known),
    ]
    config = load_config(kind, paths, overrides, start)
    if "data.dataset" in given:
        # A known data set brings its columns; its sizes of networks are no matter here.
        columns = [key for key in _brought(kind, by_key(config)) if key.startswith("data.")]
        start = [each for each in start if each[2:].partition("=")[0] not in columns]
        config = load_config(kind, paths, overrides, start)
    _check_agrees(task, preset, given, load_config(kind, defaults=start), config)
    return config


def _brought(kind: type[Config], config: Mapping[str, Any]) -> set[str]:
    """Return the keys whose defaults the data set and the architecture of a configuration bring."""
    conditions = {name for each in kind.defaults for name in each.when}
    return set(kind.brought({name: config[name] for name in conditions}))


def _written(kind: type, own: Path) -> dict[str, Any]:
    """Return what a run folder says of its training, but where its vectors of words came from."""
    written = by_key(load_config(kind, [own])) if own.is_file() else kind.usual()
    return {key: value for key, value in written.items() if not key.startswith("vectors.")}


def _check_learns(task: TextTask, preset: str) -> None:
    network = task.backbone
    if network.get_config().get("quantized"):
        raise UserError(
            f"{preset} is quantized, and integers cannot be trained: start from the preset that it "
            "was made of, or adapt it in Python with `backbone.enable_lora`."
        )
    if not task.trainable_variables:
        raise UserError(
            f"All layers of {preset} are frozen, so that nothing would be trained: set `trainable` "
            "in Python, and save it again."
        )


def _is_kept(task: TextTask, key: str) -> bool:
    """Whether a training from a preset cannot change a key."""
    rates = {f"model.{name}" for name in task.backbone.get_config() if name.endswith("dropout")}
    if key in rates or key in task.preprocessor_keys:
        return False
    return key.partition(".")[0] in KEPT_SECTIONS or key in task.kept_keys


def _check_agrees(
    task: TextTask, preset: str, given: Iterable[str], base: Any, config: Any
) -> None:
    """Raise a UserError where given keys contradict what a preset has."""
    has, wanted = by_key(base), by_key(config)
    wrong = [key for key in given if _is_kept(task, key) and wanted[key] != has[key]]
    if wrong:
        own = ", ".join(f"{key} {option_value(has[key])}" for key in wrong[:5])
        received = ", ".join(shown(wanted[key]) for key in wrong[:5])
        raise UserError(
            f"A training that starts from {preset} keeps its network and its vocabularies, with "
            f"{own}: leave {'it' if len(wrong) == 1 else 'them'} out, or train without --from. "
            f"Received: {received}."
        )
