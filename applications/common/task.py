"""What a task offers to the command."""

from argparse import Namespace
from typing import Protocol


class Task(Protocol):
    """A task that the verbs of the command work on; its module calls it `TASK`.

    Each method gets the parsed options of its verb, writes results to standard output and messages
    to standard error, and raises `UserError` for what the user can put right.
    """

    def config_help(self) -> str:
        """Return the description of every configuration key."""

    def train(self, options: Namespace) -> None:
        """Train into `options.output`, with `options.config` and `options.overrides`."""

    def evaluate(self, options: Namespace) -> None:
        """Measure the run `options.run`."""

    def predict(self, options: Namespace) -> None:
        """Predict for each line of the input."""

    def visualize(self, options: Namespace) -> None:
        """Draw what the run's model attends to."""

    def export(self, options: Namespace) -> None:
        """Write the run's model for use elsewhere."""
