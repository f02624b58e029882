"""Writing what a training needs to go on, and the weights that are its result."""

from pathlib import Path

import keras
import numpy as np

from keras_attention.applications.common.averaging import AverageWeights
from keras_attention.applications.common.checkpoints import Checkpoint, Checkpoints
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import replacing
from keras_attention.applications.common.schedules import updates_made


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
    ):
        super().__init__()
        self.checkpoints = checkpoints
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
        state = checkpoint.state
        if state.get("batch_size", self.batch_size) != self.batch_size:
            raise UserError(
                f"the run was trained with batches of {state['batch_size']} on all replicas "
                "together, which distribute.batch replica makes of their number: continue it with "
                f"as many. Received: batches of {self.batch_size}."
            )
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)
        kept = len(more) - state.get("metrics", 0)
        self._metrics = more[kept:]
        if self.average:
            self.average.restore(more[:kept], model)
        # Checkpoints of before batches were accumulated know one batch an update.
        self.batches = state.get("batches", checkpoint.step)
        self.within = state.get("within", 0)
        for name, callback in self.stateful.items():
            if name in state["callbacks"]:  # a run of an earlier version may lack the newest
                callback.set_state(state["callbacks"][name])
        return checkpoint.state["epoch"]


def sync_variables(model: keras.Model) -> None:
    """Make the variables of `model` what they are after the last batch.

    Within an epoch Keras keeps them elsewhere on JAX. It takes up again what they are then.
    """
    if sync := getattr(model, "jax_state_sync", None):
        sync()


def training_variables(model: keras.Model) -> list:
    """Return all that training changes: weights, seed generators' states, the optimizer's own.

    `model.save_weights` leaves the states of seed generators (dropout) out; `model.variables`
    has them.
    """
    return [*model.variables, *model.optimizer.variables]


def save_weights(model: keras.Model, path: Path) -> None:
    """Write the weights of `model` alone, without its optimizer's, whole or not at all."""
    optimizer, model.optimizer = model.optimizer, None
    try:
        with replacing(path) as temporary:
            model.save_weights(temporary)
    finally:
        model.optimizer = optimizer
