"""One training run: Keras' `fit`, called once, from the start or from a checkpoint."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import keras

from keras_attention.applications.common.averaging import AverageWeights
from keras_attention.applications.common.callbacks import (
    Evaluation,
    HalveOnPlateau,
    KeepBest,
    StopWhenNotFinite,
    TimeLimit,
    diverged,
)
from keras_attention.applications.common.checkpoints import Checkpoints
from keras_attention.applications.common.distribute_config import devices_of
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.messages import say
from keras_attention.applications.common.metrics_log import MetricsLog
from keras_attention.applications.common.numerics import bad_place, check_layers
from keras_attention.applications.common.preemption import EndOnSignal
from keras_attention.applications.common.reporting import (
    Figures,
    Progress,
    WriteMetrics,
    WriteTensorBoard,
)
from keras_attention.applications.common.run_folder import RunFolder
from keras_attention.applications.common.saving import SaveCheckpoint
from keras_attention.applications.common.schedules import make_optimizer
from keras_attention.applications.common.training_config import TrainingConfig
from keras_attention.distribute import (
    GlobalMean,
    Workers,
    even_batches,
    make_replica_safe,
    naming_lost_workers,
    replica_batches,
    spread_seeds,
)


@dataclass(frozen=True)
class Outcome:
    """How a training ended.

    Args:
        epoch: epochs made.
        step: updates made.
        best_epoch: the epoch whose weights are in `best.weights.h5`.
        best: the monitored figure there.
        seconds: time taken, over all sittings.
        reason: why it ended, in words.
    """

    epoch: int
    step: int
    best_epoch: int
    best: float
    seconds: float
    reason: str


def start_from_seed(config: TrainingConfig) -> None:
    """Seed everything, and make operations deterministic where the configuration asks for it.

    Call it before the model is built: the initial weights come from the seed.
    """
    keras.utils.set_random_seed(config.seed)
    if config.deterministic and keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()


@contextmanager
def model_scope(config: Any) -> Iterator[Workers]:
    """Build what trains - the model, its metrics - inside: on its devices, in its precision.

    Args:
        config: a task's configuration.

    Yields:
        The processes that train it, for `train`.
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

    On two busy CPU cores, rnnsearch (256 units, batch 64, 17 by 17 tokens) took 0.44 s of processor
    time a step without XLA and 0.62 s with it, and its first step 5.7 s and 11.6 s. Deterministic
    operations cost nothing there (0.44 s both ways).
    """
    if config.jit_compile is not None:
        return config.jit_compile
    if config.check_numerics:  # which XLA leaves out
        return False
    if keras.backend.backend() != "tensorflow":
        return "auto"
    import tensorflow as tf

    return "auto" if tf.config.list_physical_devices("GPU") else False


def train(
    run: RunFolder,
    config: TrainingConfig,
    model: keras.Model,
    loss: keras.losses.Loss,
    batches: Callable[[int], object],
    steps_per_pass: int,
    evaluate: Callable[[], dict[str, float]],
    metrics: Sequence[keras.metrics.Metric] = (),
    workers: Workers | None = None,
) -> Outcome:
    """Train `model`, from the run folder's last good checkpoint if it has one.

    Args:
        run: where checkpoints, best weights and logs go.
        config: the training section.
        model: a built model, made in `model_scope`.
        loss: its loss.
        batches: given the number of batches already seen, returns the endless dataset of batches
            that come next; a pure function of that number, or a resumed run would differ.
        steps_per_pass: batches in one pass over the data.
        evaluate: returns figures on the development set, `val_loss` and the monitored one
            among them. Of several workers the chief evaluates, each example once.
        metrics: Keras metrics of the training batches, made in `model_scope`.
        workers: what `model_scope` gave; None for this process alone.

    Raises:
        TrainingDiverged: when a loss is not finite.
        Preempted: after a SIGTERM, when a checkpoint is written.
        UserError: when no checkpoint can be read, or it does not fit the model.
        WorkerLost: when another worker has ended.
    """
    workers = workers or Workers()
    steps = config.steps_per_epoch or steps_per_pass
    _check_executions(config, steps)
    _compile(model, config, loss, metrics, steps)

    monitor, mode = config.monitor
    patience = None if config.early_stopping == "none" else config.patience
    best = KeepBest(run.best_weights if workers.is_chief else None, monitor, mode, patience)
    limit = TimeLimit(config.max_minutes and 60 * config.max_minutes, workers)
    figures = Figures()
    stateful = {"best": best, "time": limit, "figures": figures}
    if config.schedule == "halve":
        stateful["halve"] = HalveOnPlateau(monitor, mode, config.halve_after)
    average = AverageWeights(config.average_checkpoints) if config.average_checkpoints > 1 else None
    checkpoints = Checkpoints(run.checkpoints, writes=workers.is_chief)
    saver = SaveCheckpoint(checkpoints, stateful, average, config.batch_size)
    epoch, step = _resume(saver, model)

    if reason := _finished(config, epoch, best, limit):
        return Outcome(epoch, step, best.best_epoch, best.plateau.best, limit.before, reason)
    judges = [stateful[name] for name in ("best", "halve") if name in stateful]
    evaluation = Evaluation(lambda: workers.from_chief(evaluate))
    callbacks = [figures, *([average] if average else []), evaluation]
    callbacks += [StopWhenNotFinite(saver.checkpoints), *judges, limit]
    callbacks += [average.back] if average else []
    if workers.is_chief:
        callbacks += _reports(run, config, Progress(config.epochs, steps, first=saver.within), step)
    ending = EndOnSignal(saver, steps, workers)

    def fit(first, last, number_of_steps):
        history = model.fit(
            _parts(model, batches, saver.batches),
            epochs=last,
            initial_epoch=first,
            steps_per_epoch=number_of_steps,
            callbacks=[*callbacks, saver, ending],
            shuffle=False,
            verbose=0,
        )
        return [history.history[name][-1] for name in ("epoch", "step")]

    with _naming_bad_places(saver, workers), ending.listening():
        if saver.within:  # the rest of an epoch that was left
            epoch, step = fit(epoch, epoch + 1, steps - saver.within)
        if not _finished(config, epoch, best, limit):
            epoch, step = fit(epoch, config.epochs, steps)
    reason = _finished(config, epoch, best, limit)
    return Outcome(epoch, step, best.best_epoch, best.plateau.best, limit.elapsed, reason)


def _reports(run, config, progress, step) -> list[keras.callbacks.Callback]:
    """Return what shows and writes the figures of an epoch."""
    reports = [progress, WriteMetrics(MetricsLog(run.metrics, step))]
    return [*reports, WriteTensorBoard(run.tensorboard)] if config.tensorboard else reports


def _check_executions(config: TrainingConfig, steps: int) -> None:
    """Refuse executions that would run over the end of an epoch."""
    if steps % config.steps_per_execution:
        near = max(1, steps // config.steps_per_execution) * config.steps_per_execution
        raise UserError(
            f"training.steps_per_execution must divide the {steps} batches of an epoch; set "
            f"training.steps_per_epoch to {near}, say. Received: {config.steps_per_execution}."
        )


def _compile(model, config, loss, metrics, steps) -> None:
    strategy = _strategy_of(model)
    with strategy.scope() if strategy else nullcontext():
        model.compile(
            make_optimizer(config, steps),
            loss=GlobalMean(loss),
            metrics=list(metrics),
            jit_compile=use_xla(config),
            steps_per_execution=config.steps_per_execution,
        )
        model.optimizer.build(model.trainable_variables)  # which scales the loss in mixed_float16
    if config.check_numerics:
        check_layers(model)
    make_replica_safe(model)


def _parts(model, batches, start):
    """Return the dataset of batches from `start` on, cut into parts where there are replicas."""
    strategy, distribution = _strategy_of(model), keras.distribution.distribution()
    if distribution is not None:
        return even_batches(batches(start), distribution.device_mesh.devices.size)
    if strategy is None or strategy.num_replicas_in_sync == 1:
        return batches(start)
    return replica_batches(strategy, lambda: batches(start))


def _strategy_of(model):
    """Return TensorFlow's strategy, under which `model` was made; None on other backends."""
    return getattr(model, "distribute_strategy", None)


@contextmanager
def _naming_bad_places(saver: SaveCheckpoint, workers: Workers) -> Iterator[None]:
    """Turn TensorFlow's errors of a value that is not finite, and of a worker that has ended, into
    ones that say what happened."""
    if keras.backend.backend() != "tensorflow":
        yield
        return
    import tensorflow as tf

    try:
        with naming_lost_workers() if workers.count > 1 else nullcontext():
            yield
    except tf.errors.InvalidArgumentError as error:
        place = bad_place(error)
        if place is None:
            raise
        what = f"{place} became NaN or infinite after {saver.batches} batches"
        raise diverged(what, saver.checkpoints) from None


def _resume(saver: SaveCheckpoint, model: keras.Model) -> tuple[int, int]:
    """Restore the newest good checkpoint; return the epochs and updates made so far."""
    checkpoint, problems = saver.checkpoints.latest()
    for problem in problems:
        say(f"{problem} Going back to the one before it.")
    if checkpoint is None:
        spread_seeds(model)
        return 0, 0
    epoch = saver.restore(model, checkpoint)
    spread_seeds(model)
    within = f" and {saver.within} batches" if saver.within else ""
    say(f"continuing after epoch {epoch}{within}, step {checkpoint.step}")
    return epoch, checkpoint.step


def _finished(config: TrainingConfig, epoch: int, best: KeepBest, limit: TimeLimit) -> str:
    """Return why training is over, or "" if it is not."""
    if epoch and best.exhausted:
        return f"no better {best.monitor} in {best.patience} epochs"
    if epoch and limit.exhausted:
        return f"{config.max_minutes:g} minutes are over"
    if epoch >= config.epochs:
        return f"all {config.epochs} epochs are done"
    return ""
