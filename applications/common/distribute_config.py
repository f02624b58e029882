"""The section on devices that every task shares."""

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from keras_attention.applications.common.checks import check_range
from keras_attention.applications.common.errors import UserError
from keras_attention.distribute import Workers, find_cluster, make_strategy, multi_worker_strategy

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True)
class DistributeConfig:
    """What a model is trained on. A batch is cut among the replicas of the model.

    Args:
        strategy: none, one device; mirrored, a replica of the model on every visible GPU, or on
            each of `devices`; auto, mirrored where there are several GPUs; multi-worker, a replica
            on every GPU of several machines, whose processes TF_CONFIG or Slurm describes.
        devices: names with commas between them, such as GPU:0,GPU:1; null for all visible GPUs.
        timeout: seconds that the other workers of multi-worker may take to come.
        batch: what training.batch_size is of: global, the whole batch, so that the training section
            means the same on any number of replicas; or replica, each one's part, so that the batch
            grows with their number.
        learning_rate_scaling: with batch replica, by what training.learning_rate is multiplied:
            none, 1; linear, the number of replicas; sqrt, its square root.
    """

    strategy: Literal["none", "auto", "mirrored", "multi-worker"] = "none"
    devices: str | None = None
    timeout: float = 600.0
    batch: Literal["global", "replica"] = "global"
    learning_rate_scaling: Literal["none", "linear", "sqrt"] = "none"

    def __post_init__(self):
        if self.devices is not None and self.strategy not in ("mirrored", "auto"):
            raise UserError(
                "distribute.devices goes with distribute.strategy mirrored or auto. "
                f"Received: {self.devices} with {self.strategy}."
            )
        check_range("distribute.timeout", self.timeout, above=0)
        if self.learning_rate_scaling != "none" and self.batch != "replica":
            raise UserError(
                "distribute.learning_rate_scaling goes with distribute.batch replica, with which "
                f"the batch grows. Received: {self.learning_rate_scaling} with {self.batch}."
            )


RESUMABLE = ("strategy", "devices", "timeout")
"""What may differ when a run is continued: a batch is the same on other devices."""


def strategy_of(config: DistributeConfig) -> "tf.distribute.Strategy":
    """Return the strategy that `config` describes, the same one every time.

    With multi-worker the first call waits for the other workers, and has to come before TensorFlow
    runs an operation.

    Raises:
        UserError: where a device is not there, or nothing says which workers there are.
        TimeoutError: naming the workers that did not come.
    """
    return _connect(config.strategy, config.devices, config.timeout)[0]


def workers_of(config: DistributeConfig) -> Workers:
    """Return the processes that train together, the same object every time."""
    return _connect(config.strategy, config.devices, config.timeout)[1]


@functools.cache
def _connect(name, devices, timeout):
    try:
        if name == "multi-worker":
            cluster = _find_workers()
            strategy = multi_worker_strategy(cluster, timeout)
            return strategy, Workers(strategy, cluster)
        names = [device.strip() for device in (devices or "").split(",")]
        strategy = make_strategy(name, [device for device in names if device])
    except ValueError as error:
        raise UserError(f"distribute: {str(error).rstrip('.')}.") from None
    return strategy, Workers(strategy)


def _find_workers():
    cluster = find_cluster()
    if cluster is None:
        raise ValueError(
            "strategy multi-worker needs TF_CONFIG in the environment of every worker, or Slurm's "
            "srun with several tasks. Received: neither"
        )
    return cluster


def on_all_replicas(config: Any) -> Any:
    """Return a task's configuration as it is for all replicas together.

    With `distribute.batch` replica the whole batch and the learning rate depend on their number.
    """
    section = config.distribute
    if section.batch == "global":
        return config
    replicas = strategy_of(section).num_replicas_in_sync
    factors = {"none": 1.0, "linear": replicas, "sqrt": math.sqrt(replicas)}
    training = config.training
    changes = {
        "batch_size": training.batch_size * replicas,
        "learning_rate": training.learning_rate * factors[section.learning_rate_scaling],
    }
    if getattr(training, "batch_tokens", None):
        changes["batch_tokens"] = training.batch_tokens * replicas
    return dataclasses.replace(config, training=dataclasses.replace(training, **changes))


def check_distribution(config: Any) -> None:
    """Refuse devices that are not there, and what does not go with several replicas.

    Args:
        config: a task's configuration.

    Raises:
        UserError: naming the key.
    """
    strategy = strategy_of(config.distribute)
    if strategy.num_replicas_in_sync == 1:
        return
    by_tokens = getattr(config.training, "batch_tokens", None)
    if config.distribute.batch == "global" and not by_tokens:
        _check_batches(strategy, config.training.batch_size)
    if config.training.jit_compile:
        raise UserError(
            "training.jit_compile true goes with one device only: XLA does not compile a step "
            f"over several. Received: distribute.strategy {config.distribute.strategy}."
        )


def _check_batches(strategy: "tf.distribute.Strategy", batch_size: int) -> None:
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
