"""The command line of `keras-attention`. Standard library only: help must not wait for Keras.

What a verb takes depends on the task of the run or preset, which the folder says; where there is no
such folder (yet), an option of any task is accepted, and the verb itself says what is wrong.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
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
    "score": "write the log-probability of given results",
    "visualize": "show what a run's model attends to",
    "export": "write the model for use elsewhere",
}
VERBS = ("train", *VERBS_ON_A_RUN, "average", "init", "demo")


class UsageError(Exception):
    """A command line that cannot be parsed; its message is one line."""


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, raised."""

    def error(self, message):
        raise UsageError(f"{self.prog}: {message} (`{self.prog} --help` says more)")


def build_parser(task: TaskCommand | None = None) -> argparse.ArgumentParser:
    """Return the parser of all verbs, those on a run with the options of `task`."""
    parser = _Parser(prog=PROGRAM, description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {package_version()}")
    parser.add_argument(
        "--print-completion",
        metavar="SHELL",
        choices=("bash", "zsh", "tcsh"),
        help="print the script that completes this command in a shell, and exit",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    _train(verbs)
    for name, summary in VERBS_ON_A_RUN.items():
        if task is None or name in task.verbs:
            _on_a_run(verbs, name, summary, task)
    _average(verbs)
    _init(verbs)
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
        tasks = [own] if own else [t for t in TASKS.values() if arguments[0] in t.verbs]
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


def package_version() -> str:
    """Return the version of the package that is installed."""
    try:
        return version("keras-attention")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"


def _parse_for(task: TaskCommand | None, arguments: list[str]) -> argparse.Namespace:
    parser = build_parser(task)
    if arguments and not arguments[0].startswith("-") and arguments[0] not in VERBS:
        raise UsageError(
            f"{PROGRAM}: there is no verb {arguments[0]}.{_did_you_mean(arguments[0], VERBS)} "
            f"Expected: {', '.join(VERBS)}."
        )
    if task is not None and arguments[0] not in task.verbs:
        raise UsageError(f"{PROGRAM}: a run of {task.name} has no verb {arguments[0]}.")
    options, rest = parser.parse_known_args(arguments)
    if options.print_completion:
        _print_completion(parser, options.print_completion)
    if options.verb is None:
        parser.error("name a verb")
    verb = f"{PROGRAM} {options.verb}"
    if rest and options.verb != "train":
        known = _options_of(parser, options.verb)
        raise UsageError(
            f"{verb}: unknown argument {rest[0]}.{_did_you_mean(rest[0], known)} "
            f"(`{verb} --help` lists them)"
        )
    if options.verb == "train" and not options.help:
        for name, value in (("TASK", options.task), ("--output RUN", options.output)):
            if value is None:
                raise UsageError(f"{verb}: {name} is missing (`{verb} --help` says more)")
    options.overrides = rest
    return options


def _did_you_mean(word: str, accepted: Iterable[str]) -> str:
    close = get_close_matches(word, list(accepted), n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    actions = parser._subparsers._group_actions if parser._subparsers else []
    return actions[0].choices if actions else {}


def _options_of(parser: argparse.ArgumentParser, verb: str) -> list[str]:
    own = _subparsers(parser)[verb]
    return [flag for action in own._actions for flag in action.option_strings]


def _print_completion(parser: argparse.ArgumentParser, shell: str) -> None:
    try:
        import shtab
    except ImportError:
        raise UsageError("--print-completion needs the package shtab: pip install shtab") from None
    print(shtab.complete(parser, shell=shell))
    sys.exit(0)


def _task_of_run(arguments: Sequence[str]) -> TaskCommand | None:
    """Return the task of the first argument that is a run folder or preset; None without one."""
    package = Path(find_spec("keras_attention").submodule_search_locations[0])
    # Where a wheel has the presets, and where a source tree has them.
    presets = [package / "applications" / "presets", package.parent / "applications" / "presets"]
    for argument in arguments:
        for folder in (Path(argument), *(each / argument for each in presets)):
            name = _word(folder / "FORMAT", "task") or _word(folder / "task.json", "class_name")
            for task in TASKS.values():
                if name in (task.name, task.task_class, *task.classes):
                    return task
    return None


def _word(path: Path, key: str) -> str | None:
    """Return a text that a JSON file holds; None where it does not."""
    try:
        value = json.loads(path.read_bytes() if path.is_file() else b"")[key]  # no pipe
        return value if isinstance(value, str) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _print_help_of_all(verb: str) -> None:
    """Print the help of a verb for every task, and leave."""
    tasks = [task for task in TASKS.values() if verb in task.verbs]
    for number, task in enumerate(tasks):
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
    parser.add_argument(
        "run", metavar="RUN", help="a run folder that `train` made, or a preset (`dates`, a folder)"
    )


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
    _add_task(parser, nargs="?")
    parser.add_argument("-h", "--help", action="store_true", help="show this help and exit")
    parser.add_argument("--config", metavar="F.yaml", help="a YAML file with sections and keys")
    parser.add_argument("--output", metavar="RUN", help="the run folder to make")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue the run in --output, exactly as if it had never stopped (a run that was "
        "stopped before its folder was made starts anew)",
    )
    parser.add_argument(
        "--accept-changes",
        action="store_true",
        help="with --resume: go on although data, package or files differ from those of the run; "
        "the run's log records what differs",
    )
    parser.set_defaults(show_train_help=parser.format_help)


def _add_task(parser: argparse.ArgumentParser, **settings) -> None:
    text = f"one of: {', '.join(TASKS)}"
    parser.add_argument("task", metavar="TASK", choices=TASKS, help=text, **settings)


def _average(verbs) -> None:
    summary = "write a preset whose weights are the mean of those of several runs"
    parser = verbs.add_parser("average", help=summary, **_described(summary))
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="run folders or presets of one architecture and vocabulary; of one run folder alone "
        "the mean of its checkpoints",
    )
    parser.add_argument("--output", metavar="PRESET", required=True, help="new folder")


def _init(verbs) -> None:
    summary = "print a configuration of a task, every key with its default and a comment"
    parser = verbs.add_parser("init", help=summary, **_described(summary))
    _add_task(parser)


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
