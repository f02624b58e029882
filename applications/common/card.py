"""Model cards: the README.md of a preset or a run, which says what made a model and how good it is.

That of a run is written anew after each epoch, with the data, the command and the figures of the
best epoch so far.
"""

import hashlib
import platform
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import keras_hub

from ..training.config import by_key, changed_keys
from ..training.run_folder import CARD_FILE, RunFolder, read_metrics
from .arguments import without
from .files import MOST_JSON, checksum, known_checksums, read_bytes, write_text
from .presets import PREPROCESSOR_FILE, WEIGHTS_FILE

MISSING = "To be filled in by the author of this model."


def model_card(task: keras_hub.models.Task, sections: Mapping[str, str] = {}) -> str:
    """Return a description of a task in Markdown, for people who find its preset.

    `sections` are texts by their headings; those that every card should have are marked as missing
    where they are not among them.
    """
    config = without("name", task.backbone.get_config())
    network = {name: each for name, each in config.items() if isinstance(each, (int, float, str))}
    parts = dict.fromkeys(("Data", "Training", "Figures", "Licence"), MISSING) | dict(sections)
    return (
        "---\nlibrary_name: keras-attention\n"
        f"tags: [{task.name_of_task.replace('_', '-')}]\n---\n"
        f"# {type(task).__name__}: {type(task.backbone).__name__}\n\n"
        f"A model of keras-attention with {task.count_params():,} weights.\n\n{_listed(network)}\n"
        + "".join(f"\n## {name}\n\n{text}\n" for name, text in parts.items())
    )


def card_of_preset(task: keras_hub.models.Task, folder: Path) -> str:
    """Return the card of a new preset, which `folder` holds but for its card.

    It is that of the folder which the task was read from, where nothing has changed since.
    """
    source = task.preset_folder
    has_card = source is not None and (source / CARD_FILE).is_file()
    if not has_card or _parts_of(source) != _parts_of(folder):
        return model_card(task, task.card_sections)
    return read_bytes(source / CARD_FILE, MOST_JSON).decode("utf-8", "replace")


def _parts_of(folder: Path) -> dict[str, str]:
    """Return the checksums of the arrays of a preset, and of its preprocessor."""
    import h5py

    preprocessor, weights = folder / PREPROCESSOR_FILE, folder / WEIGHTS_FILE
    found = {preprocessor.name: checksum(preprocessor)} if preprocessor.is_file() else {}

    def add(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = hashlib.sha256(item[()].tobytes()).hexdigest()

    if weights.is_file():
        with h5py.File(weights, "r") as file:
            file.visititems(add)
    return found


def write_card_of_run(task: keras_hub.models.Task, run: RunFolder, config: Any) -> None:
    """Write the card of a run, which has had an epoch; one that somebody edited stays as it is."""
    path = run.path / CARD_FILE
    known = known_checksums(run.path).get(CARD_FILE, [])
    is_edited = path.is_file() and checksum(path) not in known
    if is_edited or run.about["format"] == 1:  # which has no checksums
        return
    files = {
        name: f"`{Path(file).name}`, SHA-256 `{sha}`"
        for name, (file, sha) in run.about["inputs"].items()
    }
    given = {name: f"SHA-256 `{sha}`" for name, sha in run.about["given"].items()}
    data = _listed(files | given) or f"- `data.dataset`: {config.data.dataset}"
    sections = {"Data": data, "Training": _training(task, run, config)}
    monitor, mode = config.training.monitor
    choose = max if mode == "max" else min
    best = choose(read_metrics(run.metrics), key=lambda line: line[monitor])
    figures = {name: f"{value:.5g}" for name, value in best.items() if name.startswith("val_")}
    sections["Figures"] = (
        f"Of the weights after epoch {best['epoch']} ({best['step']:,} updates), on the "
        f"development set. {task.about_figures()}\n\n{_listed(figures)}"
    )
    write_text(path, model_card(task, sections), known=True)


def _training(task, run, config) -> str:
    """Return how a run was trained: the command, or what Python gave."""
    usual, own = type(config)(), by_key(config)
    changed = {name: own[name] for name in changed_keys(usual, config)}
    about, backend = run.about, keras.backend.backend()
    end = (
        f"\n\nkeras-attention {about['package']}, Keras {about['keras']} on {backend}, "
        f"Python {platform.python_version()}."
    )
    for each in about["accepted"]:
        changes = "; ".join(each["changes"])
        end += f"\n\nContinued after {each['after']} with changes: {changes}."
    if about["given"]:
        changed = {name: each for name, each in changed.items() if name.startswith("training.")}
        return f"`{type(task).__name__}.fit(run=...)` in Python.\n\n{_listed(changed)}{end}"
    options = " ".join(
        f"--{name} {shlex.quote(_as_option(each, name in about['inputs']))}"
        for name, each in changed.items()
    )
    command = f"keras-attention train {task.name_of_task} {options} --output RUN"
    return f"```bash\n{command}\n```{end}"


def _as_option(value: Any, is_path: bool) -> str:
    """Return a value as the command takes it; of a path the name alone, as it is nobody else's."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return Path(value).name if is_path else str(value)


def _listed(facts: Mapping[str, Any]) -> str:
    return "\n".join(f"- `{name}`: {value}" for name, value in facts.items())
