"""Training any task from its configuration: read, adapt, build, fit; and continuing it."""

import dataclasses
import functools
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention.applications.common.errors import UserError, say
from keras_attention.applications.common.presets import PREPROCESSOR_FILE, TASK_FILE, read_part
from keras_attention.applications.common.task import TextTask
from keras_attention.applications.training.config import load_config, save_config
from keras_attention.applications.training.devices import (
    model_scope,
    on_all_replicas,
    start_from_seed,
)
from keras_attention.applications.training.fit import Outcome, train
from keras_attention.applications.training.reporting import TokenCount
from keras_attention.applications.training.run_folder import (
    Checkpoints,
    RunFolder,
    is_free,
    read_checkpoint,
    writing,
)
from keras_attention.applications.training.starting import resume_run, start_run, take_over


def train_task(task_class: type[TextTask], config: Any, output: Path | str) -> Outcome:
    """Train a task into the new run folder `output`.

    Args:
        task_class: the class of the task.
        config: its configuration: what to train, and on which data.
        output: the folder to make.

    Returns:
        How the training ended.

    Raises:
        UserError: if the folder exists, or data or configuration are wrong; nothing is left then.
    """
    prepare, fit = (functools.partial(act, task_class) for act in (_prepare, _fit))
    return start_run(with_absolute_paths(config), output, prepare, fit)


def resume_task(
    task_class: type[TextTask], config: Any, output: Path | str, accept_changes: bool = False
) -> Outcome:
    """Continue a run as if it had never stopped.

    Args:
        task_class: the class of the task.
        config: the run's own configuration, in which `epochs` (but with schedule cosine),
            `max_minutes` and `patience` may have been changed.
        output: the run folder.
        accept_changes: go on where data, versions or other keys differ; the run folder records it.

    Returns:
        How the training ended.

    Raises:
        UserError: if something else was changed, or another process trains this run.
    """
    fit = functools.partial(_fit, task_class)
    return resume_run(with_absolute_paths(config), output, fit, accept_changes)


def fit_in_run(
    task: TextTask,
    run: RunFolder,
    config: Any,
    corpora: Sequence[Any],
    workers: Any = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> Outcome:
    """Train a task in its run folder, from the last good checkpoint if there is one.

    Args:
        task: the task, made in `model_scope`.
        run: its folder.
        config: the configuration, as it is on all replicas.
        corpora: what to train with, and what to judge by; each with its ids, where they are known.
        workers: the processes that train.
        callbacks: more Keras callbacks.
    """
    section = config.training
    (corpus, encoded), (held_out, encoded_held_out) = corpora
    say(str(encoded.report))
    batches = task.make_batches(encoded, seed=section.seed, **task.batch_options(section))
    say(str(encoded_held_out.report))
    judged = task.make_batches(
        encoded_held_out, shuffle=False, like=batches, **task.batch_options(section)
    )
    padding = getattr(batches, "padding_fraction", None)
    say(
        f"{type(task.backbone).__name__}: {task.count_params():,} weights; {len(batches)} batches"
        + (f", {padding:.0%} padding" if padding is not None else "")
        + (f" ({section.accumulate} an update)" if section.accumulate > 1 else "")
    )
    strategy = getattr(task, "distribute_strategy", None)
    with strategy.scope() if strategy else nullcontext():
        metrics = [TokenCount()] if task.counts_tokens else []
    return train(
        run,
        section,
        task,
        task.default_loss(),
        batches.to_dataset,
        len(batches),
        task.development(held_out, judged, config),
        metrics=metrics,
        workers=workers,
        callbacks=callbacks,
    )


def fit_new_run(
    task: TextTask,
    corpus: Any,
    held_out: Any,
    output: Path | str,
    training: Any = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    **changes: Any,
) -> Outcome:
    """Train a task on corpora at hand, in a new run folder or on from the one that is there.

    Args:
        task: the task, with the weights to start from.
        corpus: what to train with.
        held_out: what to judge by.
        output: the run folder.
        training: the training section; None for the task's defaults.
        callbacks: more Keras callbacks.
        **changes: keys of the training section to change; None changes nothing.

    Raises:
        ValueError: if there is nothing to judge by, or `output` is something else than a run.
    """
    if held_out is None:
        raise ValueError(
            "A run is judged after each epoch: give `validation_data` or `validation_split`. "
            "Received: neither"
        )
    config = task.config_class()
    changes = {name: value for name, value in changes.items() if value is not None}
    section = dataclasses.replace(training or config.training, **changes)
    config = dataclasses.replace(config, training=section)
    corpora = [(each, task.encode(each)) for each in (corpus, held_out)]
    if is_free(output):
        with RunFolder.prepare(output, task.name_of_task) as folder:
            save_config(config, folder / "config.yaml")
            task.describe(folder)
    run = RunFolder(output)
    with writing(run):
        take_over(run, config)
        return fit_in_run(task, run, config, corpora, callbacks=callbacks)


def with_absolute_paths(config: Any) -> Any:
    """Return `config` with absolute paths, so that a run can be used from any folder."""

    def absolute(section):
        given = {name: getattr(section, name) for name in getattr(section, "paths", ())}
        paths = {name: Path(path).expanduser().absolute() for name, path in given.items() if path}
        return dataclasses.replace(section, **{name: str(path) for name, path in paths.items()})

    names = (field.name for field in dataclasses.fields(config))
    return dataclasses.replace(config, **{name: absolute(getattr(config, name)) for name in names})


def precision_of(config: Any) -> str:
    """Return the dtype policy of all verbs but `train`."""
    return getattr(getattr(config, "decoding", None), "precision", "float32")


def _prepare(task_class: type[TextTask], config: Any, output: Path | str) -> list:
    """Make the run folder; return the corpora and their ids."""
    task_class.check_data(config)
    corpus, held_out = _read(task_class, config)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        preprocessor = task_class.adapt(config, corpus)
    for text in dict.fromkeys(str(each.message) for each in caught):
        say(f"note: {text}")
    # Networks that cannot be and texts that are refused must not leave a run folder: a run cannot
    # be resumed with another configuration.
    task = task_class.configured(config, preprocessor, precision_of(config))
    corpora = [(each, task.encode(each)) for each in (corpus, held_out)]
    with RunFolder.prepare(output, task_class.name_of_task) as folder:
        save_config(config, folder / "config.yaml")
        task.describe(folder)
    return corpora


def _fit(task_class: type[TextTask], output: Path | str, corpora: list | None) -> Outcome:
    run = RunFolder(output)
    config = on_all_replicas(load_config(task_class.config_class, [run.config]))
    start_from_seed(config.training)
    with model_scope(config) as workers:
        preprocessor = preprocessor_of(task_class, run)
        task = task_class.configured(config, preprocessor)
    if corpora is None:
        corpora = [(each, task.encode(each)) for each in _read(task_class, config)]
    return fit_in_run(task, run, config, corpora, workers)


def _read(task_class, config):
    return [task_class.read(config, split) for split in ("train", "dev")]


def preprocessor_of(task_class: type[TextTask], run: RunFolder) -> Any:
    """Return the preprocessor of a run; one of version 0.1 keeps its tokenizers as files."""
    if (run.path / PREPROCESSOR_FILE).is_file():
        content = read_part(run.path, PREPROCESSOR_FILE)
        preprocessor = keras.saving.deserialize_keras_object(content)
        preprocessor.read_start(run.path)
        return preprocessor
    return task_class.preprocessor_of_0_1(run.path)


def average_tasks(
    task_class: type[TextTask], folders: Sequence[Path], output: Path | str
) -> TextTask:
    """Write a preset whose weights are the mean of those of presets, or of a run's checkpoints.

    Args:
        task_class: the class of the task.
        folders: presets or run folders; of one run folder alone, its checkpoints are averaged.
        output: the preset to write; it must not exist.

    Returns:
        The task with the mean weights.

    Raises:
        UserError: where networks or preprocessors differ, or there is nothing to average.
    """
    task = task_class.from_preset(folders[0])
    if len(folders) == 1:
        sets = _weights_of_checkpoints(task, folders[0])
    else:
        sets = [_variables(task_class.from_preset(each), task, each) for each in folders]
    if len(sets) < 2:
        raise UserError(
            f"there is nothing to average: name several runs, or one with several checkpoints. "
            f"Received: {folders[0]} with {len(sets)}."
        )
    for variable, *arrays in zip(task.backbone.weights, *sets, strict=True):
        if np.issubdtype(arrays[0].dtype, np.integer):  # the state of a seed generator
            continue
        variable.assign(np.mean(arrays, axis=0, dtype="float64").astype(arrays[0].dtype))
    task.save_to_preset(output)
    return task


def _variables(other: TextTask, task: TextTask, folder: Path) -> list[np.ndarray]:
    """Return the weights of a task that must be like another."""
    parts = (
        ("network", other.backbone, task.backbone),
        ("preprocessor", other.preprocessor, task.preprocessor),
    )
    for name, own, wanted in parts:
        settings = [{**each.get_config(), "name": None} for each in (own, wanted)]
        if type(own) is not type(wanted) or settings[0] != settings[1]:
            raise UserError(f"{folder} has another {name} than the first: they have no mean.")
    return [np.array(ops.convert_to_numpy(each)) for each in other.backbone.weights]


def _weights_of_checkpoints(task: TextTask, folder: Path) -> list[list[np.ndarray]]:
    """Return the weights in each checkpoint of a run, which come first in its arrays."""
    paths = Checkpoints(folder / "checkpoints").paths()
    # A checkpoint holds the network's variables first, its weights among them.
    places = {id(each): place for place, each in enumerate(task.backbone.variables)}
    wanted = [places[id(each)] for each in task.backbone.weights]
    sets = []
    for path in paths:
        arrays = dict(enumerate(read_checkpoint(path).arrays))
        sets.append([arrays.get(place, np.array(np.nan)) for place in wanted])
        for variable, array in zip(task.backbone.weights, sets[-1], strict=True):
            is_number = array.dtype.kind in "fiu"
            if array.shape != variable.shape or not (is_number and np.isfinite(array).all()):
                raise UserError(f"checkpoint {path} holds no finite weights of this network.")
    return sets


def task_of_folder(folder: Path, commands: Mapping[str, Any]) -> str:
    """Return the name of the task of a run folder or preset.

    Raises:
        UserError: where it is neither.
    """
    if (folder / "FORMAT").is_file() or (folder / "config.yaml").is_file():
        return RunFolder(folder).task
    name = read_part(folder, TASK_FILE)["class_name"]
    for command in commands.values():
        if name in (command.task_class, *command.classes):
            return command.name
    raise UserError(f"{folder} is a preset of `{name}`, which is no task of this package.")


def config_of(task_class: type[TextTask], path: Path | str) -> Any:
    """Return the configuration that a run folder holds; None for a preset.

    Raises:
        UserError: where it is damaged.
    """
    file = Path(path) / "config.yaml"
    return load_config(task_class.config_class, [file]) if file.is_file() else None
