"""How a run starts or is taken up again, in one process or in several at once.

Of several, the chief alone writes the run folder, which lies where all see it; the others read it
when it is ready.
"""

import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import keras

from keras_attention.applications.common.checkpoints import Checkpoints
from keras_attention.applications.common.distribute_config import check_distribution, devices_of
from keras_attention.applications.common.errors import UserError, WorkersStopped
from keras_attention.applications.common.resuming import take_over
from keras_attention.applications.common.run_folder import RunFolder, refuse_existing, writing
from keras_attention.applications.common.training import Outcome
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
    config: Any, output: Path | str, fit: Callable[[Path | str, Any], Outcome]
) -> Outcome:
    """Continue the run in `output` as if it had never stopped.

    Args:
        config: the run's own configuration, in which what `take_over` allows may have been changed,
            with absolute paths.
        output: the run folder.
        fit: as in `start_run`.

    Returns:
        How the training ended.

    Raises:
        UserError: if another key was changed, or another process trains this run.
        WorkersStopped: if another worker has ended.
    """
    folder = RunFolder(output)
    check_distribution(config)
    workers = devices_of(config.distribute).workers
    with ExitStack() as held, _naming_what_is_left(output, workers):
        newest = [path.name for path in Checkpoints(folder.checkpoints).paths()[-1:]]
        _agree(workers, config, output, *newest or ["no checkpoint"])

        def take():
            # Before config.yaml is written: another process may be reading it.
            held.enter_context(writing(folder))
            take_over(folder, config)

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
            facts[f"the contents of {name} (their SHA-256)"] = _checksum(path)
    workers.agree(facts)


def _checksum(path: Path) -> str:
    """Return the checksum of a file, or of all files in a folder and their names."""
    digest = hashlib.sha256()
    inside = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    for each in inside:
        digest.update(str(each.relative_to(path)).encode())
        with open(each, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
