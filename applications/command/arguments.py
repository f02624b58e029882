"""What the tasks' options share. Standard library only."""

import argparse
import ast
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ALIASES = {"beam_size": ("--beam",)}
"""What users type beside the name of a search option."""


@dataclass(frozen=True)
class Verb:
    """What a verb does with a run of one task, and the options it takes beside the run.

    Args:
        summary: what it does, as a line of help.
        add_options: adds the options to the verb's parser.
    """

    summary: str
    add_options: Callable[[argparse.ArgumentParser], None]


@dataclass(frozen=True)
class TaskCommand:
    """A task as the command line knows it.

    Args:
        name: its name on the command line, and in a run folder.
        task_class: the name of its class; its application is a module of the same name as the task.
        examples: command lines of `train`, for its help.
        verbs: those that work on a run or preset.
        classes: the classes whose presets it reads.
    """

    name: str
    task_class: str
    examples: str
    verbs: Mapping[str, Verb]
    classes: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The application's module, which imports Keras."""
        return f"keras_attention.applications.{self.name.replace('-', '_')}"


def add_search(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the options of a search: their names, types and help are those of `SearchOptions`."""
    group = parser.add_argument_group("search")
    for name, field in _search_fields().items():
        if names and name not in names:
            continue
        flags = [f"--{name.replace('_', '-')}", *ALIASES.get(name, ())]
        group.add_argument(*flags, dest=name, default=None, **field)


@functools.cache
def _search_fields() -> dict[str, dict[str, Any]]:
    """Return what argparse needs to know of each field of `SearchOptions`.

    Read from its source: importing it would import Keras.
    """
    package = Path(find_spec("keras_attention").submodule_search_locations[0])
    source = (package / "decoding" / "options.py").read_text(encoding="utf-8")
    options = next(
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == "SearchOptions"
    )
    described = dict(
        re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", ast.get_docstring(options), re.MULTILINE)
    )
    fields = {}
    for node in options.body:
        if isinstance(node, ast.AnnAssign):
            name, kind = node.target.id, ast.unparse(node.annotation).split(" ")[0]
            text = " ".join(described[name].split()).rstrip(".").replace("%", "%%")
            settings = {"help": f"{text} (default: the run's own)"}
            if kind == "bool":
                settings["action"] = "store_true"
            else:
                settings |= {"type": _NUMBERS[kind], "metavar": "N" if kind == "int" else "X"}
            fields[name] = settings
    return fields


def natural(text: str) -> int:
    """Return a whole number from 0, as an option's `type`."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"expected a whole number from 0. Received: {text}")
    return int(text)


def positive(text: str) -> int:
    """Return a whole number from 1, as an option's `type`."""
    try:
        value = int(text)
    except ValueError:  # argparse would name this function in its message
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1. Received: {text}")
    return value


def number(text: str) -> float:
    """Return a number, as an option's `type`."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number. Received: {text}") from None


_NUMBERS = {"int": natural, "float": number}
