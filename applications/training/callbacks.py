"""Callbacks: what a training does at the end of an update and of an epoch."""

import dataclasses
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

from keras_attention.distribute import Workers

from ..arguments import is_finite
from ..errors import Preempted, TrainingDiverged, UserError, say, shown
from ..store.weights import save_weights
from .judgement import LOSS, Judge, figures_of, short
from .run_folder import Checkpoint, Checkpoints


def at_epoch_end(act: Callable[[int, dict], None]) -> keras.callbacks.Callback:
    """Return a callback that does something with the number, from 0, and the logs of each epoch."""
    return keras.callbacks.LambdaCallback(on_epoch_end=act)


class StopWhenNotFinite(keras.callbacks.Callback):
    """Ends training when a loss is NaN or infinite, before a checkpoint could keep it."""

    def __init__(self, checkpoints: Checkpoints):
        super().__init__()
        self.checkpoints = checkpoints

    def on_train_batch_end(self, batch, logs=None):
        for name in ("loss", "val_loss"):
            if not math.isfinite(value := logs.get(name, 0.0)):
                sync_variables(self.model)
                what = f"{name} became {value} at step {updates_made(self.model)}"
                raise diverged(what, self.checkpoints)

    on_epoch_end = on_train_batch_end


def diverged(what: str, checkpoints: Checkpoints) -> TrainingDiverged:
    """Return the error that ends a training, with the checkpoint that is kept."""
    kept = "There is no checkpoint yet."
    if paths := checkpoints.paths():
        kept = f"The last good checkpoint ({paths[-1].name}) and the best weights are kept."
    return TrainingDiverged(
        f"{what}. {kept} "
        "Train again with a lower training.learning_rate or training.clip_norm, "
        f"into another --output or after deleting {checkpoints.folder.parent}."
    )


class KeepBest(keras.callbacks.Callback):
    """Keeps the best epoch as `judge` says: its figures, and its weights in a file.

    It stops training after `patience` epochs without a better one.

    Args:
        path: the file of the weights; None in a worker that is not the chief, which remembers only.
        judge: compares the figures of epochs.
        patience: how many epochs without a better one end the training; None for any number.
        save_more: writes what goes with the weights, beside them.
    """

    kept = ("figures", "epoch", "step", "wait", "measured_on", "told")

    def __init__(
        self,
        path: Path | None,
        judge: Judge,
        patience: int | None,
        save_more: Callable[[], None] | None = None,
    ):
        super().__init__()
        self.path = path
        self.judge = judge
        self.patience = patience
        self.save_more = save_more
        self.figures: dict[str, float | None] = {}
        self.measured_on = judge.measured_on
        self.epoch = self.step = self.wait = 0
        self.told = False

    @property
    def value(self) -> float | None:
        """The figure that decided first, in the best epoch; None where there is none yet."""
        return self.figures.get(self.judge.monitor)

    @property
    def exhausted(self) -> bool:
        return self.patience is not None and self.wait >= self.patience

    def on_epoch_end(self, epoch, logs=None):
        figures = figures_of(logs)
        if self.epoch and not self.told and self.judge.is_tie(figures, self.figures):
            self.told = True
            say(
                f"note: {self.judge.monitor} of epoch {epoch + 1} is that of epoch {self.epoch}, "
                f"{short(self.value)}: of equal scores the lower {LOSS} decides."
            )
        if self.epoch and not self.judge.is_better(figures, self.figures):
            self.wait += 1
        else:
            self.figures = figures
            self.wait = 0
            self.epoch = epoch + 1
            self.step = updates_made(self.model)
            self.save()
        if self.exhausted:
            self.model.stop_training = True

    def save(self) -> None:
        """Write the weights of the model, and what goes with them."""
        if self.path is not None:
            save_weights(network_of(self.model), self.path)
            if self.save_more is not None:
                self.save_more()

    @property
    def is_of_other_data(self) -> bool:
        """Whether the figures were measured on other data, or in another way."""
        return self.epoch > 0 and self.measured_on != self.judge.measured_on

    def take(self, figures: dict[str, float | None]) -> None:
        """Take the figures that the best weights so far have on the data of today."""
        self.figures = figures
        self.wait = 0
        self.told = False
        self.measured_on = self.judge.measured_on

    def get_state(self):
        return {name: getattr(self, name) for name in self.kept}

    def set_state(self, state):
        for name in self.kept:
            setattr(self, name, state[name])
        if not self.epoch:  # nothing was measured yet
            self.measured_on = self.judge.measured_on

    def is_possible(self, key: str, value: Any) -> bool:
        """Whether a checkpoint may hold this value for a key of the state."""
        if key == "figures":
            return isinstance(value, dict) and all(
                each is None or _is_number(each) for each in value.values()
            )
        kinds = {"measured_on": str, "told": bool}
        return isinstance(value, kinds[key]) if key in kinds else _is_number(value)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and is_finite(value)


class HalveOnPlateau(keras.callbacks.Callback):
    """Halves the learning rate after `patience` epochs without a better one than `best` keeps.

    It comes after `best`. The learning rate itself is a variable of the optimizer, which the
    checkpoint holds.
    """

    def __init__(self, best: KeepBest, patience: int):
        super().__init__()
        self.best = best
        self.patience = patience
        self.wait = 0

    def on_epoch_end(self, epoch, logs=None):
        self.wait = self.wait + 1 if self.best.wait else 0
        if self.wait >= self.patience:
            self.wait = 0
            self.model.optimizer.learning_rate = 0.5 * learning_rate_of(self.model)

    def get_state(self):
        return {"wait": self.wait}

    def set_state(self, state):
        self.wait = state["wait"]


BATCHES_BETWEEN_TALKS = 8
"""Workers ask each other whether to stop after so many batches: asking takes milliseconds."""


class TimeLimit(keras.callbacks.Callback):
    """Stops training after `seconds`, counted over all sittings of a run; `None` never does.

    Of several workers, all stop where the time of one is over.
    """

    def __init__(self, seconds: float | None, workers: Workers):
        super().__init__()
        self.seconds, self.workers = seconds, workers
        self.before, self.over = 0.0, False
        self.start: float | None = None

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
        if workers_talk_after(self.workers, batch):
            self.on_epoch_end(batch)

    def on_epoch_end(self, epoch, logs=None):
        if self.seconds is not None:
            self.over = self.workers.any(self.elapsed >= self.seconds)
            self.model.stop_training |= self.over

    def get_state(self):
        return {"seconds": self.elapsed}

    def set_state(self, state):
        self.before = state["seconds"]


def workers_talk_after(workers: Workers, batch: int) -> bool:
    """Whether workers ask each other something after this batch of an epoch."""
    return workers.count == 1 or (batch + 1) % BATCHES_BETWEEN_TALKS == 0


class AverageWeights(keras.callbacks.Callback):
    """Puts the mean of the weights at the last `count` epochs' ends into the model, to be judged.

    It comes before the evaluation; its part `back`, which puts the weights of training back, comes
    after the judges and before the checkpoint.
    """

    def __init__(self, count: int):
        super().__init__()
        self.count = count
        self.window: list[list[np.ndarray]] = []
        self.back = at_epoch_end(lambda epoch, logs: self._assign(self.window[-1]))

    def on_epoch_end(self, epoch, logs=None):
        own = [np.array(variable.numpy()) for variable in self.model.trainable_variables]
        self.window = [*self.window, own][-self.count :]
        columns = zip(*self.window, strict=True)
        self._assign([np.mean(arrays, axis=0, dtype="float64") for arrays in columns])

    def _assign(self, arrays):
        for variable, array in zip(self.model.trainable_variables, arrays, strict=True):
            variable.assign(array.astype(variable.dtype))

    @property
    def arrays(self) -> list[np.ndarray]:
        """Return the weights at the ends of the last epochs, which an exact resume needs."""
        return [array for weights in self.window for array in weights]

    def restore(self, arrays: list[np.ndarray], model: keras.Model) -> None:
        size = len(model.trainable_variables)
        self.window = [arrays[first : first + size] for first in range(0, len(arrays), size)]


class SaveCheckpoint(keras.callbacks.Callback):
    """Writes a checkpoint at the end of each epoch: variables, and the state of `callbacks`.

    After a SIGTERM, as schedulers send it, it writes one in the middle of an epoch and ends the
    training, of all workers where one is asked to. `batches` is how many batches have been seen,
    over all sittings, and `within` how many of them in an epoch that was left.

    Why not `keras.callbacks.BackupAndRestore`: see docs/adr/0003-exact-resume.md.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        callbacks: dict[str, keras.callbacks.Callback],
        average: AverageWeights | None = None,
        batch_size: int | None = None,
        steps: int = 2**31,
        workers: Workers | None = None,
    ):
        super().__init__()
        self.checkpoints, self.stateful, self.average = checkpoints, callbacks, average
        self.batch_size, self.steps, self.workers = batch_size, steps, workers or Workers()
        self.batches = self.within = 0
        self.asked_to_end = False
        self._metrics: list[np.ndarray] = []

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch, self.before = epoch, self.batches

    def on_train_batch_end(self, batch, logs=None):
        # Counted by the batch's number: an execution of several batches ends once.
        self.within += self.before + batch + 1 - self.batches
        self.batches = self.before + batch + 1
        if self._metrics:  # what the epoch's batches gave before it was left
            sync_variables(self.model)
            for variable, value in zip(self.model.metrics_variables, self._metrics, strict=True):
                variable.assign(variable.numpy() + value)
            self._metrics = []

        # After the last batch of an epoch, its end is near and writes a checkpoint itself.
        is_asked = self.within < self.steps and workers_talk_after(self.workers, batch)
        if is_asked and self.workers.any(self.asked_to_end):
            sync_variables(self.model)
            path = self._save(self.epoch, [each.numpy() for each in self.model.metrics_variables])
            raise ended_by_signal(path)

    def on_epoch_end(self, epoch, logs=None):
        self.within = 0
        path = self._save(epoch + 1, [])
        if self.workers.any(self.asked_to_end):
            raise ended_by_signal(path)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take notice of a SIGTERM inside; only a program's main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number, frame):
            self.asked_to_end = True

        before = signal.signal(signal.SIGTERM, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _save(self, epoch, metrics):
        """Write a checkpoint, with what the metrics are in the middle of an epoch."""
        state = {
            "epoch": epoch,
            "batches": self.batches,
            "within": self.within,
            "metrics": len(metrics),
            "batch_size": self.batch_size,
            "lora": lora_rank_of(network_of(self.model)),
            "callbacks": {name: each.get_state() for name, each in self.stateful.items()},
        }
        arrays = [value.numpy() for value in training_variables(self.model)]
        arrays += [*(self.average.arrays if self.average else []), *metrics]
        return self.checkpoints.save(Checkpoint(updates_made(self.model), arrays, state))

    def save_states(self) -> None:
        """Write the newest checkpoint again, with the states that callbacks have now."""
        checkpoint, _ = self.checkpoints.latest()
        states = {name: each.get_state() for name, each in self.stateful.items()}
        state = {**checkpoint.state, "callbacks": states}
        self.checkpoints.save(dataclasses.replace(checkpoint, state=state))

    def restore(self, model: keras.Model, checkpoint: Checkpoint) -> int:
        """Put `checkpoint` into `model`, its optimizer and the callbacks; return its epoch."""
        variables = training_variables(model)
        arrays, more = checkpoint.arrays[: len(variables)], checkpoint.arrays[len(variables) :]
        if [tuple(variable.shape) for variable in variables] != [array.shape for array in arrays]:
            had, has = checkpoint.state.get("lora"), lora_rank_of(network_of(model))
            if had != has:
                raise UserError(
                    f"the checkpoint of step {checkpoint.step} was trained {_with_lora(had)}. "
                    f"Go on with such a network. Received: one {_with_lora(has)}."
                )
            raise UserError(
                f"the checkpoint of step {checkpoint.step} does not fit the model: expected "
                f"{len(variables)} variables, received {len(arrays)} or other shapes. Was the "
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
        """Return the state of a checkpoint, complete; a UserError names a value that cannot be."""

        def check(name, value, holds):
            if not holds:
                raise UserError(
                    f"the checkpoint of step {checkpoint.step} is damaged: it holds "
                    f"{shown(value)} as {name}. Delete it to go on from the one before."
                )

        # Checkpoints of before batches were accumulated know one batch an update.
        given = {"batches": checkpoint.step, "within": 0, "metrics": 0, **checkpoint.state}
        given.setdefault("batch_size", self.batch_size)
        most = {"metrics": len(checkpoint.arrays)}
        for name in ("epoch", "batches", "within", "metrics"):
            value = given.get(name)
            check(name, value, type(value) is int and 0 <= value <= most.get(name, 2**53))
        check("within", given["within"], given["within"] <= given["batches"])
        if given["within"] >= self.steps:
            raise UserError(
                f"the checkpoint of step {checkpoint.step} was written within an epoch, after "
                f"{given['within']} batches of it: continue with the data that the run had, or "
                f"with more. Received: {self.steps} batches an epoch."
            )
        states = given.get("callbacks")
        check("callbacks", states, isinstance(states, dict))
        for name, callback in self.stateful.items():
            if (name not in states and name != "best") or name.startswith("callback "):
                continue  # the newest may be missing in an earlier run; a user's are his own
            state, own = states.get(name), callback.get_state()
            if isinstance(state, dict) and "best" in state:  # of 0.1, with one figure: see `take`
                figure = state.pop("best")
                check(f"{name}.best", figure, _is_number(figure) or not given["epoch"])
                state |= {key: type(own[key])() for key in own if key not in state}
            check(name, state, isinstance(state, dict) and state.keys() == own.keys())
            is_possible = getattr(callback, "is_possible", lambda key, value: _is_number(value))
            for key, value in state.items():
                check(f"{name}.{key}", value, is_possible(key, value))
        return given


def ended_by_signal(path: Path) -> Preempted:
    return Preempted(f"ended by SIGTERM; {path} is written, continue with --resume.")


# ---- What a model is made of.


def sync_variables(model: keras.Model) -> None:
    """Give the variables of `model` their values after the last batch.

    Within an epoch Keras keeps the values elsewhere on JAX. It goes on with those of the variables.
    """
    if sync := getattr(model, "jax_state_sync", None):
        sync()


def network_of(model: keras.Model) -> keras.Model:
    """Return the network of a task, and any other model itself."""
    return getattr(model, "backbone", model)


def lora_rank_of(network: keras.Model) -> int | None:
    """Return the rank of the LoRA that layers of a network learn, None without."""
    layers = network._flatten_layers()
    adapted = (each for each in layers if getattr(each, "lora_enabled", False))
    return next((each.lora_rank for each in adapted), None)


def _with_lora(rank: int | None) -> str:
    return "without LoRA" if rank is None else f"with LoRA, `backbone.enable_lora({shown(rank)})`"


def training_variables(model: keras.Model) -> list:
    """Return all that training changes: weights, seed generators' states, the optimizer's own.

    `model.save_weights` leaves the states of seed generators (dropout) out; `variables` has them.
    Of a task they are those of its network: what else it has is for searching.
    """
    network = network_of(model).variables
    known = {id(variable) for variable in network}
    more = [each for each in model.trainable_variables if id(each) not in known]
    return [*network, *more, *model.optimizer.variables]


def updates_made(model: keras.Model) -> int:
    return int(ops.convert_to_numpy(model.optimizer.iterations))


def learning_rate_of(model: keras.Model) -> float:
    """Return the learning rate of the next update."""
    return float(ops.convert_to_numpy(model.optimizer.learning_rate))
