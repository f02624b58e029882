"""How a run starts or is taken up again, in one process or in several at once."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import keras

from keras_attention.applications.common.errors import UserError, WorkersStopped, say
from keras_attention.applications.common.files import checksum
from keras_attention.applications.training.config import changed_keys, load_config
from keras_attention.applications.training.devices import RESUMABLE, check_distribution, devices_of
from keras_attention.applications.training.fit import Outcome
from keras_attention.applications.training.run_folder import (
    Checkpoints,
    RunFolder,
    refuse_existing,
    writing,
)
from keras_attention.distribute import WorkerLost, Workers

SECONDS_TO_BE_SEEN = 60.0
"""How long a folder may take to be seen on another machine."""


def start_run(
    config: Any,
    output: Path | str,
    prepare: Callable[[Any, Path | str], Any],
    fit: Callable[[Path | str, Any], Outcome],
) -> Outcome:
    """Make the run folder `output`, and train in it.

    Args:
        config: the task's configuration, with absolute paths.
        output: the folder to make.
        prepare: given these two, makes the folder; what it returns is handed to `fit`. Of several
            workers only the chief prepares.
        fit: given the folder and what was prepared (else None), trains.

    Returns:
        How the training ended.

    Raises:
        UserError: if the folder exists, or data or configuration are wrong; nothing is left then.
        WorkersStopped: if another worker has ended.
    """
    refuse_existing(Path(output))
    check_distribution(config)
    workers = devices_of(config.distribute).workers
    with ExitStack() as held, _naming_what_is_left(output, workers):
        _agree(workers, config, output, "a new run")

        def make():
            prepared = prepare(config, output)
            held.enter_context(writing(RunFolder(output)))
            return prepared

        return fit(output, _by_the_chief(workers, make, output))


def resume_run(
    config: Any,
    output: Path | str,
    fit: Callable[[Path | str, Any], Outcome],
    accept_changes: bool = False,
) -> Outcome:
    """Continue the run in `output` as if it had never stopped.

    Args:
        config: the run's own configuration, in which what `take_over` allows may have been changed,
            with absolute paths.
        output: the run folder.
        fit: as in `start_run`.
        accept_changes: as in `take_over`.

    Returns:
        How the training ended.

    Raises:
        UserError: if something else was changed, or another process trains this run.
        WorkersStopped: if another worker has ended.
    """
    folder = RunFolder(output, changed=accept_changes)
    check_distribution(config)
    workers = devices_of(config.distribute).workers
    with ExitStack() as held, _naming_what_is_left(output, workers):
        newest = [path.name for path in Checkpoints(folder.checkpoints).paths()[-1:]]
        _agree(workers, config, output, *newest or ["no checkpoint"])

        def take():
            # Before config.yaml is written: another process may be reading it.
            held.enter_context(writing(folder))
            take_over(folder, config, accept_changes)

        _by_the_chief(workers, take, output)
        return fit(output, None)


def _by_the_chief(workers: Workers, act: Callable[[], Any], output: Path | str) -> Any:
    """Act in the chief alone; return what came of it there, and None elsewhere.

    Raises:
        UserError: on all workers, if it is raised in the chief.
    """
    if workers.count == 1:
        return act()
    came = []

    def problem():
        try:
            came.append(act())
        except UserError as error:
            return str(error)
        return None

    if refusal := workers.from_chief(problem):
        raise UserError(refusal)
    if not came:
        _wait_to_see(Path(output))
    return came[0] if came else None


def _wait_to_see(output: Path) -> None:
    end = time.monotonic() + SECONDS_TO_BE_SEEN
    while not (output / "FORMAT").is_file():
        if time.monotonic() > end:
            raise UserError(
                f"{output} cannot be seen by this worker: with distribute.strategy multi-worker "
                "--output must be a folder that all machines share."
            )
        time.sleep(0.2)


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
    """Compare what must be the same on all workers: versions, every key, contents of files.

    Raises:
        ValueError: naming what differs, and where.
    """
    if workers.count == 1:
        return
    import tensorflow as tf

    facts = {"the version of Keras": keras.__version__, "that of TensorFlow": tf.__version__}
    facts |= {"--output": str(Path(output).absolute()), "where to start": start}
    sections = dataclasses.asdict(config)
    for section, keys in sections.items():
        facts |= {f"{section}.{key}": value for key, value in keys.items()}
    paths = {name: Path(value) for name, value in facts.items() if isinstance(value, str) and value}
    for name, path in paths.items():
        if name != "--output" and path.is_absolute() and path.exists():
            facts[f"the contents of {name} (their SHA-256)"] = checksum(path)
    workers.agree(facts)


ACCEPTED_SECTIONS = ("data", "decoding", "distribute")
ACCEPTED_KEYS = ("clip_norm", "label_smoothing", "halve_after", "jit_compile", "deterministic")
"""What `accept_changes` lets differ: nothing that the weights or the optimizer's state hang on."""


def take_over(folder: RunFolder, config: Any, accept_changes: bool = False) -> None:
    """Make `config` the run's own, where it differs only in what may be changed.

    Args:
        folder: the run folder, which this process holds for writing.
        config: the task's configuration; its section `training` says what may be changed.
        accept_changes: go on where the continued training is another one: with other data, other
            keys of `ACCEPTED_SECTIONS` and `ACCEPTED_KEYS`, or other versions. FORMAT records it.

    Raises:
        UserError: if something else differs from before, naming it.
    """
    own = load_config(type(config), [folder.config])
    edited = folder.changed_keys()
    changed = changed_keys(own, config)
    allowed = [f"training.{name}" for name in own.training.resumable]
    allowed += [f"distribute.{name}" for name in RESUMABLE]
    accepted = [f"training.{name}" for name in ACCEPTED_KEYS] if accept_changes else []
    refused = [
        key
        for key in dict.fromkeys([*edited, *changed])
        if key not in allowed + accepted
        and not (accept_changes and key.partition(".")[0] in ACCEPTED_SECTIONS)
    ]
    if refused:
        why = ", as training.schedule cosine falls to 0 over all epochs"
        more = (
            f", and with --accept-changes {', '.join(ACCEPTED_SECTIONS)}.* and " if accepted else ""
        )
        raise UserError(
            f"{folder.path} cannot be continued with another {', '.join(refused)}"
            f"{why if 'training.epochs' in refused else ''}: only "
            f"{', '.join(allowed)}{more}{', '.join(accepted)} may be changed with --resume."
        )
    differs = folder.changes()
    if differs and not accept_changes:
        raise UserError(
            f"{folder.path} would not go on as the training that it was: {'; '.join(differs)}. "
            "Undo that, or continue with --accept-changes, which the run folder records."
        )
    differs += [f"{key} of the configuration" for key in [*edited, *changed] if key not in allowed]
    for line in differs:
        say(f"accepted: {line}")
    if edited or changed or differs:
        folder.write_config(config, differs)
