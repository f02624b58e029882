"""One training run: Keras' `fit`, called once, from the start or from a checkpoint."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keras

from keras_attention.applications.common.callbacks import (
    AverageWeights,
    Evaluation,
    HalveOnPlateau,
    KeepBest,
    SaveCheckpoint,
    StopWhenNotFinite,
    TimeLimit,
    diverged,
)
from keras_attention.applications.common.checkpoints import Checkpoints
from keras_attention.applications.common.distribute_config import check_batches, strategy_of
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
from keras_attention.applications.common.schedules import make_optimizer
from keras_attention.applications.common.training_config import TrainingConfig
from keras_attention.distribute import (
    GlobalMean,
    make_replica_safe,
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
    if not getattr(config.training, "batch_tokens", None):
        check_batches(strategy, config.training.batch_size)
    if config.training.jit_compile:
        raise UserError(
            "training.jit_compile true goes with one device only: XLA does not compile a step "
            f"over several. Received: distribute.strategy {config.distribute.strategy}."
        )


@contextmanager
def model_scope(config: Any) -> Iterator[None]:
    """Build what trains - the model, its metrics - inside: on its devices, in its precision.

    Args:
        config: a task's configuration.
    """
    check_distribution(config)
    policy = keras.config.dtype_policy()
    with strategy_of(config.distribute).scope():
        keras.config.set_dtype_policy(config.training.precision)
        try:
            yield
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
            among them.
        metrics: Keras metrics of the training batches, made in `model_scope`.

    Raises:
        TrainingDiverged: when a loss is not finite.
        Preempted: after a SIGTERM, when a checkpoint is written.
        UserError: when no checkpoint can be read, or it does not fit the model.
    """
    steps = config.steps_per_epoch or steps_per_pass
    _check_executions(config, steps)
    _compile(model, config, loss, metrics, steps)

    monitor, mode = config.monitor
    patience = None if config.early_stopping == "none" else config.patience
    best = KeepBest(run.best_weights, monitor, mode, patience)
    limit = TimeLimit(config.max_minutes and 60 * config.max_minutes)
    figures = Figures()
    stateful = {"best": best, "time": limit, "figures": figures}
    if config.schedule == "halve":
        stateful["halve"] = HalveOnPlateau(monitor, mode, config.halve_after)
    average = AverageWeights(config.average_checkpoints) if config.average_checkpoints > 1 else None
    saver = SaveCheckpoint(Checkpoints(run.checkpoints), stateful, average)
    epoch, step = _resume(saver, model)

    if reason := _finished(config, epoch, best, limit):
        return Outcome(epoch, step, best.best_epoch, best.plateau.best, limit.before, reason)
    judges = [stateful[name] for name in ("best", "halve") if name in stateful]
    callbacks = [figures, *([average] if average else []), Evaluation(evaluate)]
    callbacks += [StopWhenNotFinite(saver.checkpoints), *judges, limit]
    callbacks += [average.back] if average else []
    progress = Progress(config.epochs, steps, first=saver.within)
    callbacks += [progress, WriteMetrics(MetricsLog(run.metrics, step))]
    if config.tensorboard:
        callbacks.append(WriteTensorBoard(run.tensorboard))
    ending = EndOnSignal(saver, steps)

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

    with _naming_bad_places(saver), ending.listening():
        if progress.first:  # the rest of an epoch that was left
            epoch, step = fit(epoch, epoch + 1, steps - progress.first)
        if not _finished(config, epoch, best, limit):
            epoch, step = fit(epoch, config.epochs, steps)
    reason = _finished(config, epoch, best, limit)
    return Outcome(epoch, step, best.best_epoch, best.plateau.best, limit.elapsed, reason)


def _check_executions(config: TrainingConfig, steps: int) -> None:
    """Refuse executions that would run over the end of an epoch."""
    if steps % config.steps_per_execution:
        near = max(1, steps // config.steps_per_execution) * config.steps_per_execution
        raise UserError(
            f"training.steps_per_execution must divide the {steps} batches of an epoch; set "
            f"training.steps_per_epoch to {near}, say. Received: {config.steps_per_execution}."
        )


def _compile(model, config, loss, metrics, steps) -> None:
    with model.distribute_strategy.scope():
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
    strategy = model.distribute_strategy
    if strategy.num_replicas_in_sync == 1:
        return batches(start)
    return replica_batches(strategy, lambda: batches(start))


@contextmanager
def _naming_bad_places(saver: SaveCheckpoint) -> Iterator[None]:
    """Turn TensorFlow's error of a value that is not finite into one that says where it began."""
    import tensorflow as tf

    try:
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
