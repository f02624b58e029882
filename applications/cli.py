"""The command `keras-attention`: what each verb does, once its arguments are parsed.

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

from keras_attention.applications.command import TASKS, main
from keras_attention.applications.common.errors import UserError, one_line
from keras_attention.applications.common.messages import say
from keras_attention.applications.common.run_folder import RunFolder
from keras_attention.applications.common.task import Task


def run(options: argparse.Namespace) -> int:
    """Carry out a parsed command line; return the exit status."""
    warnings.showwarning = _show_warning
    try:
        _VERBS.get(options.verb, _on_a_run)(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        say("\nstopped; a training continues from its last checkpoint with --resume.")
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


def load_task(name: str) -> Task:
    """Return the task called `name`.

    Raises:
        UserError: if there is none.
    """
    if name not in TASKS:
        raise UserError(f"there is no task '{name}'. Expected: {', '.join(TASKS)}.")
    return importlib.import_module(TASKS[name].module).TASK


def _train(options):
    task = load_task(options.task)
    if options.help:
        print(options.show_train_help())
        print(task.config_help())
        return
    task.train(options)


def _demo(options):
    load_task("translation").demo(options)


def _on_a_run(options):
    task = load_task(RunFolder(options.run).task)
    getattr(task, options.verb)(options)


_VERBS = {"train": _train, "demo": _demo}


def _failed(message: str, status: int) -> int:
    if os.environ.get("KERAS_ATTENTION_TRACEBACK"):
        traceback.print_exc()
    say(f"keras-attention: {message}")
    return status


def _show_warning(message, category, filename, lineno, file=None, line=None):
    say(f"warning: {one_line(message)}")


if __name__ == "__main__":
    sys.exit(main())
