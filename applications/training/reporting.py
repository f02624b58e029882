"""Reports of a training: progress for people, figures for programs."""

import sys
import time
from pathlib import Path
from typing import Any

import keras
from keras import ops

from ..errors import UserError, clock, say
from .callbacks import learning_rate_of, updates_made


@keras.saving.register_keras_serializable("keras_attention")
class TokenCount(keras.metrics.Sum):
    """Counts the labels that are not padding, for tokens a second."""

    reads_labels_only = True

    def __init__(self, name: str = "tokens", **kwargs):
        super().__init__(name=name, **kwargs)

    def update_state(self, y_true, y_pred, sample_weight=None):
        return super().update_state(ops.cast(ops.not_equal(y_true, 0), "float32"))


class Figures(keras.callbacks.Callback):
    """Completes the logs of an epoch: step, learning rate, seconds, tokens a second.

    `tokens` is taken out of the logs, as a rate says more. Seconds are those of training alone,
    without the evaluation that comes after the epoch.
    """

    def __init__(self):
        super().__init__()
        self.before = self.start = self.end = 0.0

    def on_epoch_begin(self, epoch, logs=None):
        self.start = self.end = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        self.end = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        seconds = max(self.get_state()["seconds"], 1e-9)
        self.before = self.start = self.end = 0.0
        # No "epoch": a user's `ModelCheckpoint` and `CSVLogger` put their own beside the logs.
        logs |= {"step": updates_made(self.model), "learning_rate": learning_rate_of(self.model)}
        logs["train_seconds"] = round(seconds, 3)
        if "tokens" in logs:
            logs["tokens_per_second"] = round(logs.pop("tokens") / seconds, 1)

    def get_state(self):
        return {"seconds": self.before + self.end - self.start}

    def set_state(self, state):
        self.before = state["seconds"]


def tensorboard_summary() -> Any:
    """Return TensorFlow's module that writes logs; raise a UserError where it cannot."""
    try:
        import tensorboard  # noqa: F401 - TensorFlow's writer fails late and less clearly
        import tensorflow as tf
    except ImportError:
        raise UserError(
            "TensorBoard logs need the packages tensorflow and tensorboard: install them, or "
            "set training.tensorboard to false."
        ) from None
    return tf.summary


class WriteTensorBoard(keras.callbacks.Callback):
    """Writes the logs of each epoch as scalars, against the step."""

    def __init__(self, folder: Path):
        super().__init__()
        self.summary, self.folder = tensorboard_summary(), folder

    def on_train_begin(self, logs=None):
        try:
            self.folder.mkdir(exist_ok=True)  # which says in few words why it cannot
            self.writer = self.summary.create_file_writer(str(self.folder))
        except OSError as error:
            raise UserError(
                f"{self.folder} could not be written ({error.strerror}): mend that, or set "
                "training.tensorboard to false."
            ) from None

    def on_epoch_end(self, epoch, logs=None):
        with self.writer.as_default():
            for name, value in logs.items():
                if name != "step":
                    self.summary.scalar(name, float(value), step=logs["step"])
        self.writer.flush()

    def on_train_end(self, logs=None):
        self.writer.close()


SECONDS_BETWEEN_LINES = 30.0
SECONDS_BETWEEN_REDRAWS = 0.2


class Progress(keras.callbacks.Callback):
    """Shows how training goes: a line redrawn in place on a terminal, else a line now and then.

    `first` is how many batches of the first epoch were made before, in `before` seconds.
    """

    def __init__(self, epochs: int, steps: int, first: int = 0, before: float = 0.0):
        super().__init__()
        self.epochs, self.steps, self.first, self.before = epochs, steps, first, before
        self.live = sys.stderr.isatty()

    def on_epoch_begin(self, epoch, logs=None):
        self.start = self.shown = time.monotonic()
        self.epoch, self.counted = epoch + 1, 0.0

    def on_train_batch_end(self, batch, logs=None):
        now = time.monotonic()
        seconds = self.counted + now - self.start
        self.counted = self.before  # as `SaveCheckpoint` adds their tokens after the first batch
        if now - self.shown < (SECONDS_BETWEEN_REDRAWS if self.live else SECONDS_BETWEEN_LINES):
            return
        self.shown = now
        done, passed = batch + 1, now - self.start
        left = passed / done * (self.steps - self.first - done)
        done += self.first
        text = f"epoch {self.epoch}/{self.epochs}  {done}/{self.steps}  loss {logs['loss']:.4f}"
        if "tokens" in logs:
            text += f"  {logs['tokens'] / seconds:,.0f} tokens/s"
        text += f"  {clock(left)} left"
        if self.live:
            text = f"\r\x1b[K[{'=' * (20 * done // self.steps):20}] {text}"
        say(text, "" if self.live else "\n")

    def on_epoch_end(self, epoch, logs=None):
        text = f"epoch {epoch + 1}/{self.epochs}  " + "  ".join(
            f"{name} {_short(value)}" for name, value in logs.items() if name != "train_seconds"
        )
        self.first, self.before = 0, 0.0
        clear = "\r\x1b[K" if self.live else ""
        seconds = clock(time.monotonic() - self.start)
        say(f"{clear}{text}  {seconds}")


def _short(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
