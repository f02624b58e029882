"""Training any task from its configuration: read, adapt, build, fit; and continuing it."""

import dataclasses
import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import keras
import numpy as np
from keras import ops

from keras_attention.distribute import WorkerLost, Workers
from keras_attention.paths import input_path, output_path

from ..arguments import settings_of, without
from ..errors import Problems, UserError, WorkersStopped, one_line, quietly, say, shown
from ..schema.distribute import RESUMABLE
from ..schema.reading import (
    by_key,
    changed_keys,
    load_config,
    missing_paths,
    precision_of,
    save_config,
)
from ..schema.training import Precision
from ..store.files import NotWritten, checksum, digest
from ..store.weights import save_weights
from ..training import devices
from ..training.callbacks import KeepBest
from ..training.determinism import seeded
from ..training.fit import Outcome, check_executions, train
from ..training.judgement import Judge
from ..training.reporting import tensorboard_summary
from ..training.run_folder import (
    FORMAT,
    START_WEIGHTS,
    Checkpoints,
    RunFolder,
    inputs_of,
    is_free,
    read_checkpoint,
    refuse_existing,
    writing,
)
from . import presets
from .card import write_card_of_run
from .presets import NETWORK_FILE, read_part, read_preprocessor, read_task

if TYPE_CHECKING:
    from .task import TextTask


def train_task(
    task_class: "type[TextTask]", config: Any, output: Path | str, start: "TextTask | None" = None
) -> Outcome:
    """Train the task that a configuration describes into the new run folder `output`.

    With `start`, a task of a preset, network, vocabularies and first weights are those of it, and
    the configuration comes from `config_from`. Where data or configuration are wrong, a UserError
    is raised and nothing is left.
    """
    problems = Problems()
    with problems.collected():
        output = output_path(output, is_preset=True)
        refuse_existing(output)
    with problems.of_values():
        config.check()
    with problems.collected():
        config.data.check_needed()
    problems.found += missing_paths(
        {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    )
    problems.check()
    config = with_absolute_paths(config)

    def make(held):
        prepared = _prepare(task_class, config, output, start)
        held.enter_context(writing(RunFolder(output)))
        return prepared

    with _started(config, output, "a new run", make) as prepared:
        return _fit(task_class, RunFolder(output), config, *prepared or ())


def resume_task(
    task_class: "type[TextTask]", config: Any, output: Path | str, accept_changes: bool = False
) -> Outcome:
    """Continue a run as if it had never stopped.

    In its configuration, what `take_over` allows may have been changed.
    """
    output = output_path(output, is_preset=True)
    config = with_absolute_paths(config)
    folder = RunFolder(output, changed=accept_changes, task=task_class.name_of_task)
    newest = [path.name for path in Checkpoints(folder.checkpoints).paths()[-1:]]

    def take(held):
        # Before config.yaml is written: another process may be reading it.
        held.enter_context(writing(folder))
        return take_over(folder, config, accept_changes)

    with _started(config, output, *newest or ["no checkpoint"], take) as record:
        return _fit(task_class, folder, config, on_start=record)


@contextmanager
def _started(
    config: Any, output: Path | str, start: str, act: Callable[[ExitStack], Any]
) -> Iterator[Any]:
    """Once all workers agree, let the chief act, and give its result (None in other workers).

    Contexts that `act` enters in the stack it is given end with this one.
    """
    devices.check_distribution(config)
    workers = devices.devices_of(config.distribute).workers
    with ExitStack() as held, _naming_what_is_left(output, workers):
        _agree(workers, config, output, start)
        yield _by_the_chief(workers, lambda: act(held), output)


def fit_in_run(
    task: "TextTask",
    run: RunFolder,
    config: Any,
    corpora: Sequence[Any],
    workers: Workers | None = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    on_start: Callable[[], None] | None = None,
) -> Outcome:
    """Train a task in its run folder, from the last good checkpoint if there is one.

    The task was made in `model_scope`; the corpora are the ids to train with, what to judge by, and
    its ids. The texts to train with are no longer needed, and may be large. `on_start` is as in
    `train`.
    """
    section, sizes = config.training, task.batch_options(config.training)
    encoded, held_out, encoded_held_out = corpora
    say(str(encoded.report))
    task.before_training(encoded)
    batches = task.make_batches(encoded, seed=section.seed, **sizes)
    say(str(encoded_held_out.report))
    judged = task.make_batches(encoded_held_out, shuffle=False, like=batches, **sizes)
    padding, steps = getattr(batches, "padding_fraction", None), len(batches)
    say(
        f"{type(task.backbone).__name__}: {task.count_params():,} weights; {steps} batches"
        + (f", {padding:.0%} padding" if padding is not None else "")
        + (f" ({section.accumulate} an update)" if section.accumulate > 1 else "")
    )
    parts = presets.parts_of(task)

    def start() -> None:
        if on_start is not None:
            on_start()
        if workers is None or workers.is_chief:
            presets.update_task(parts, run.path)

    return train(
        run,
        section,
        task,
        task.default_loss(),
        batches.to_dataset,
        steps,
        task.development(held_out, judged, config),
        workers=workers,
        callbacks=callbacks,
        on_start=start,
        judge=_judge(task, held_out, encoded_held_out, config, workers or Workers()),
        save_more=lambda: task.write_tuned(run.path, config),
        on_judged=lambda best: _write_card(task, run, config, best),
    )


def _judge(task: "TextTask", held_out: Any, encoded: Any, config: Any, workers: Workers) -> Judge:
    """Return what "best" means on a development set, the same in all workers."""
    score = config.training.score

    def of_data():
        blind = task.blind_score(held_out) if score else ""
        facts = json.dumps(task.measured_on(held_out, encoded, config), default=_as_list)
        return blind, hashlib.sha256(facts.encode()).hexdigest()[:DIGITS]

    return Judge(score, *workers.from_chief(of_data))


DIGITS = 16
"""How much of a digest tells one development set from another."""


def _as_list(value: Any) -> list:
    """Return an array, or another sequence that JSON does not know, as a list."""
    return value.tolist() if hasattr(value, "tolist") else list(value)


def _write_card(task: "TextTask", run: RunFolder, config: Any, best: KeepBest) -> None:
    """Write the card of a run; one that cannot be written does not end the training."""
    try:
        write_card_of_run(task, run, config, best)
    except NotWritten as error:
        say(f"{error} The training goes on; the card stays as it was.")


def fit_new_run(
    task: "TextTask",
    corpus: Any,
    held_out: Any,
    output: Path | str,
    training: Any = None,
    callbacks: keras.callbacks.Callback | Sequence[keras.callbacks.Callback] | None = None,
    verbose: Any = "auto",
    accept_changes: bool = False,
    **changes: Any,
) -> Outcome:
    """Train a task on corpora at hand, in a new run folder or on from the one that is there.

    `training` is the training section, the task's default where not given; `changes` are keys of
    it, of which None changes nothing. `verbose=0` shows nothing. With `accept_changes` a run goes
    on as `take_over` says.
    """
    output = output_path(output, is_preset=True)
    config = task.config_class()
    section, kind = training or config.training, type(config.training)
    if not isinstance(section, kind):
        name = f"{kind.__module__}.{kind.__name__}"
        raise ValueError(f"`training` should be a {name}. Received: training={shown(training)}")
    keys = [field.name for field in dataclasses.fields(kind)]
    if unknown := [name for name in changes if name not in keys]:
        raise ValueError(
            "`fit` with `run` takes `training`, `callbacks`, `verbose`, `accept_changes` and the "
            f"keys of a training section beside its own arguments. Received: {', '.join(unknown)}"
        )
    if held_out is None:
        raise ValueError(
            "A run is judged after each epoch: give `validation_data` or `validation_split`. "
            "Received: neither"
        )
    changes = {name: value for name, value in changes.items() if value is not None}
    if training is None and task.learning_rate is not None:
        changes.setdefault("learning_rate", task.learning_rate)
    section = dataclasses.replace(section, **changes | _of_task(task, section, changes))
    task.check_training(section)
    if task.learning_rate is not None:  # a training of its preset goes on with the run's
        task.learning_rate = section.learning_rate
    config = dataclasses.replace(config, training=section)
    _check_logs(section)
    given = {"data to train with": digest(corpus), "data to judge by": digest(held_out)}
    corpora = task.encode_to_train(corpus), held_out, task.encode(held_out)
    _check_epoch(task, section, corpora[0])
    if is_free(output):
        with RunFolder.prepare(output, task.name_of_task, given, task.origin) as folder:
            save_config(config, folder / "config.yaml")
            task.describe(folder)
    run = RunFolder(output, changed=accept_changes, task=task.name_of_task)
    whose = "this task: give another `run`"
    parts = preprocessor_of(run), task.preprocessor
    _check_like(output, "preprocessor", *parts, whose, to_train=True)
    own = json.loads(json.dumps(keras.saving.serialize_keras_object(task.backbone)))
    known = read_part(run.path, NETWORK_FILE)
    if without("name", own) != without("name", known):
        own, known = (without("trainable", without("switched", x)) for x in (own, known))
        if without("name", own) == without("name", known):
            raise UserError(
                f"{output} trains other layers than {whose}, or freeze the same layers."
            )
        raise UserError(f"{output} has another network than {whose}.")
    with writing(run), quietly(verbose == 0), seeded(section):
        record = take_over(run, config, accept_changes, given)
        own = keras.tree.flatten(callbacks or [])
        return fit_in_run(task, run, config, corpora, callbacks=own, on_start=record)


def _of_task(task: "TextTask", section: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a training section that the task decides; refuse what differs."""
    settings, policy = {**vars(section), **changes}, task.backbone.dtype_policy.name
    own = {key: getattr(task, name) for key, name in task.training_keys.items()}
    ways = dict.fromkeys(own, f"give it to {type(task).__name__}(...)")
    if policy in get_args(Precision):
        own["precision"], ways["precision"] = policy, "give the network this `dtype`"
    if "class_weights" in settings:
        own["class_weights"], ways["class_weights"] = "none", "give `sample_weight`"
    for name, value in own.items():
        given = settings[name]
        if given != value and (name in changes or given != getattr(type(section), name)):
            raise ValueError(
                f"`{name}` is the task's own, {name}={value}: {ways[name]}, and leave it out here. "
                f"Received: {name}={given}"
            )
    return own


def with_absolute_paths(config: Any) -> Any:
    """Return `config` with absolute paths, so that a run can be used from any folder."""

    def absolute(section):
        given = {name: getattr(section, name) for name in getattr(section, "paths", ())}
        paths = {name: input_path(path).absolute() for name, path in given.items() if path}
        return dataclasses.replace(section, **{name: str(path) for name, path in paths.items()})

    names = (field.name for field in dataclasses.fields(config))
    return dataclasses.replace(config, **{name: absolute(getattr(config, name)) for name in names})


def _prepare(
    task_class: "type[TextTask]", config: Any, output: Path | str, start: "TextTask | None"
) -> tuple:
    """Make the run folder; return the ids to train with, what to judge by and its ids, together,
    and the task to train, or None where it has to be made of the folder.
    """
    _check_logs(config.training)
    corpus, held_out = _read(task_class, config)
    # Networks that cannot be and texts that are refused must not leave a run folder: a run cannot
    # be resumed with another configuration.
    scaled, trains = devices.on_all_replicas(config), False
    if start is not None:
        task = start.with_settings(config).for_corpus(corpus)
    else:
        preprocessor = _adapted(task_class, config, corpus)
        # Several workers make it together; and the folder describes it as other verbs build it.
        is_one_process = devices.devices_of(config.distribute).workers.count == 1
        trains = is_one_process and config.training.precision == precision_of(config)
        if trains:
            with seeded(scaled.training), devices.model_scope(scaled):
                task = task_class.configured(scaled, preprocessor)
        else:
            task = task_class.configured(config, preprocessor, precision_of(config))
    corpora = task.encode_to_train(corpus), held_out, task.encode(held_out)
    _check_epoch(task, scaled.training, corpora[0])
    origin = start and start.origin
    with RunFolder.prepare(output, task_class.name_of_task, origin=origin) as folder:
        save_config(config, folder / "config.yaml")
        task.describe(folder)
        if start is not None:
            save_weights(task.backbone, folder / START_WEIGHTS)
    return corpora, task if trains else None


def _adapted(task_class: "type[TextTask]", config: Any, corpus: Any) -> Any:
    """Return the preprocessor for a corpus, and show its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        preprocessor = task_class.adapt(config, corpus)
    for text in dict.fromkeys(str(each.message) for each in caught):
        say(f"note: {text}")
    return preprocessor


def _fit(
    task_class: "type[TextTask]",
    run: RunFolder,
    config: Any,
    corpora: tuple | None = None,
    task: "TextTask | None" = None,
    on_start: Callable[[], None] | None = None,
) -> Outcome:
    run.verify_parts()
    config = devices.on_all_replicas(config)
    with seeded(config.training):
        with devices.model_scope(config) as workers:
            task = task or _new_task(task_class, run, config)
        if corpora is None:
            corpus, held_out = _read(task_class, config)
            corpora = task.encode_to_train(corpus), held_out, task.encode(held_out)
            del corpus
        return fit_in_run(task, run, config, corpora, workers, on_start=on_start)


def _new_task(task_class: "type[TextTask]", run: RunFolder, config: Any) -> "TextTask":
    """Return the task of a run with the weights that its training starts from."""
    if run.start_weights.is_file():
        policy = keras.config.dtype_policy()  # of `model_scope`
        return read_task(task_class, run.path, run.start_weights, policy)
    return task_class.configured(config, preprocessor_of(run))


def _check_epoch(task: "TextTask", section: Any, encoded: Any) -> None:
    """Raise a UserError where executions do not divide an epoch, before there is a run folder."""
    if section.steps_per_execution > 1:
        batches = task.make_batches(encoded, seed=section.seed, **task.batch_options(section))
        check_executions(section.steps_per_execution, section.steps_per_epoch or len(batches))


def _check_logs(section: Any) -> None:
    """Raise a UserError where logs cannot be written, before there is a run folder."""
    if section.tensorboard:
        tensorboard_summary()


def _read(task_class, config):
    return [task_class.read(config, split) for split in ("train", "dev")]


def preprocessor_of(run: RunFolder) -> Any:
    """Return the preprocessor of a run."""
    preprocessor = read_preprocessor(run.path)
    preprocessor.read_start(run.path)
    return preprocessor


SECONDS_TO_BE_SEEN = 60.0
"""How long a folder may take to be seen on another machine."""


def _by_the_chief(workers: Workers, act: Callable[[], Any], output: Path | str) -> Any:
    """Act in the chief alone; return the result there, and None elsewhere.

    An error that the chief's user can put right is one on all workers.
    """
    if workers.count == 1:
        return act()
    came = []

    def problem():
        try:
            came.append(act())
        except (ValueError, OSError) as error:
            return one_line(error)
        return None

    if refusal := workers.from_chief(problem):
        raise UserError(refusal)
    if came:
        return came[0]
    end = time.monotonic() + SECONDS_TO_BE_SEEN
    while not (Path(output) / FORMAT).is_file():
        if time.monotonic() > end:
            raise UserError(
                f"{output} cannot be seen by this worker: with distribute.strategy multi-worker "
                "--output must be a folder that all machines share."
            )
        time.sleep(0.2)
    return None


@contextmanager
def _naming_what_is_left(output: Path | str, workers: Workers) -> Iterator[None]:
    try:
        yield
    except WorkerLost as error:
        who = f": nobody answers at {', '.join(silent)}" if (silent := workers.silent()) else ""
        paths = Checkpoints(Path(output) / "checkpoints").paths()
        kept = f"{paths[-1]} is kept" if paths else "There is no checkpoint yet"
        raise WorkersStopped(
            f"stopped, as {error}{who}. {kept}: start all workers again, with --resume."
        ) from None


def _agree(workers: Workers, config: Any, output: Path | str, start: str) -> None:
    """Compare what must be the same on all workers: versions, every key, contents of files."""
    if workers.count == 1:
        return
    import tensorflow as tf

    facts = {"the version of Keras": keras.__version__, "that of TensorFlow": tf.__version__}
    facts |= {"--output": str(Path(output).absolute()), "where to start": start}
    facts |= by_key(config)
    for name, path in inputs_of(config).items():
        facts[f"the contents of {name} (their SHA-256)"] = checksum(path)
    workers.agree(facts)


ACCEPTED_SECTIONS = ("data", "decoding", "distribute")
ACCEPTED_KEYS = ("clip_norm", "label_smoothing", "halve_after", "jit_compile")
ACCEPTED_KEYS += ("deterministic", "threshold", "tune_thresholds")
"""Sections and keys that `accept_changes` lets differ; the weights do not depend on them."""


def take_over(
    folder: RunFolder,
    config: Any,
    accept_changes: bool = False,
    given: Mapping[str, str] | None = None,
) -> Callable[[], None]:
    """Return what makes `config` the run's own; refuse one that differs in more than may be.

    With `accept_changes` a training goes on as another one: with other data, other keys of
    `ACCEPTED_SECTIONS` and `ACCEPTED_KEYS`, or other versions. FORMAT records it. `given` are the
    checksums of data that come from no file.
    """
    own = load_config(type(config), [folder.config])
    changed = list(dict.fromkeys([*folder.changed_keys(), *changed_keys(own, config)]))
    allowed = [f"training.{name}" for name in own.training.resumable]
    allowed += [f"distribute.{name}" for name in RESUMABLE]
    sections = ACCEPTED_SECTIONS if accept_changes else ()
    has = [name for name in ACCEPTED_KEYS if hasattr(own.training, name)]
    accepted = [f"training.{name}" for name in has] if accept_changes else []
    refused = [key for key in changed if key not in allowed + accepted]
    refused = [key for key in refused if key.partition(".")[0] not in sections]
    if refused:
        why = ", as training.schedule cosine falls to 0 over all epochs"
        more = f", and with --accept-changes {', '.join(sections)}.* and " if sections else ""
        raise UserError(
            f"{folder.path} cannot be continued with another {', '.join(refused)}"
            f"{why if 'training.epochs' in refused else ''}: only "
            f"{', '.join(allowed)}{more}{', '.join(accepted)} may be changed with --resume."
        )
    differs = folder.changes(given)
    if differs and not accept_changes:
        way_out = "Undo that, or continue with --accept-changes, which the run folder records."
        in_python = (
            "Undo that, give another `run`, or go on with `accept_changes=True`, which the run "
            "folder records."
        )
        raise UserError(
            f"{folder.path} would not go on as the training that it was: "
            f"{'; '.join(differs[:5])}. {in_python if given else way_out}"
        )
    differs += [f"{key} of the configuration" for key in changed if key not in allowed]

    def record() -> None:
        for line in differs:
            say(f"accepted: {line}")
        if changed or differs:
            folder.write_config(config, differs, given)

    return record


def average_tasks(
    task_class: "type[TextTask]", folders: Sequence[Path], output: Path | str
) -> "TextTask":
    """Write a preset whose weights are the mean of those of presets, or of one run's checkpoints.

    Return its task.
    """
    output = output_path(output, is_preset=True)
    task = task_class.from_preset(folders[0])
    if task.backbone.get_config().get("quantized"):
        raise UserError(
            "integers of quantized networks have no mean: average the networks they were made of, "
            f"and quantize the mean. Received: {folders[0]}, which is quantized."
        )
    if len(folders) == 1:
        sets = _weights_of_checkpoints(task, folders[0])
    else:
        sets = [_weights_of(task_class.from_preset(each), task, each) for each in folders]
    if len(sets) < 2:
        raise UserError(
            f"there is nothing to average: name several runs, or one with several checkpoints. "
            f"Received: {folders[0]} with {len(sets)}."
        )
    for variable, *arrays in zip(task.backbone.weights, *sets, strict=True):
        if np.issubdtype(arrays[0].dtype, np.integer):  # the state of a seed generator
            continue
        variable.assign(np.mean(arrays, axis=0, dtype="float64").astype(arrays[0].dtype))
    for name in getattr(task.preprocessor, "tuned", ()):
        if getattr(task.preprocessor, name) is not None:
            setattr(task.preprocessor, name, None)
            say(f"note: the {name} went with the weights of one alone, and are left out.")
    task.save_to_preset(output)
    return task


def _weights_of(other: "TextTask", task: "TextTask", folder: Path) -> list[np.ndarray]:
    """Return the weights of a task that must be like another."""
    whose = "the first: they have no mean"
    _check_like(folder, "network", other.backbone, task.backbone, whose)
    _check_like(folder, "preprocessor", other.preprocessor, task.preprocessor, whose)
    return [np.array(ops.convert_to_numpy(each)) for each in other.backbone.weights]


def _check_like(
    folder: Path | str, name: str, own: Any, wanted: Any, whose: str, to_train: bool = False
) -> None:
    is_like = type(own) is type(wanted)
    if is_like and own is not None:
        is_like = settings_of(own, to_train) == settings_of(wanted, to_train)
    if not is_like:
        raise UserError(f"{folder} has another {name} than {whose}.")


def _weights_of_checkpoints(task: "TextTask", folder: Path) -> list[list[np.ndarray]]:
    """Return the weights in each checkpoint of a run, which come first in its arrays."""
    sets = []
    for path in Checkpoints(folder / "checkpoints").paths():
        checkpoint = read_checkpoint(path)
        if checkpoint.state.get("lora") is not None:
            raise UserError(
                f"checkpoint {path} was trained with LoRA, whose factors have no mean. Use the "
                f"best weights, `{type(task).__name__}.from_preset({str(folder)!r})`, where the "
                "kernels hold what it learnt, or average several runs."
            )
        # A checkpoint holds the network's variables first, its weights among them.
        pairs = zip(task.backbone.variables, checkpoint.arrays, strict=False)
        found = {id(variable): array for variable, array in pairs}
        sets.append([found.get(id(each), np.array(np.nan)) for each in task.backbone.weights])
        for variable, array in zip(task.backbone.weights, sets[-1], strict=True):
            is_number = array.dtype.kind in "fiu"
            if array.shape != variable.shape or not (is_number and np.isfinite(array).all()):
                raise UserError(f"checkpoint {path} holds no finite weights of this network.")
    return sets


def config_of(task_class: "type[TextTask]", path: Path | str) -> Any:
    """Return the configuration that a run folder holds; None for a preset."""
    file = Path(path) / "config.yaml"
    return load_config(task_class.config_class, [file]) if file.is_file() else None
