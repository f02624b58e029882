"""The settings of a training, which all tasks share."""

from dataclasses import dataclass
from typing import Literal

from ..errors import UserError
from .keys import Section, key

Precision = Literal["float32", "mixed_bfloat16", "mixed_float16"]


@dataclass(frozen=True)
class TrainingConfig(Section):
    """How a model is trained."""

    section = "training"

    epochs: int = key(30, "how many epochs at most", common=True, at_least=1)
    batch_size: int = key(64, "examples in a batch", common=True, at_least=1)
    accumulate: int = key(
        1,
        "batches of whose gradients an update takes the mean; each batch counts alike, however "
        "many tokens it has",
        at_least=1,
    )
    steps_per_epoch: int | None = key(
        None,
        "batches in an epoch; null for one pass over the training data. Evaluation on the "
        "development set and a checkpoint come at the end of each epoch",
        at_least=1,
    )
    optimizer: Literal["adam", "adamw", "nadam", "rmsprop", "adagrad", "adadelta", "sgd"] = key(
        "adam", "the Keras optimizer"
    )
    beta_2: float | None = key(
        None,
        "how slowly the mean square of the gradients changes; null for 0.999 (the Transformer's "
        "authors take 0.98)",
        applies_to={"optimizer": ("adam", "adamw", "nadam")},
        above=0,
        below=1,
    )
    learning_rate: float = key(1e-3, "its (highest) learning rate", common=True, above=0)
    schedule: Literal["constant", "inverse_sqrt", "cosine", "halve"] = key(
        "constant",
        "how the learning rate goes on: constant; inverse_sqrt, falling with the square root of "
        "the step; cosine, falling to 0 over all epochs (a training that max_minutes or patience "
        "ends earlier does not reach 0; --resume cannot change the epochs); halve, halved whenever "
        "`halve_after` epochs are no better, as early_stopping says",
    )
    warmup_steps: int = key(
        0, "updates over which the learning rate rises from 0 (not with halve)", at_least=0
    )
    halve_after: int = key(
        1,
        "with schedule halve alone, epochs without improvement after which it halves",
        at_least=1,
    )
    clip_norm: float | None = key(
        1.0, "the largest norm of all gradients together; null for no clipping", above=0
    )
    label_smoothing: float = key(
        0.0, "probability taken from the right answer and spread over all", at_least=0, below=1
    )
    early_stopping: Literal["loss", "none"] = key(
        "loss",
        "what the best weights are chosen by and training is stopped by; of equal scores the lower "
        "development loss is better. With none, training runs all epochs and the best weights are "
        "chosen by loss",
        common=True,
    )
    patience: int = key(
        5,
        "epochs without improvement after which training stops early; without effect where "
        "early_stopping is none",
        at_least=1,
    )
    seed: int = key(
        1, "of initial weights, dropout and the order of the data", at_least=0, below=2**32
    )
    max_minutes: float | None = key(
        None,
        "stop after this many minutes, wherever the schedule is; null for no limit",
        common=True,
        above=0,
    )
    average_checkpoints: int = key(
        1,
        "judge and keep the mean of the weights at the end of so many epochs, the newest ones; "
        "training itself goes on from its own. 1 for no averaging",
        at_least=1,
    )
    jit_compile: bool | None = key(
        None,
        "compile the training step with XLA; null for no on a CPU, where it measured slower, and "
        "for Keras' own choice elsewhere",
    )
    precision: Precision = key(
        "float32",
        "float32, or mixed: 16 bits in the layers, float32 in the weights, the loss and the "
        "optimizer; with mixed_float16 the loss is scaled, so that small gradients do not vanish. "
        "The other verbs compute in float32, or in decoding.precision where there is one",
    )
    steps_per_execution: int = key(
        1,
        "batches trained on in one call, which saves time where batches are small; progress, "
        "max_minutes and the check of the loss come after so many",
        at_least=1,
    )
    check_numerics: bool = key(
        False,
        "look at what each layer is given and gives, and at its gradients; where one is NaN or "
        "infinite, end with the layer's name. Slower. Not with mixed_float16, whose gradients may "
        "be infinite now and then, nor with jit_compile true",
    )
    deterministic: bool = key(
        True, "make the same seed give the same weights, bit for bit, on one machine"
    )
    tensorboard: bool = key(True, "write logs for TensorBoard")

    def check(self) -> None:
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
                "with training.jit_compile true. "
                f"Received: {self.precision} and jit_compile={self.jit_compile}."
            )

    @property
    def resumable(self) -> tuple[str, ...]:
        """Keys that may differ when a run is continued: its length, and what watches it.

        Schedule cosine is spread over all epochs: with more of them it would be another.
        """
        names = ("epochs", "max_minutes", "patience", "check_numerics", "tensorboard")
        return names[1:] if self.schedule == "cosine" else names

    @property
    def score(self) -> str | None:
        """The logged figure that chooses the best weights; None where the loss alone does."""
        is_loss = self.early_stopping in ("loss", "none")
        return None if is_loss else f"val_{self.early_stopping}"
