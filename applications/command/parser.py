"""The command line of `keras-attention`. Standard library only: help must not wait for Keras.

What `evaluate`, `predict`, `visualize` and `export` take depends on the task of the run, which the
run folder says; where there is no such folder (yet), an option of any task is accepted, and the
verb itself says what is wrong with the folder.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from .arguments import TaskCommand
from .tasks import TASKS

PROGRAM = "keras-attention"
DESCRIPTION = "Train and use attention models. Try `keras-attention demo` first."
TRAIN_USAGE = (
    f"{PROGRAM} train TASK [--config F.yaml] [--section.key V ...] --output RUN [--resume]"
)
VERBS_ON_A_RUN = {
    "evaluate": "measure a run on its test set, or on files",
    "predict": "predict for the lines of a file or of standard input",
    "visualize": "draw what a run's model attends to",
    "export": "write the model for use elsewhere",
}


class UsageError(Exception):
    """A command line that cannot be parsed; its message is one line."""


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, raised."""

    def error(self, message):
        raise UsageError(f"{self.prog}: {message} (`{self.prog} --help` says more)")


def build_parser(task: TaskCommand | None = None) -> argparse.ArgumentParser:
    """Return the parser of all verbs, those on a run with the options of `task`."""
    parser = _Parser(prog=PROGRAM, description=DESCRIPTION, allow_abbrev=False)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    _train(verbs)
    for name, summary in VERBS_ON_A_RUN.items():
        _on_a_run(verbs, name, summary, task)
    _demo(verbs)
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; what `train` leaves over is the configuration's, as `overrides`.

    A command line that cannot be parsed ends the program with one line and exit status 2.
    """
    arguments = list(arguments)
    tasks: Sequence[TaskCommand | None] = [None]
    if arguments and arguments[0] in VERBS_ON_A_RUN:
        own = _task_of_run(arguments[1:])
        tasks = [own] if own else list(TASKS.values())
        if own is None and {"-h", "--help"} & set(arguments):
            _print_help_of_all(arguments[0])
    errors = []
    for task in tasks:
        try:
            return _parse_for(task, arguments)
        except UsageError as error:
            errors.append(str(error))
    print(errors[0], file=sys.stderr)
    sys.exit(2)


def _parse_for(task: TaskCommand | None, arguments: list[str]) -> argparse.Namespace:
    parser = build_parser(task)
    options, rest = parser.parse_known_args(arguments)
    verb = f"{parser.prog} {options.verb}"
    if rest and options.verb != "train":
        raise UsageError(f"{verb}: unknown argument {rest[0]} (`{verb} --help` lists them)")
    if options.verb == "train" and not options.help:
        for name, value in (("TASK", options.task), ("--output RUN", options.output)):
            if value is None:
                raise UsageError(f"{verb}: {name} is missing (`{verb} --help` says more)")
    options.overrides = rest
    return options


def _task_of_run(arguments: Sequence[str]) -> TaskCommand | None:
    """Return the task of the first argument that is a run folder; None without a known one."""
    for argument in arguments:
        try:
            about = json.loads((Path(argument) / "FORMAT").read_bytes())
            return TASKS[about["task"]]
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def _print_help_of_all(verb: str) -> None:
    """Print the help of a verb for every task, and leave."""
    for number, task in enumerate(TASKS.values()):
        parser = _Parser(prog=f"{PROGRAM} {verb}", **_described(task.verbs[verb].summary, task))
        _add_run(parser)
        task.verbs[verb].add_options(parser)
        print(("\n" if number else "") + parser.format_help(), end="")
    sys.exit(0)


def _described(summary: str, task: TaskCommand | None = None) -> dict:
    of_task = f" (a run of {task.name})" if task else ""
    return {
        "description": f"{summary[0].upper()}{summary[1:]}{of_task}.",
        "formatter_class": argparse.RawDescriptionHelpFormatter,
        "allow_abbrev": False,
    }


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder that `train` made")


def _on_a_run(verbs, name: str, summary: str, task: TaskCommand | None) -> None:
    described = task.verbs[name].summary if task else summary
    parser = verbs.add_parser(name, help=summary, **_described(described, task))
    _add_run(parser)
    if task:
        task.verbs[name].add_options(parser)


def _train(verbs) -> None:
    summary = "train a model into a new run folder"
    parser = verbs.add_parser("train", help=summary, add_help=False, **_described(summary))
    examples = "".join(task.examples for task in TASKS.values())
    parser.epilog = (
        f"examples:\n{examples}\n"
        f"`{PROGRAM} train TASK --help` lists every --section.key with its default."
    )
    parser.usage = TRAIN_USAGE
    parser.add_argument(
        "task", metavar="TASK", nargs="?", choices=TASKS, help=f"one of: {', '.join(TASKS)}"
    )
    parser.add_argument("-h", "--help", action="store_true", help="show this help and exit")
    parser.add_argument("--config", metavar="F.yaml", help="a YAML file with sections and keys")
    parser.add_argument("--output", metavar="RUN", help="the run folder to make")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue the run in --output, exactly as if it had never stopped (a run that was "
        "stopped before its folder was made starts anew)",
    )
    parser.set_defaults(show_train_help=parser.format_help)


def _demo(verbs) -> None:
    summary = "train a translator of written dates, show it, export it and read it back"
    parser = verbs.add_parser(
        "demo",
        help=summary,
        epilog="exit status 1 where it translates fewer unseen dates exactly than it should",
        **_described(summary),
    )
    parser.add_argument(
        "--output",
        metavar="D",
        help="new folder for all of it (default: runs/demo, or the next free runs/demo-N)",
    )
