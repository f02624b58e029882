"""The devices that a model is trained on, and the scope to build it in."""

import dataclasses
import functools
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import keras

from keras_attention import distribute
from keras_attention.distribute import Workers

from ..errors import UserError
from ..schema.distribute import DistributeConfig
from ..schema.training import TrainingConfig

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True)
class Devices:
    """The devices of a training: processes; on TensorFlow a strategy, on JAX a distribution."""

    workers: Workers
    strategy: "tf.distribute.Strategy | None" = None
    distribution: keras.distribution.DataParallel | None = None

    @property
    def replicas(self) -> int:
        """How many copies of the model share a batch."""
        if self.distribution is not None:
            return self.distribution.device_mesh.devices.size
        return self.strategy.num_replicas_in_sync if self.strategy else 1

    def scope(self) -> AbstractContextManager:
        """Build the model inside.

        Keras' distribution holds for the whole process from here on, as `fit` asks for it again.
        """
        if keras.backend.backend() == "jax":
            keras.distribution.set_distribution(self.distribution)
        return self.strategy.scope() if self.strategy else nullcontext()


@functools.cache
def devices_of(config: DistributeConfig) -> Devices:
    """Return the devices that `config` describes, the same object every time.

    With multi-worker the first call waits for the other workers, and has to come before TensorFlow
    runs an operation; a TimeoutError names those that did not come.
    """
    name = config.strategy
    names = [each.strip() for each in (config.devices or "").split(",") if each.strip()]
    try:
        if keras.backend.backend() == "jax":
            return Devices(Workers(), distribution=_distribution(name, names))
        if name == "data-parallel":
            distribute.make_data_parallel()  # which says that it is JAX's
        if name != "multi-worker":
            strategy = distribute.make_strategy(name, names)
            return Devices(Workers(strategy), strategy)
        cluster = distribute.find_cluster()
        if cluster is None:
            raise ValueError(
                "strategy multi-worker needs TF_CONFIG in the environment of every worker, or "
                "Slurm's srun with several tasks. Received: neither"
            )
        strategy = distribute.multi_worker_strategy(cluster, config.timeout)
        return Devices(Workers(strategy, cluster), strategy)
    except ValueError as error:
        raise UserError(f"distribute: {str(error).rstrip('.')}.") from None


def _distribution(name, names):
    if name in ("mirrored", "multi-worker"):
        raise ValueError(
            f"strategy {name} is TensorFlow's: use data-parallel, or set KERAS_BACKEND=tensorflow. "
            "Received: the backend jax"
        )
    if name == "none":
        return None
    if name == "auto":
        present = keras.distribution.list_devices()
        names = names or [device for device in present if device.startswith("gpu")]
    several = name == "data-parallel" or len(names) > 1
    return distribute.make_data_parallel(names) if several else None


def on_all_replicas(config: Any) -> Any:
    """Return a task's configuration as it is for all replicas together.

    With `distribute.batch` replica the whole batch and the learning rate depend on their number.
    """
    section, training = config.distribute, config.training
    if section.batch == "global":
        return config
    replicas = devices_of(section).replicas
    factors = {"none": 1.0, "linear": replicas, "sqrt": math.sqrt(replicas)}
    changes = {"learning_rate": training.learning_rate * factors[section.learning_rate_scaling]}
    for name in ("batch_size", "batch_tokens"):
        if size := getattr(training, name, None):
            changes[name] = size * replicas
    return dataclasses.replace(config, training=dataclasses.replace(training, **changes))


def check_distribution(config: Any) -> None:
    """Refuse devices that are not there, and what does not go with several replicas."""
    devices, training = devices_of(config.distribute), config.training
    replicas = devices.replicas
    below = training.batch_size // replicas * replicas
    by_tokens = getattr(training, "batch_tokens", None)
    if config.distribute.batch == "global" and not by_tokens and training.batch_size != below:
        accepted = [str(size) for size in (below, below + replicas) if size]
        raise UserError(
            f"training.batch_size must be divisible by the {replicas} replicas of "
            f"distribute.strategy: {' or '.join(accepted)}, say. Received: {training.batch_size}."
        )
    if replicas > 1 and training.jit_compile and devices.strategy:
        raise UserError(
            "training.jit_compile true goes with one device only: XLA does not compile a step "
            f"over several. Received: distribute.strategy {config.distribute.strategy}."
        )


@contextmanager
def model_scope(config: Any) -> Iterator[Workers]:
    """Build what trains - the model, its metrics - inside: on its devices, in its precision.

    Gives the processes that train it, for `train`.
    """
    policy = keras.config.dtype_policy()
    devices = devices_of(config.distribute)
    with devices.scope():
        keras.config.set_dtype_policy(config.training.precision)
        try:
            yield devices.workers
        finally:
            keras.config.set_dtype_policy(policy)


def use_xla(config: TrainingConfig) -> bool | str:
    """Return what to give `compile` as `jit_compile`.

    On two CPU cores, a step of rnnsearch took 0.44 s without XLA and 0.62 s with it, and the first
    step 5.7 s and 11.6 s.
    """
    if config.jit_compile is not None:
        return config.jit_compile
    if config.check_numerics:  # which XLA leaves out
        return False
    if keras.backend.backend() != "tensorflow":
        return "auto"
    import tensorflow as tf

    return "auto" if tf.config.list_physical_devices("GPU") else False
