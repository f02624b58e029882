"""The command line of `keras-attention`. Standard library only: help must not wait for Keras.

What a verb takes depends on the task of the run or preset, which the folder says; where there is no
such folder (yet), an option of any task is accepted, and the verb itself says what is wrong.

Importing any part of `keras_attention` imports Keras, and so TensorFlow: some seconds, and lines
of log on standard error. This package is therefore also installed by itself, as
`keras_attention_command`: help and misspelt options are answered at once, and TensorFlow is
imported with its log held back.
"""

import argparse
import gc
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .light import PACKAGE, light
from .quiet import LEVEL, held_back_unless_error
from .tasks import TASKS, TaskCommand, add_options, did_you_mean, natural, one_of, path, positive

PROGRAM = "keras-attention"
VERBS_ON_A_RUN = {
    "evaluate": "measure a run on its test set, or on files",
    "predict": "predict for the lines of a file or of standard input",
    "score": "write the log-probability of given results",
    "shortlist": "learn a vocabulary shortlist, with which a translator is faster",
    "visualize": "show what a run's model attends to",
    "export": "write the model for use elsewhere",
}
OF_KERASHUBS_NETWORKS = ("kagglehub", "huggingface_hub")
VERBS = ("train", *VERBS_ON_A_RUN, "serve", "average", "convert", "init", "demo")


MOST_BYTES = 64 << 20
"""The largest JSON file that is read: of one that is larger, the verb itself says so."""


class UsageError(Exception):
    """A command line that cannot be parsed; its message is one line."""


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, raised; it knows the parsers of its verbs."""

    def error(self, message):
        raise UsageError(f"{self.prog}: {message} (`{self.prog} --help` says more)")

    def add_verb(self, name: str, summary: str, description: str = "", **settings) -> "_Parser":
        description = description or summary
        return self.verbs.add_parser(
            name,
            help=summary,
            description=f"{description[0].upper()}{description[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            **settings,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments`, `sys.argv`'s by default; return its exit status."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    if options.verb == "init":
        print(light("schema.help").commented_yaml(TASKS[options.task].config), end="")
        return 0
    if options.verb == "train" and (options.help or options.help_all):
        print(_train_help(options))
        return 0
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", LEVEL)
    absent, is_own_process = _not_needed(options), arguments is None
    if is_own_process:
        absent += _not_needed_by_keras()
        gc.disable()  # modules make no garbage to speak of
    try:
        with held_back_unless_error(), _left_out(*absent):
            from keras_attention.applications.command.cli import run
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # such as a backend that is not there
        if os.environ.get("KERAS_ATTENTION_TRACEBACK"):
            raise
        said = " ".join(str(error).split())
        print(f"{PROGRAM}: cannot start ({type(error).__name__}: {said})", file=sys.stderr)
        return 1
    if is_own_process:
        gc.freeze()  # which leaves them out of later searches for garbage
        gc.enable()
    return run(options)


def _train_help(options: argparse.Namespace) -> str:
    """Return the help of `train`: of a task, with the keys of its configuration."""
    text = options.show_train_help()
    if options.task is None:
        return text
    for other in TASKS.values():
        if other.name != options.task:
            text = text.replace(other.examples, "")
    keys = light("schema.help").config_help(TASKS[options.task].config, options.help_all)
    if options.help_all:
        return f"{text}\n{keys}"
    more = f"These are the keys that people set; --help-all lists every one. {HOW_TO_READ}"
    return f"{text}\n{more}\n\n{keys}"


HOW_TO_READ = "`--section.key` stands in a --config file as `section: {key: value}`."


def _not_needed(options: argparse.Namespace) -> list[str]:
    """Return packages that KerasHub imports where they are installed, and the verb never uses.

    They bring nltk, scikit-learn, the clients of Kaggle and Hugging Face, and operations of
    TensorFlow Text, a fifth of the time to start. Networks of KerasHub, which classification takes,
    may have to be fetched, and have tokenizers of their own.
    """
    own = _task_of_run([options.run]) if options.verb in VERBS_ON_A_RUN else None
    if own is None or own.name == "classification":
        return ["rouge_score"]
    return ["rouge_score", *OF_KERASHUBS_NETWORKS, *_of_kerashubs_preprocessors()]


def _of_kerashubs_preprocessors() -> list[str]:
    """Return what the preprocessors of KerasHub need, and ours, which derive from them, do not.

    Before version 0.32 theirs refused to be made without TensorFlow Text.
    """
    try:
        found = tuple(map(int, re.findall(r"\d+", version("keras-hub"))[:2]))
    except PackageNotFoundError:
        return []
    return ["tensorflow_text"] if found >= (0, 32) else []


def _not_needed_by_keras() -> list[str]:
    """Return packages that Keras and TensorFlow import where they are installed, for parts of
    theirs that no verb uses: half of their time to start.

    A program that calls `main` itself gets Keras whole.
    """
    home = Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser()
    backend = os.environ.get("KERAS_BACKEND") or _word(home / "keras.json", "backend")
    unused = ["sklearn", "matplotlib", "IPython"]
    return unused if backend not in (None, "tensorflow") else [*unused, "jax", "scipy"]


@contextmanager
def _left_out(*packages: str) -> Iterator[None]:
    """Let imports of packages in the block fail, as if they were not installed."""
    absent = [name for name in packages if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]  # with which an import fails
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; what `train` leaves over is the configuration's, as `overrides`.

    A command line that cannot be parsed ends the program with one line and exit status 2.
    """
    arguments = list(arguments)
    tasks: Sequence[TaskCommand | None] = [None]
    if arguments and arguments[0] in VERBS_ON_A_RUN:
        verb, own = arguments[0], _task_of_run(arguments[1:])
        tasks = [own] if own else [task for task in TASKS.values() if verb in task.verbs]
        if own is None and {"-h", "--help"} & set(arguments):
            helps = [build_parser(task).verbs.choices[verb].format_help() for task in tasks]
            print("\n".join(helps), end="")
            sys.exit(0)
    errors = []
    for task in tasks:
        try:
            return _parse_for(task, arguments)
        except UsageError as error:
            errors.append(str(error))
    # Of the tasks that a run may be of, one may know what an option was meant to be.
    print(max(errors, key=_closeness), file=sys.stderr)
    sys.exit(2)


def _closeness(error: str) -> tuple[bool, float]:
    """Return whether a task knows all options, and how similar its suggestion is to the name given.

    Without a suggestion, the second is 0.
    """
    found = re.search(r"([^ ']+)'?\. Did you mean '([^']+)'", error)
    ratio = SequenceMatcher(None, *found.groups()).ratio() if found else 0.0
    return ": unknown argument " not in error, ratio


def _parse_for(task: TaskCommand | None, arguments: list[str]) -> argparse.Namespace:
    parser = build_parser(task)
    if arguments and not arguments[0].startswith("-") and arguments[0] not in VERBS:
        raise UsageError(
            f"{PROGRAM}: there is no verb {arguments[0]}.{did_you_mean(arguments[0], VERBS)} "
            f"Expected: {', '.join(VERBS)}."
        )
    if task is not None and arguments[0] not in task.verbs:
        raise UsageError(f"{PROGRAM}: a run of {task.name} has no verb {arguments[0]}.")
    known = []
    if arguments and arguments[0] in VERBS:  # before argparse says that another one is missing
        known = list(parser.verbs.choices[arguments[0]]._option_string_actions)
        if wrong := _misspelt(arguments[0], arguments[1:], known):
            verb = f"{PROGRAM} {arguments[0]}"
            raise UsageError(f"{verb}: unknown argument {wrong} (`{verb} --help` lists them)")
    options, rest = parser.parse_known_args(arguments)
    if options.print_completion:
        try:
            import shtab
        except ImportError:
            raise UsageError(
                "--print-completion needs the package shtab: pip install shtab"
            ) from None
        print(shtab.complete(parser, shell=options.print_completion))
        sys.exit(0)
    if options.verb is None:
        parser.error("name a verb")
    verb = f"{PROGRAM} {options.verb}"
    if rest and options.verb != "train":
        raise UsageError(
            f"{verb}: unknown argument {rest[0]}.{did_you_mean(rest[0], known)} "
            f"(`{verb} --help` lists them)"
        )
    if options.verb == "train" and not (options.help or options.help_all):
        given = {"TASK": options.task, "--output RUN": options.output}
        if missing := [name for name, value in given.items() if value is None]:
            missing = ", and so is ".join([f"{missing[0]} is missing", *missing[1:]])
            raise UsageError(f"{verb}: {missing} (`{verb} --help` says more)")
        if options.accept_changes and not options.resume:
            raise UsageError(f"{verb}: --accept-changes needs --resume: a new run has no changes")
    options.overrides = rest
    return options


def _misspelt(verb: str, arguments: Sequence[str], known: Sequence[str]) -> str | None:
    """Return what to say of options that a verb does not have, or None.

    A key of the configuration, `--section.key`, is for `train` itself to know.
    """
    found = []
    for argument in arguments[: arguments.index("--") if "--" in arguments else None]:
        name = argument.partition("=")[0]
        is_key = verb == "train" and "." in name
        if re.fullmatch(r"--?[A-Za-z][^ ]*", name) and name not in known and not is_key:
            found.append(f"{name}.{did_you_mean(name, known)}")
    return " Unknown argument ".join(found) if found else None


def _task_of_run(arguments: Sequence[str]) -> TaskCommand | None:
    """Return the task of the first argument that is a run folder or preset; None without one."""
    # Where a wheel has the presets, and where a source tree has them.
    presets = [each / "applications" / "presets" for each in (PACKAGE, PACKAGE.parent)]
    for argument in arguments:
        for folder in (Path(os.path.expanduser(argument)), *(each / argument for each in presets)):
            name = _word(folder / "FORMAT", "task") or _word(folder / "task.json", "class_name")
            for task in TASKS.values():
                if name in (task.name, task.task_class, *task.classes):
                    return task
    return None


def _word(path: Path, key: str) -> str | None:
    """Return a text that a small JSON file holds; None where it does not."""
    try:
        is_small = path.is_file() and path.stat().st_size < MOST_BYTES  # and no pipe
        value = json.loads(path.read_bytes() if is_small else b"")[key]
        return value if isinstance(value, str) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def build_parser(task: TaskCommand | None = None) -> _Parser:
    """Return the parser of all verbs, those on a run with the options of `task`."""
    about = "Train and use attention models. Try `keras-attention demo` first."
    parser = _Parser(prog=PROGRAM, description=about, allow_abbrev=False)
    try:
        own = version("keras-attention-layers")
    except PackageNotFoundError:  # run from a source tree that is not installed
        own = "unknown"
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {own}")
    parser.add_argument(
        "--print-completion",
        metavar="SHELL",
        choices=("bash", "zsh", "tcsh"),
        type=one_of(("bash", "zsh", "tcsh")),
        help="print the script that completes this command in a shell, and exit",
    )
    parser.verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    _add_train(parser)
    for name, summary in VERBS_ON_A_RUN.items():
        if task is not None and name not in task.verbs:
            continue
        of_task = f"{task.verbs[name]} (a run of {task.name})" if task else ""
        verb = parser.add_verb(name, summary, of_task)
        run = "a run folder that `train` made, or a preset (`dates`, `firefox-en-pt`, a folder)"
        verb.add_argument("run", metavar="RUN", type=path, help=run)
        add_options(verb, task.options[name] if task else ())
    _add_serve(parser)
    average = parser.add_verb(
        "average", "write a preset whose weights are the mean of those of several runs"
    )
    average.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        type=path,
        help="run folders or presets of one architecture and vocabulary; of one run folder alone "
        "the mean of its checkpoints",
    )
    average.add_argument("--output", metavar="PRESET", required=True, type=path, help="new folder")
    convert = parser.add_verb(
        "convert",
        "write a translator that others have trained as a preset",
        "read a translator that others have trained, and write it as a preset of this package, "
        "with a card that says where it comes from",
    )
    source = (
        "a folder with the files of Marian, Hugging Face's MarianMTModel or CTranslate2; "
        "hf://USER/NAME; `firefox-en-pt`; or a preset"
    )
    convert.add_argument("source", metavar="SOURCE", type=path, help=source)
    convert.add_argument("--output", metavar="PRESET", required=True, type=path, help="new folder")
    _add_task(
        parser.add_verb(
            "init", "print a configuration of a task, every key with its default and a comment"
        )
    )
    demo = parser.add_verb(
        "demo",
        "train a translator of written dates, show it, export it and read it back",
        epilog="exit status 1 where it translates fewer unseen dates exactly than it should",
    )
    demo.add_argument(
        "--output",
        metavar="D",
        type=path,
        help="new folder for all of it (default: runs/demo, or the next free runs/demo-N)",
    )
    return parser


def _add_serve(parser: _Parser) -> None:
    serve = parser.add_verb("serve", "open a local page where models show what they attend to")
    serve.add_argument(
        "runs",
        metavar="RUN",
        nargs="*",
        type=path,
        help="run folders or presets (`dates`, a folder), of any task, to compare side by side "
        "(default: `firefox-en-pt` where the extra `pretrained` is installed, else `dates`)",
    )
    serve.add_argument(
        "--host",
        metavar="H",
        type=path,
        default="127.0.0.1",
        help="the address to serve at (default: 127.0.0.1, which this machine alone can reach)",
    )
    for name, default, meaning in (
        ("port", 8000, "its port; 0 for a free one"),
        ("most-characters", 2000, "longest text of a request"),
        ("most-seconds", 60, "longest time for an answer"),
    ):
        serve.add_argument(
            f"--{name}",
            metavar="N",
            type=natural if name == "port" else positive,
            default=default,
            help=f"{meaning} (default: {default})",
        )


def _add_train(parser: _Parser) -> None:
    examples = "".join(task.examples for task in TASKS.values())
    train = parser.add_verb(
        "train",
        "train a model into a new run folder",
        add_help=False,
        usage=f"{PROGRAM} train TASK [--from PRESET] [--config F.yaml] [--section.key V ...] "
        "--output RUN [--resume]",
        epilog=f"examples:\n{examples}\n"
        f"`{PROGRAM} train TASK --help` lists the usual --section.keys with their defaults.",
    )
    _add_task(train, nargs="?")
    train.add_argument(
        "-h",
        "--help",
        action="store_true",
        help="show this help, with TASK its usual keys, and exit",
    )
    train.add_argument(
        "--help-all", action="store_true", help="with TASK: show every --section.key, and exit"
    )
    train.add_argument(
        "--config", metavar="F.yaml", type=path, help="a YAML file with sections and keys"
    )
    train.add_argument(
        "--from",
        dest="start",
        metavar="PRESET",
        type=path,
        help="start with the weights, the vocabularies and the settings of a preset or run folder "
        "(fine-tuning); options and --config change its settings, but not its network",
    )
    train.add_argument("--output", metavar="RUN", type=path, help="the run folder to make")
    train.add_argument(
        "--resume",
        action=argparse.BooleanOptionalAction,
        help="continue the run in --output, exactly as if it had never stopped (a run that was "
        "stopped before its folder was made starts anew)",
    )
    train.add_argument(
        "--accept-changes",
        action=argparse.BooleanOptionalAction,
        help="with --resume: go on although data, package or files differ from those of the run; "
        "the run's log records what differs",
    )
    train.set_defaults(show_train_help=train.format_help)


def _add_task(parser: argparse.ArgumentParser, **settings) -> None:
    help = f"one of: {', '.join(TASKS)}"
    settings |= {"choices": list(TASKS), "type": one_of(list(TASKS))}
    parser.add_argument("task", metavar="TASK", help=help, **settings)
