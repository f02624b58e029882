"""The command `keras-attention`: it carries out a verb whose arguments are parsed.

Results go to standard output, messages and progress to standard error. Exit status: 0 done;
1 an error that is not the user's, or a demo whose translations are worse than they should be;
2 something given is wrong; 3 the training diverged; 4 another worker of a training has ended;
130 interrupted; 143 ended by SIGTERM. An error is one line; with the environment variable
KERAS_ATTENTION_TRACEBACK=1 a traceback comes with it.
"""

import argparse
import importlib
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

from keras_attention.paths import output_path

from ..base import train as tasks
from ..base.backend import require_backend
from ..base.presets import TASK_FILE, default_preset, example_of, preset_folder, read_part
from ..base.search_task import SearchTask
from ..base.start import config_from
from ..base.streams import share_cores, stream_count
from ..base.task import TextTask, origin_name
from ..base.train import train_task
from ..base.verbs import NULL
from ..errors import UserError, clock, one_line, say
from ..schema.reading import load_config, precision_of
from ..show.explanation import check_drawn
from ..store.files import check_new_file, refuse_existing_output
from ..training.run_folder import FORMAT, RunFolder, is_free
from .tasks import TASKS

OUTPUTS, WRITE_PRESETS = ("output", "picture", "trec_run"), ("train", "average")
"""Options that name what is written, and verbs that write a preset."""
SEARCHES = ("evaluate", "predict", "score", "shortlist")


def run(options: argparse.Namespace) -> int:
    """Carry out a parsed command line; return the exit status."""
    warnings.showwarning = lambda message, *_: say(f"warning: {one_line(message)}")
    try:
        for name in OUTPUTS:
            if getattr(options, name, None) is not None:
                path = output_path(getattr(options, name), options.verb in WRITE_PRESETS)
                setattr(options, name, str(path))
        _VERBS.get(options.verb, _on_a_run)(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        has_run = options.verb == "train" and (Path(options.output) / FORMAT).exists()
        way = f" --resume continues {options.output} from its last checkpoint." if has_run else ""
        say(f"\nkeras-attention: stopped by Ctrl-C.{way}")
        return 130
    except BrokenPipeError:  # the reader of our output has left, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError) as error:
        return _failed(one_line(error), getattr(error, "exit_status", 2))
    except Exception as error:
        hint = "(set KERAS_ATTENTION_TRACEBACK=1 for the traceback)"
        return _failed(f"{type(error).__name__}: {one_line(error)} {hint}", 1)
    return 0


def load_task(name: str) -> type[TextTask]:
    """Return the class of the task called `name`."""
    if name not in TASKS:
        raise UserError(f"there is no task '{name}'. Expected: {', '.join(TASKS)}.")
    return getattr(importlib.import_module(TASKS[name].module), TASKS[name].task_class)


def _found(run: Path | str) -> tuple[Path, type[TextTask]]:
    """Return the folder of a run or preset, and the class of its task."""
    folder = preset_folder(run)
    if (folder / FORMAT).is_file() or (folder / "config.yaml").is_file():
        return folder, load_task(RunFolder(folder).task)
    if not (folder / TASK_FILE).exists():
        for name in TASKS:
            if (task_class := load_task(name)).reads_foreign(folder):
                return folder, task_class
    name = read_part(folder, TASK_FILE)["class_name"]
    for command in TASKS.values():
        if name in (command.task_class, *command.classes):
            return folder, load_task(command.name)
    raise UserError(f"{folder} is a preset of `{name}`, which is no task of this package.")


def read_config(
    task_class: type[TextTask],
    path: str | None = None,
    overrides: list[str] = (),
    run: RunFolder | None = None,
) -> Any:
    """Read a configuration: a run's own if there is one, a file, and overrides on top.

    A known data set, and an architecture, bring their own defaults.
    """
    paths = ([run.config] if run else []) + ([path] if path else [])
    return load_config(task_class.config_class, paths, overrides)


def _train(options):
    task_class = load_task(options.task)
    require_backend("training", "tensorflow", "jax")
    resumes = options.resume and not is_free(options.output)
    own = {"changed": options.accept_changes, "task": options.task}
    folder = RunFolder(options.output, **own) if resumes else None
    paths, start = [options.config] if options.config else [], None
    if resumes:
        _check_same_start(folder, options.start)
    elif options.start:
        start, own = _start(task_class, options.start)
        name, overrides = options.start, options.overrides
        config = config_from(start, name, own / "config.yaml", paths, overrides)
    if start is None:
        config = read_config(task_class, options.config, options.overrides, folder)
    if config.training.check_numerics:
        require_backend("training.check_numerics")
    if resumes:
        outcome = tasks.resume_task(task_class, config, options.output, options.accept_changes)
    else:
        outcome = train_task(task_class, config, options.output, start)
    say(
        f"{outcome.reason}: best {outcome.monitor} {outcome.best:.4g} in epoch "
        f"{outcome.best_epoch} of {outcome.epoch}, {clock(outcome.seconds)} in all. "
        f"Try `keras-attention evaluate {options.output}`."
    )


def _start(task_class: type[TextTask], preset: str) -> tuple[TextTask, Path]:
    """Return the task of a preset to start a training from, and its folder."""
    folder, found = _found(preset)
    if found is not task_class:
        raise UserError(
            f"{preset} is a preset of task {found.name_of_task}. "
            f"Expected: {task_class.name_of_task}."
        )
    task = task_class.from_preset(preset)
    task.require_preprocessor()
    return task, folder


def _check_same_start(run: RunFolder, preset: str | None) -> None:
    """Refuse to continue a run from another preset than that which it started from."""
    known = run.about.get("from", {}).get("preset")
    if preset is not None and str(known) != origin_name(preset):
        had = f"started from {known}" if known else "did not start from a preset"
        raise UserError(
            f"{run.path} {had}: leave --from out to continue it. Received: --from {preset}."
        )


def _on_a_run(options):
    folder, task_class = _found(options.run)
    _check_output(task_class, options)
    options.config = tasks.config_of(task_class, folder)
    if issubclass(task_class, SearchTask) and options.verb in SEARCHES:
        own = getattr(getattr(options.config, "decoding", None), "streams", None)
        asked = getattr(options, "streams", None)
        share_cores(stream_count(own if asked is None else None if asked == NULL else asked))
    # An engine rounds the weights itself.
    has_engine = getattr(options, "engine", None)
    dtype = "float32" if has_engine else precision_of(options.config)
    task = task_class.from_preset(folder, dtype=dtype)
    if more := getattr(options, "more", None):
        others = [task_class.from_preset(preset_folder(each), dtype=dtype) for each in more]
        task = task_class.ensemble([task, *others])
    if options.verb == "export":
        format = getattr(options, "format", "saved_model")
        more = {"example": example_of(folder, task).get("text", "")} if format == "web" else {}
        task.export(options.output, format=format, **more)
        say(f"wrote {options.output}")
        return
    task.require_preprocessor()
    verbs = importlib.import_module(f"{TASKS[task_class.name_of_task].module}.verbs")
    getattr(verbs, options.verb)(task, options)


def _serve(options):
    try:
        from .serve import Limits, serve
    except ImportError as error:
        raise UserError(
            f"`serve` needs FastAPI and uvicorn ({error}): pip install fastapi uvicorn"
        ) from None
    served, examples = {}, {}
    for run in options.runs or [default_preset()]:
        folder, task_class = _found(run)
        dtype = precision_of(tasks.config_of(task_class, folder))
        served[run] = task_class.from_preset(folder, dtype=dtype)
        served[run].require_preprocessor()
        examples[run] = example_of(folder, served[run])
    limits = Limits(characters=options.most_characters, seconds=options.most_seconds)
    serve(served, options.host, options.port, limits, examples)


def _check_output(task_class, options):
    """Refuse an output that cannot be written, before the model is loaded."""
    output = getattr(options, "output", None)
    if output is None:
        return
    if options.verb == "export":
        refuse_existing_output(output)
    elif options.verb == "visualize":
        check_drawn(output)
    else:
        check_new_file(output)


def _average(options):
    refuse_existing_output(options.output)
    folders = [preset_folder(each) for each in options.runs]
    tasks.average_tasks(_found(folders[0])[1], folders, options.output)
    say(f"wrote {options.output}")


def _convert(options):
    refuse_existing_output(options.output)
    folder, task_class = _found(options.source)
    task_class.from_preset(folder).save_to_preset(options.output)
    say(f"wrote {options.output}")


def _demo(options):
    from keras_attention.applications.translation.demo import run_demo

    require_backend("the demo")
    run_demo(options.output and Path(options.output))


_VERBS = {"train": _train, "serve": _serve, "average": _average, "convert": _convert}
_VERBS |= {"demo": _demo}


def _failed(message: str, status: int) -> int:
    if os.environ.get("KERAS_ATTENTION_TRACEBACK"):
        traceback.print_exc()
    say(f"keras-attention: {message}")
    return status
