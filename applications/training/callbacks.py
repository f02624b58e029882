"""What happens at the end of an update and of an epoch, beside training itself."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention.applications.common.errors import Preempted, TrainingDiverged, UserError, shown
from keras_attention.applications.common.weights import save_weights
from keras_attention.applications.training.run_folder import Checkpoint, Checkpoints
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
                save_weights(network_of(self.model), self.path)
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


class AverageWeights(keras.callbacks.Callback):
    """Puts the mean of the weights at the last epochs' ends into the model, to be judged and kept.

    It comes before the evaluation; its part `back`, which puts the weights of training back, comes
    after the judges and before the checkpoint.

    Args:
        count: epochs at most.
    """

    def __init__(self, count: int):
        super().__init__()
        self.count = count
        self.window: list[list[np.ndarray]] = []
        self.back = keras.callbacks.LambdaCallback(on_epoch_end=self._put_back)

    def on_epoch_end(self, epoch, logs=None):
        own = [np.array(variable.numpy()) for variable in self.model.trainable_variables]
        self.window = [*self.window, own][-self.count :]
        means = [
            np.mean(arrays, axis=0, dtype="float64") for arrays in zip(*self.window, strict=True)
        ]
        self._assign(means)

    def _put_back(self, epoch, logs=None):
        self._assign(self.window[-1])

    def _assign(self, arrays):
        for variable, array in zip(self.model.trainable_variables, arrays, strict=True):
            variable.assign(array.astype(variable.dtype))

    @property
    def arrays(self) -> list[np.ndarray]:
        """What an exact resume needs: the weights at the last epochs' ends, one after another."""
        return [array for weights in self.window for array in weights]

    def restore(self, arrays: list[np.ndarray], model: keras.Model) -> None:
        """Take up `arrays` again."""
        size = len(model.trainable_variables)
        self.window = [arrays[first : first + size] for first in range(0, len(arrays), size)]


class SaveCheckpoint(keras.callbacks.Callback):
    """Writes a checkpoint at the end of each epoch: variables, and the state of `callbacks`.

    `batches` is how many batches have been seen, over all sittings, `within` how many of them in
    an epoch that was left, and `newest` the path of the checkpoint that was written last.

    Why not `keras.callbacks.BackupAndRestore`: see docs/adr/0003-exact-resume.md.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        callbacks: dict[str, keras.callbacks.Callback],
        average: AverageWeights | None = None,
        batch_size: int | None = None,
        steps: int = 2**31,
    ):
        super().__init__()
        self.checkpoints = checkpoints
        self.steps = steps
        self.batch_size = batch_size
        self.stateful = callbacks
        self.average = average
        self.batches = 0
        self.within = 0
        self.newest: Path | None = None
        self._metrics: list[np.ndarray] = []

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        self.before = self.batches

    def on_train_batch_end(self, batch, logs=None):
        # Counted by the batch's number: an execution of several batches ends once.
        self.within += self.before + batch + 1 - self.batches
        self.batches = self.before + batch + 1
        if self._metrics:  # what the epoch's batches gave before it was left
            sync_variables(self.model)
            for variable, value in zip(self.model.metrics_variables, self._metrics, strict=True):
                variable.assign(variable.numpy() + value)
            self._metrics = []

    def on_epoch_end(self, epoch, logs=None):
        self.within = 0
        self._save(epoch + 1, [])

    def save_within_epoch(self) -> None:
        """Write a checkpoint in the middle of an epoch; the figures so far are in it."""
        sync_variables(self.model)
        self._save(self.epoch, [value.numpy() for value in self.model.metrics_variables])

    def _save(self, epoch, metrics):
        states = {name: callback.get_state() for name, callback in self.stateful.items()}
        arrays = [value.numpy() for value in training_variables(self.model)]
        counts = {"batches": self.batches, "within": self.within, "metrics": len(metrics)}
        counts["batch_size"] = self.batch_size
        self.newest = self.checkpoints.save(
            Checkpoint(
                step=updates_made(self.model),
                arrays=arrays + (self.average.arrays if self.average else []) + metrics,
                state={"epoch": epoch, **counts, "callbacks": states},
            )
        )

    def restore(self, model: keras.Model, checkpoint: Checkpoint) -> int:
        """Put `checkpoint` into `model`, its optimizer and the callbacks; return its epoch."""
        variables = training_variables(model)
        expected = [tuple(variable.shape) for variable in variables]
        arrays, more = checkpoint.arrays[: len(variables)], checkpoint.arrays[len(variables) :]
        received = [array.shape for array in arrays]
        if expected != received:
            raise UserError(
                f"the checkpoint of step {checkpoint.step} does not fit the model: expected "
                f"{len(expected)} variables, received {len(received)} or other shapes. Was the "
                "run folder's config.yaml or tokeniser changed?"
            )
        state = self._checked(checkpoint)
        if state["batch_size"] != self.batch_size:
            raise UserError(
                f"the run was trained with batches of {state['batch_size']} on all replicas "
                "together, which distribute.batch replica makes of their number: continue it with "
                f"as many. Received: batches of {self.batch_size}."
            )
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)
        kept = len(more) - state["metrics"]
        self._metrics = more[kept:]
        if self.average:
            self.average.restore(more[:kept], model)
        self.batches, self.within = state["batches"], state["within"]
        for name, callback in self.stateful.items():
            if name in state["callbacks"]:  # a run of an earlier version may lack the newest
                callback.set_state(state["callbacks"][name])
        return state["epoch"]

    def _checked(self, checkpoint: Checkpoint) -> dict:
        """Return the state of a checkpoint, complete, after a look at every value.

        Raises:
            UserError: naming the value that cannot be.
        """
        # Checkpoints of before batches were accumulated know one batch an update.
        given = {"batches": checkpoint.step, "within": 0, "metrics": 0, **checkpoint.state}
        given.setdefault("batch_size", self.batch_size)
        most = {"within": self.steps - 1, "metrics": len(checkpoint.arrays)}
        for name in ("epoch", "batches", "within", "metrics"):
            value = given.get(name)
            if type(value) is not int or not 0 <= value <= most.get(name, 2**53):
                raise self._bad(checkpoint, name, value)
        if not isinstance(given.get("callbacks"), dict):
            raise self._bad(checkpoint, "callbacks", given.get("callbacks"))
        for name, callback in self.stateful.items():
            if name not in given["callbacks"] or name.startswith("callback "):
                continue  # the newest may be missing in an earlier run; a user's are his own
            state, own = given["callbacks"][name], callback.get_state()
            if not isinstance(state, dict) or state.keys() != own.keys():
                raise self._bad(checkpoint, name, state)
            for key, value in state.items():
                is_number = type(value) in (int, float) and math.isfinite(value)
                ours = isinstance(own[key], (int, float, type(None)))
                if ours and not is_number and not (value is None and key == "best"):
                    raise self._bad(checkpoint, f"{name}.{key}", value)
        return given

    def _bad(self, checkpoint: Checkpoint, name: str, value: Any) -> UserError:
        return UserError(
            f"the checkpoint of step {checkpoint.step} is damaged: it holds {shown(value)} as "
            f"{name}. Delete it to go on from the one before."
        )


def sync_variables(model: keras.Model) -> None:
    """Make the variables of `model` what they are after the last batch.

    Within an epoch Keras keeps them elsewhere on JAX. It takes up again what they are then.
    """
    if sync := getattr(model, "jax_state_sync", None):
        sync()


def network_of(model: keras.Model) -> keras.Model:
    """Return the network of a task, and any other model itself."""
    network = getattr(model, "backbone", None)
    return model if network is None else network


def training_variables(model: keras.Model) -> list:
    """Return all that training changes: weights, seed generators' states, the optimizer's own.

    `model.save_weights` leaves the states of seed generators (dropout) out; `variables` has them.
    Of a task they are those of its network, as in version 0.1: what else it has is for searching.
    """
    network = network_of(model).variables
    known = {id(variable) for variable in network}
    more = [each for each in model.trainable_variables if id(each) not in known]
    return [*network, *more, *model.optimizer.variables]


class EndOnSignal(keras.callbacks.Callback):
    """Writes a checkpoint and ends training after a SIGTERM, as schedulers send it.

    It comes after `saver`: a signal during an evaluation finds the epoch's own checkpoint written.

    Args:
        saver: what writes checkpoints.
        steps: batches in an epoch.
        workers: all of them end where one is asked to.
    """

    def __init__(self, saver: SaveCheckpoint, steps: int, workers: Workers):
        super().__init__()
        self.saver = saver
        self.steps = steps
        self.workers = workers
        self.asked = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take notice of the signal inside; only a program's main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGTERM, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _note(self, number, frame):
        self.asked = True

    def on_train_batch_end(self, batch, logs=None):
        # After the last batch of an epoch, its end is near and writes a checkpoint itself.
        if (
            self.saver.within < self.steps
            and is_time_for_a_word(self.workers, batch)
            and self.workers.any(self.asked)
        ):
            self.saver.save_within_epoch()
            self._end()

    def on_epoch_end(self, epoch, logs=None):
        if self.workers.any(self.asked):
            self._end()

    def _end(self):
        path = self.saver.newest
        raise Preempted(f"ended by SIGTERM; {path} is written, continue with --resume.")


def updates_made(model: keras.Model) -> int:
    """Return how many updates the optimizer of `model` has made."""
    return int(model.optimizer.iterations.numpy())


def learning_rate_of(model: keras.Model) -> float:
    """Return the learning rate of the next update."""
    return float(ops.convert_to_numpy(model.optimizer.learning_rate))
