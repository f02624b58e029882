"""Learning rates over time, and the optimizer that a configuration describes."""

import math

import keras
from keras import ops

from keras_attention.applications.common.training_config import TrainingConfig


class LearningRate(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to a peak, then constant, inverse square root or cosine.

    With step counted from 1, warm-up W, peak p and N steps in all: p·step/W up to W, then p,
    p·√(W/step) or p·(1 + cos(π(step - W)/(N - W)))/2.

    Args:
        peak: the highest learning rate.
        decay: "constant", "inverse_sqrt" or "cosine".
        warmup_steps: steps of the linear rise.
        total_steps: where cosine reaches 0; the others do not use it.
    """

    def __init__(self, peak: float, decay: str, warmup_steps: int = 0, total_steps: int = 1):
        self.peak = peak
        self.decay = decay
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps

    def __call__(self, step):
        step = ops.cast(step, "float32") + 1.0
        after = self.peak * self._decayed(step)
        if not self.warmup_steps:
            return after
        return ops.where(
            step < self.warmup_steps, self.peak * step / float(self.warmup_steps), after
        )

    def _decayed(self, step):
        if self.decay == "inverse_sqrt":
            return ops.rsqrt(ops.maximum(step / float(max(1, self.warmup_steps)), 1.0))
        if self.decay == "cosine":
            length = max(1, self.total_steps - self.warmup_steps)
            passed = ops.clip((step - self.warmup_steps) / length, 0.0, 1.0)
            return 0.5 * (1.0 + ops.cos(math.pi * passed))
        return ops.ones_like(step)

    def get_config(self):
        return {
            "peak": self.peak,
            "decay": self.decay,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
        }


def make_optimizer(config: TrainingConfig, steps_per_epoch: int) -> keras.optimizers.Optimizer:
    """Return the optimizer that `config` describes.

    Args:
        config: the training section.
        steps_per_epoch: batches in an epoch; so many of them as are accumulated make an update.
    """
    rate = config.learning_rate
    # "halve" sets the optimizer's own variable, which a schedule object would not allow.
    if config.warmup_steps or config.schedule in ("inverse_sqrt", "cosine"):
        rate = LearningRate(
            rate,
            config.schedule,
            config.warmup_steps,
            max(1, config.epochs * steps_per_epoch // config.accumulate),
        )
    arguments = {"learning_rate": rate}
    if config.clip_norm is not None:
        arguments["global_clipnorm"] = config.clip_norm
    if config.beta_2 is not None:
        arguments["beta_2"] = config.beta_2
    if config.accumulate > 1:
        arguments["gradient_accumulation_steps"] = config.accumulate
    optimizer = keras.optimizers.get(config.optimizer)
    return type(optimizer)(**arguments)


def updates_made(model: keras.Model) -> int:
    """Return how many updates the optimizer of `model` has made."""
    return int(model.optimizer.iterations.numpy())


def learning_rate_of(model: keras.Model) -> float:
    """Return the learning rate of the next update."""
    return float(ops.convert_to_numpy(model.optimizer.learning_rate))
