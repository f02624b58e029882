"""The training section that every task shares."""

from dataclasses import dataclass
from typing import Literal

from keras_attention.applications.common.checks import check_range
from keras_attention.applications.common.errors import UserError

OPTIMIZERS = Literal["adam", "adamw", "nadam", "rmsprop", "adagrad", "adadelta", "sgd"]
SCHEDULES = Literal["constant", "inverse_sqrt", "cosine", "halve"]


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained.

    Args:
        epochs: how many epochs at most.
        batch_size: examples in a batch.
        accumulate: batches whose gradients make one update, as if they were one batch.
        steps_per_epoch: batches in an epoch; null for one pass over the training data. Evaluation
            on the development set and a checkpoint come at the end of each epoch.
        optimizer: the Keras optimizer.
        beta_2: of adam, adamw and nadam, how slowly the mean square of the gradients changes; null
            for 0.999 (the Transformer's authors take 0.98).
        learning_rate: its (highest) learning rate.
        schedule: how the learning rate goes on: constant; inverse_sqrt, falling with the square
            root of the step; cosine, falling to 0 over all epochs (a training that max_minutes
            or patience ends earlier does not reach 0; --resume cannot change the epochs); halve,
            halved whenever `halve_after` epochs bring no better development score.
        warmup_steps: updates over which the learning rate rises from 0 (not with halve).
        halve_after: epochs without improvement after which schedule halve halves.
        clip_norm: the largest norm of all gradients together; null for no clipping.
        label_smoothing: probability taken from the right answer and spread over all.
        early_stopping: what the best weights are chosen by and training is stopped by; with none,
            training runs all epochs and the best weights are chosen by loss.
        patience: epochs without improvement after which training stops early.
        seed: of initial weights, dropout and the order of the data.
        max_minutes: stop after this many minutes, wherever the schedule is; null for no limit.
        average_checkpoints: judge and keep the mean of the weights at the end of so many epochs,
            the newest ones; training itself goes on from its own. 1 for no averaging.
        jit_compile: compile the training step with XLA; null for no on a CPU, where it measured
            slower, and for Keras' own choice elsewhere.
        precision: float32, or mixed: 16 bits in the layers, float32 in the weights, the loss and
            the optimizer; with mixed_float16 the loss is scaled, so that small gradients do not
            vanish. The other verbs compute in float32, or in decoding.precision where there is one.
        steps_per_execution: batches trained on in one call, which saves time where batches are
            small; progress, max_minutes and the check of the loss come after so many.
        check_numerics: look at what each layer is given and gives, and at its gradients; where one
            is NaN or infinite, end with the layer's name. Slower. Not with mixed_float16, whose
            gradients may be infinite now and then, nor with jit_compile true.
        deterministic: make the same seed give the same weights, bit for bit, on one machine.
        tensorboard: write logs for TensorBoard.
    """

    epochs: int = 30
    batch_size: int = 64
    accumulate: int = 1
    steps_per_epoch: int | None = None
    optimizer: OPTIMIZERS = "adam"
    beta_2: float | None = None
    learning_rate: float = 1e-3
    schedule: SCHEDULES = "constant"
    warmup_steps: int = 0
    halve_after: int = 1
    clip_norm: float | None = 1.0
    label_smoothing: float = 0.0
    early_stopping: Literal["loss", "none"] = "loss"
    patience: int = 5
    seed: int = 1
    max_minutes: float | None = None
    average_checkpoints: int = 1
    jit_compile: bool | None = None
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    steps_per_execution: int = 1
    check_numerics: bool = False
    deterministic: bool = True
    tensorboard: bool = True

    def __post_init__(self):
        counts = ("epochs", "batch_size", "steps_per_epoch", "halve_after", "patience")
        counts += ("accumulate", "average_checkpoints", "steps_per_execution")
        for name in counts:
            check_range(f"training.{name}", getattr(self, name), at_least=1)
        for name in ("learning_rate", "clip_norm", "max_minutes"):
            check_range(f"training.{name}", getattr(self, name), above=0)
        check_range("training.beta_2", self.beta_2, above=0, below=1)
        if self.beta_2 is not None and self.optimizer not in ("adam", "adamw", "nadam"):
            raise UserError(
                "training.beta_2 goes with training.optimizer adam, adamw or nadam only. "
                f"Received: {self.beta_2} with {self.optimizer}."
            )
        check_range("training.warmup_steps", self.warmup_steps, at_least=0)
        check_range("training.seed", self.seed, at_least=0, below=2**32)
        check_range("training.label_smoothing", self.label_smoothing, at_least=0, below=1)
        if self.schedule == "inverse_sqrt" and not self.warmup_steps:
            raise UserError(
                "training.schedule inverse_sqrt needs training.warmup_steps of at least 1. "
                "Received: 0."
            )
        if self.schedule == "halve" and self.warmup_steps:
            raise UserError(
                "training.warmup_steps does not go with training.schedule halve: use 0, or "
                f"schedule constant, inverse_sqrt or cosine. Received: {self.warmup_steps}."
            )

        if self.jit_compile and self.deterministic:
            raise UserError(
                "training.jit_compile true needs training.deterministic false: XLA has no "
                "deterministic form of every operation, and Keras leaves it out."
            )
        if self.check_numerics and (self.precision == "mixed_float16" or self.jit_compile):
            raise UserError(
                "training.check_numerics goes neither with training.precision mixed_float16 nor "
                "with training.jit_compile true."
            )

    @property
    def resumable(self) -> tuple[str, ...]:
        """Return what may differ when a run is continued: how long it goes on, not what shapes it.

        And whether it is watched.

        Schedule cosine is spread over all epochs: with more of them it would be another.
        """
        names = ("epochs", "max_minutes", "patience", "check_numerics")
        return names[1:] if self.schedule == "cosine" else names

    @property
    def monitor(self) -> tuple[str, str]:
        """Return the logged figure that chooses the best weights, and "min" or "max"."""
        return "val_loss", "min"
