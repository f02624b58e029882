"""The section on devices that every task shares."""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from keras_attention.applications.common.errors import UserError
from keras_attention.distribute import make_strategy

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True)
class DistributeConfig:
    """What a model is trained on. A batch is cut among the replicas: the training section means
    the same on any number of them.

    Args:
        strategy: none, one device; mirrored, a replica of the model on every visible GPU, or on
            each of `devices`; auto, mirrored where there are several GPUs.
        devices: names with commas between them, such as GPU:0,GPU:1; null for all visible GPUs.
    """

    strategy: Literal["none", "auto", "mirrored"] = "none"
    devices: str | None = None

    def __post_init__(self):
        if self.devices is not None and self.strategy == "none":
            raise UserError(
                "distribute.devices goes with distribute.strategy mirrored or auto. "
                f"Received: {self.devices} with none."
            )


@functools.cache
def strategy_of(config: DistributeConfig) -> "tf.distribute.Strategy":
    """Return the strategy that `config` describes, the same one every time.

    Raises:
        UserError: where a device is not there.
    """
    devices = (config.devices or "").split(",")
    try:
        return make_strategy(config.strategy, [name.strip() for name in devices if name.strip()])
    except ValueError as error:
        raise UserError(f"distribute: {error}.") from None


def check_batches(strategy: "tf.distribute.Strategy", batch_size: int) -> None:
    """Refuse a batch that cannot be cut into equal parts.

    Raises:
        UserError: naming the sizes beside it that can.
    """
    replicas = strategy.num_replicas_in_sync
    below = batch_size // replicas * replicas
    if batch_size != below:
        accepted = [str(size) for size in (below, below + replicas) if size]
        raise UserError(
            f"training.batch_size must be divisible by the {replicas} replicas of "
            f"distribute.strategy: {' or '.join(accepted)}, say. Received: {batch_size}."
        )
