"""What happens at the end of an update and of an epoch, beside training itself.

A callback whose state an exact resume needs has `get_state() -> dict` and `set_state(dict)`, with
values that JSON keeps exactly. Their order in `fit` matters: figures are measured first, then
judged, then reported, and the checkpoint is written last.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path

import keras

from keras_attention.applications.common.checkpoints import Checkpoints
from keras_attention.applications.common.errors import TrainingDiverged
from keras_attention.applications.common.saving import save_weights, sync_variables
from keras_attention.applications.common.schedules import learning_rate_of, updates_made
from keras_attention.distribute import Workers


class Evaluation(keras.callbacks.Callback):
    """Adds figures on the development set to the logs of each epoch.

    Args:
        evaluate: returns them, for example `{"val_loss": 2.1, "val_bleu": 31.7}`.
    """

    def __init__(self, evaluate: Callable[[], dict[str, float]]):
        super().__init__()
        self.evaluate = evaluate

    def on_epoch_end(self, epoch, logs=None):
        logs.update(self.evaluate())


class StopWhenNotFinite(keras.callbacks.Callback):
    """Ends training when a loss is NaN or infinite, before a checkpoint could keep it.

    Args:
        checkpoints: those of the run, in its folder.
    """

    def __init__(self, checkpoints: Checkpoints):
        super().__init__()
        self.checkpoints = checkpoints

    def on_train_batch_end(self, batch, logs=None):
        self._check("loss", logs)

    def on_epoch_end(self, epoch, logs=None):
        self._check("loss", logs)
        self._check("val_loss", logs)

    def _check(self, name, logs):
        value = logs.get(name, 0.0)
        if not math.isfinite(value):
            sync_variables(self.model)
            step = updates_made(self.model)
            raise diverged(f"{name} became {value} at step {step}", self.checkpoints)


def diverged(what: str, checkpoints: Checkpoints) -> TrainingDiverged:
    """Return the error that ends a training, with the checkpoint that is kept."""
    paths = checkpoints.paths()
    kept = "There is no checkpoint yet."
    if paths:
        kept = f"The last good checkpoint ({paths[-1].name}) and the best weights are kept."
    return TrainingDiverged(
        f"{what}. {kept} "
        "Train again with a lower training.learning_rate or a smaller training.clip_norm, "
        f"into another --output or after deleting {checkpoints.folder.parent}."
    )


class Plateau:
    """The best value so far and the epochs since then.

    Args:
        mode: "min" or "max".
    """

    def __init__(self, mode: str):
        self.sign = 1.0 if mode == "max" else -1.0
        self.best = None
        self.wait = 0

    def improved(self, value: float) -> bool:
        """Take the next value; return whether it is the best."""
        better = self.best is None or self.sign * value > self.sign * self.best
        self.best = value if better else self.best
        self.wait = 0 if better else self.wait + 1
        return better


class KeepBest(keras.callbacks.Callback):
    """Saves the weights whenever `monitor` is best, and stops training after `patience` epochs.

    Args:
        path: the `.weights.h5` file; None to remember only, as a worker does that is no chief.
        monitor: the figure in the logs.
        mode: "min" or "max".
        patience: epochs without a better figure; `None` never stops.
    """

    def __init__(self, path: Path | None, monitor: str, mode: str, patience: int | None):
        super().__init__()
        self.path = path
        self.monitor = monitor
        self.patience = patience
        self.plateau = Plateau(mode)
        self.best_epoch = 0

    @property
    def exhausted(self) -> bool:
        return self.patience is not None and self.plateau.wait >= self.patience

    def on_epoch_end(self, epoch, logs=None):
        if self.plateau.improved(logs[self.monitor]):
            self.best_epoch = epoch + 1
            if self.path is not None:
                save_weights(self.model, self.path)
        if self.exhausted:
            self.model.stop_training = True

    def get_state(self):
        return {"best": self.plateau.best, "wait": self.plateau.wait, "epoch": self.best_epoch}

    def set_state(self, state):
        self.plateau.best, self.plateau.wait = state["best"], state["wait"]
        self.best_epoch = state["epoch"]


class HalveOnPlateau(keras.callbacks.Callback):
    """Halves the learning rate after `patience` epochs without a better `monitor`.

    The learning rate itself is a variable of the optimizer, which the checkpoint holds.
    """

    def __init__(self, monitor: str, mode: str, patience: int):
        super().__init__()
        self.monitor = monitor
        self.patience = patience
        self.plateau = Plateau(mode)

    def on_epoch_end(self, epoch, logs=None):
        self.plateau.improved(logs[self.monitor])
        if self.plateau.wait >= self.patience:
            self.plateau.wait = 0
            optimizer = self.model.optimizer
            optimizer.learning_rate = 0.5 * learning_rate_of(self.model)

    def get_state(self):
        return {"best": self.plateau.best, "wait": self.plateau.wait}

    def set_state(self, state):
        self.plateau.best, self.plateau.wait = state["best"], state["wait"]


BATCHES_BETWEEN_WORDS = 8
"""Workers ask each other so seldom whether to stop, as asking takes milliseconds."""


class TimeLimit(keras.callbacks.Callback):
    """Stops training after `seconds`, counted over all sittings of a run; `None` never does.

    Of several workers, all stop where the time of one is over.
    """

    def __init__(self, seconds: float | None, workers: Workers):
        super().__init__()
        self.seconds = seconds
        self.workers = workers
        self.before = 0.0
        self.start: float | None = None
        self.over = False

    @property
    def elapsed(self) -> float:
        return self.before + (0.0 if self.start is None else time.monotonic() - self.start)

    @property
    def exhausted(self) -> bool:
        return self.seconds is not None and (self.over or self.before >= self.seconds)

    def on_train_begin(self, logs=None):
        if self.start is None:  # the rest of an epoch that was left is trained before the others
            self.start = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        if is_time_for_a_word(self.workers, batch):
            self._look()

    def on_epoch_end(self, epoch, logs=None):
        self._look()

    def _look(self):
        if self.seconds is None:
            return
        self.over = self.workers.any(self.elapsed >= self.seconds)
        if self.over:
            self.model.stop_training = True

    def get_state(self):
        return {"seconds": self.elapsed}

    def set_state(self, state):
        self.before = state["seconds"]


def is_time_for_a_word(workers: Workers, batch: int) -> bool:
    """Return whether workers ask each other something after this batch of an epoch."""
    return workers.count == 1 or (batch + 1) % BATCHES_BETWEEN_WORDS == 0
