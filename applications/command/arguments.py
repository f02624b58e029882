"""What the tasks' options share. Standard library only."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass


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
        examples: command lines of `train`, for its help.
        verbs: evaluate, predict, visualize and export.
    """

    name: str
    examples: str
    verbs: Mapping[str, Verb]

    @property
    def module(self) -> str:
        """The module that has the task's `TASK`; it imports Keras."""
        return f"keras_attention.applications.{self.name.replace('-', '_')}.task"


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
