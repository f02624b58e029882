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

from ..arguments import without
from ..schema.help import option_value
from ..schema.reading import KEPT_SECTIONS, by_key, changed_keys
from ..store.files import MOST_JSON, checksum, known_checksums, read_bytes, write_text
from ..training.callbacks import KeepBest
from ..training.judgement import short
from ..training.run_folder import CARD_FILE, RunFolder
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


def write_card_of_run(
    task: keras_hub.models.Task, run: RunFolder, config: Any, best: KeepBest
) -> None:
    """Write the card of a run and its best epoch; one that somebody edited stays as it is."""
    path = run.path / CARD_FILE
    known = known_checksums(run.path).get(CARD_FILE, [])
    is_edited = path.is_file() and checksum(path) not in known
    if is_edited:
        return
    files = {
        name: f"`{Path(file).name}`, SHA-256 `{sha}`"
        for name, (file, sha) in run.about["inputs"].items()
    }
    given = {name: f"SHA-256 `{sha}`" for name, sha in run.about["given"].items()}
    data = _listed(files | given) or f"- `data.dataset`: {config.data.dataset}"
    sections = {"Data": data, "Training": _training(task, run, config)}
    figures = {name: short(value, digits=5) for name, value in best.figures.items()}
    updates = f" ({best.step:,} updates)" if best.step else ""
    sections["Figures"] = (
        f"Of the weights after epoch {best.epoch}{updates}, on the "
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
    if start := about["from"]:
        known = (
            f", whose weights have the SHA-256 `{start['weights']}`" if "weights" in start else ""
        )
        end += f"\n\nIt started from the preset `{_own_name(start['preset'])}`{known}."
    for each in about["accepted"]:
        changes = "; ".join(each["changes"])
        end += f"\n\nContinued after {each['after']} with changes: {changes}."
    if about["given"]:
        changed = {name: each for name, each in changed.items() if name.startswith("training.")}
        return f"`{type(task).__name__}.fit(run=...)` in Python.\n\n{_listed(changed)}{end}"
    words = ["keras-attention", "train", task.name_of_task]
    if start := about["from"]:
        words += ["--from", _own_name(start["preset"])]
        changed = {k: v for k, v in changed.items() if k.partition(".")[0] not in KEPT_SECTIONS}
    for name, each in changed.items():
        value = _own_name(each) if name in about["inputs"] else option_value(each)
        words += [f"--{name}", shlex.quote(value)]
    return f"```bash\n{' '.join([*words, '--output', 'RUN'])}\n```{end}"


def _own_name(path: str) -> str:
    """Return the name of a file or folder without its path, which is private."""
    return Path(path).name if Path(path).is_absolute() else path


def _listed(facts: Mapping[str, Any]) -> str:
    return "\n".join(f"- `{name}`: {value}" for name, value in facts.items())
