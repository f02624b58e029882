"""What a task offers to the command."""

import abc
from argparse import Namespace
from typing import Any, ClassVar

from keras_attention.applications.common.backend import require_backend, require_tensorflow
from keras_attention.applications.common.config import load_config
from keras_attention.applications.common.config_help import config_help
from keras_attention.applications.common.messages import clock, say
from keras_attention.applications.common.run_folder import RunFolder, is_free
from keras_attention.applications.common.training import Outcome


class Task(abc.ABC):
    """A task that the verbs of the command work on; its module calls an instance `TASK`.

    Each verb gets its parsed options, writes results to standard output and messages to standard
    error, and raises `UserError` for what the user can put right. Modules that build models are
    imported inside the verbs, so that what is wrong with the options is said without waiting.

    Attributes:
        config_class: the dataclass of the task's configuration, with sections `data` and
            `training`.
        presets: what a known data set (`data.dataset`) changes in the defaults.
    """

    config_class: ClassVar[type]
    presets: ClassVar[dict[str, list[str]]] = {}

    @abc.abstractmethod
    def train_new(self, config: Any, output: str) -> Outcome:
        """Train into the new run folder `output`."""

    @abc.abstractmethod
    def train_on(self, output: str, config: Any) -> Outcome:
        """Continue the run in `output`."""

    @abc.abstractmethod
    def evaluate(self, options: Namespace) -> None:
        """Measure the run `options.run`."""

    @abc.abstractmethod
    def predict(self, options: Namespace) -> None:
        """Predict for each line of the input."""

    @abc.abstractmethod
    def visualize(self, options: Namespace) -> None:
        """Draw what the run's model attends to."""

    @abc.abstractmethod
    def export(self, options: Namespace) -> None:
        """Write the run's model for use elsewhere."""

    def train(self, options: Namespace) -> None:
        """Train into `options.output`, with `options.config` and `options.overrides`."""
        require_backend("training", "tensorflow", "jax")
        resumes = options.resume and not is_free(options.output)
        run = RunFolder(options.output) if resumes else None
        config = self.read_config(options.config, options.overrides, run)
        if config.training.check_numerics:
            require_tensorflow("training.check_numerics")
        if resumes:
            outcome = self.train_on(options.output, config)
        else:
            outcome = self.train_new(config, options.output)
        say(
            f"{outcome.reason}: best {config.training.monitor[0]} {outcome.best:.4g} in epoch "
            f"{outcome.best_epoch} of {outcome.epoch}, {clock(outcome.seconds)} in all. "
            f"Try `keras-attention evaluate {options.output}`."
        )

    def config_help(self) -> str:
        """Return the description of every configuration key."""
        return config_help(self.config_class, self.presets)

    def read_config(
        self, path: str | None, overrides: list[str], run: RunFolder | None = None
    ) -> Any:
        """Read a configuration: a run's own if there is one, a file, and overrides on top.

        A known data set brings its own defaults.
        """
        paths = ([run.config] if run else []) + ([path] if path else [])
        config = load_config(self.config_class, paths, overrides)
        return load_config(self.config_class, paths, overrides, self.presets_of(config))

    def presets_of(self, config: Any) -> list[str]:
        """Return what the data set that a configuration names changes in the defaults."""
        return self.presets.get(config.data.dataset, [])
