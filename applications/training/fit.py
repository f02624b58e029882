"""One training run: Keras' `fit`, from the start or from a checkpoint."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention import distribute
from keras_attention.distribute import GlobalMean, Workers

from ..errors import UserError, say, shown
from ..schema.training import TrainingConfig
from ..store.files import NotWritten, verify_checksum
from ..store.weights import load_weights
from .callbacks import (
    AverageWeights,
    HalveOnPlateau,
    KeepBest,
    SaveCheckpoint,
    StopWhenNotFinite,
    TimeLimit,
    at_epoch_end,
    diverged,
    network_of,
)
from .devices import use_xla
from .judgement import Judge, figures_of, short
from .reporting import Figures, Progress, TokenCount, WriteTensorBoard
from .run_folder import Checkpoints, MetricsLog, RunFolder


@dataclass(frozen=True)
class Outcome:
    """How a training ended.

    Args:
        epoch: epochs made.
        step: updates made.
        best_epoch: the epoch whose weights are the best.
        best: the figure that decided so; NaN where it is no number.
        seconds: over all sittings.
        reason: why it ended, in words.
        monitor: the name of the figure in `best`.
        updates: those made in this sitting; 0 where nothing was left to train.

    Example:

    ```python
    from pathlib import Path

    from keras_attention.applications.answer_selection import AnswerRanker, AnswerSelectionConfig
    from keras_attention.applications.schema.reading import load_config
    from keras_attention.applications.base.train import train_task

    Path("lines.tsv").write_text("who is it ?\\ta dog\\t1\\nwho is it ?\\tthe sky\\t0\\n")
    options = ["--data.train=lines.tsv", "--data.dev=lines.tsv", "--tokenizer.min_count=1"]
    config = load_config(AnswerSelectionConfig, [], [*options, "--training.epochs=1"])
    outcome = train_task(AnswerRanker, config, "runs/answers")
    print(outcome.best_epoch, outcome.best, outcome.reason)
    ```
    """

    epoch: int
    step: int
    best_epoch: int
    best: float
    seconds: float
    reason: str
    monitor: str
    updates: int


def train(
    run: RunFolder,
    config: TrainingConfig,
    model: keras.Model,
    loss: keras.losses.Loss | str,
    batches: Callable[[int], object],
    steps_per_pass: int,
    evaluate: Callable[[], dict[str, float]],
    workers: Workers | None = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    on_start: Callable[[], None] | None = None,
    judge: Judge | None = None,
    save_more: Callable[[], None] | None = None,
    on_judged: Callable[[KeepBest], None] | None = None,
) -> Outcome:
    """Train `model`, from the run folder's last good checkpoint if it has one.

    The model is made in `model_scope`, which gives `workers`. Of a task the weights of its network
    are kept; a model with `counts_tokens` reports tokens a second. `batches`, given the number of
    batches already seen, returns the endless dataset of those that come next; a pure function of
    that number, or a resumed run would differ. `evaluate` returns the figures on the development
    set, in the chief alone, with `val_loss` and the score of `judge`, which says what the best
    epoch is. Its weights are kept, and `save_more` writes what goes with them; `on_judged` is
    called with the best so far after each epoch. Where the best was measured on other data, its
    weights are measured again first. The user's `callbacks` come after them and before the
    checkpoint, which keeps the state of those that have `get_state` and `set_state`. `on_start` is
    called where nothing is left to refuse.
    """
    workers = workers or Workers()
    judge = judge or Judge(config.score)
    steps = config.steps_per_epoch or steps_per_pass
    check_executions(config.steps_per_execution, steps)
    _compile(model, config, loss, steps)
    best = KeepBest(
        run.best_weights if workers.is_chief else None,
        judge,
        None if config.early_stopping == "none" else config.patience,
        save_more,
    )
    stateful = _with_state(best, config, workers, callbacks)
    limit = stateful["time"]
    count = config.average_checkpoints
    average = AverageWeights(count) if count > 1 else None
    checkpoints = Checkpoints(run.checkpoints, writes=workers.is_chief)
    saver = SaveCheckpoint(checkpoints, stateful, average, config.batch_size, steps, workers)
    (epoch, step), stopped = _resume(saver, model), False
    first_step = step
    if on_start:
        on_start()
    if judge.blind:
        say(
            f"note: {judge.score} cannot tell models apart on this development set: "
            f"{judge.blind}. The lower {judge.monitor} decides."
        )
    reports = on_judged if on_judged is not None and workers.is_chief else (lambda best: None)
    if best.is_of_other_data:
        _measure_again(run, model, evaluate, saver, stateful)
        reports(best)

    def outcome():
        reason = _finished(config, epoch, best, limit) or ("a callback ended it" * stopped)
        value = math.nan if best.value is None else best.value
        of_best = best.epoch, value, limit.elapsed, reason, judge.monitor
        return Outcome(epoch, step, *of_best, step - first_step)

    if outcome().reason:
        say(f"Nothing was trained: {outcome().reason}.")
        if epoch and run.best_weights.exists():  # the file will not be written again
            verify_checksum(run.best_weights)
        return outcome()
    judged = [at_epoch_end(lambda epoch, logs: logs.update(workers.from_chief(evaluate)))]
    judged += [StopWhenNotFinite(checkpoints)]
    judged += [stateful[name] for name in ("best", "halve", "time") if name in stateful]
    if average:
        judged = [average, *judged, average.back]
    if workers.is_chief:
        before = stateful["figures"].before
        judged += [Progress(config.epochs, steps, saver.within, before)]
        log = MetricsLog(run.metrics, step, epoch)
        of_data = {"measured_on": judge.measured_on} if judge.measured_on else {}
        judged += [
            at_epoch_end(lambda epoch, logs: log.append({"epoch": epoch + 1, **logs, **of_data}))
        ]
        judged += [WriteTensorBoard(run.tensorboard)] if config.tensorboard else []

    def fit(first, last, number_of_steps):
        # Not `model.fit`: a task's own would make ids of texts first.
        history = keras.Model.fit(
            model,
            _parts(model, batches, saver.batches),
            epochs=last,
            initial_epoch=first,
            steps_per_epoch=number_of_steps,
            callbacks=[
                *(stateful["figures"], *judged, *callbacks),
                *(at_epoch_end(lambda *_: reports(best)), saver),
            ],
            shuffle=False,
            verbose=0,
        )
        return history.epoch[-1] + 1, history.history["step"][-1], model.stop_training

    with _saying_how_to_continue(), _naming_bad_places(saver, workers), saver.listening():
        if saver.within:  # the rest of an epoch that was left
            epoch, step, stopped = fit(epoch, epoch + 1, steps - saver.within)
        if not outcome().reason:
            epoch, step, stopped = fit(epoch, config.epochs, steps)
    return outcome()


def _measure_again(run, model, evaluate, saver, stateful) -> None:
    """Measure the best weights so far on the development set of today, and keep their figures."""
    best, network, workers = stateful["best"], network_of(model), saver.workers
    own = [np.array(ops.convert_to_numpy(variable)) for variable in network.weights]
    load_weights(network, run.best_weights)
    try:
        figures = figures_of(workers.from_chief(evaluate))
        if figures["val_loss"] is None:
            raise UserError(
                f"the best weights so far, of epoch {best.epoch}, have a loss that is NaN or "
                "infinite on the development set of today: correct that set."
            )
        best.take(figures)
        if workers.is_chief and best.save_more is not None:
            best.save_more()
    finally:
        for variable, array in zip(network.weights, own, strict=True):
            variable.assign(array)
    if "halve" in stateful:
        stateful["halve"].wait = 0
    saver.save_states()
    found = ", ".join(f"{name} {short(value)}" for name, value in figures.items())
    say(
        "The development set, or how it is measured, has changed: the best weights so far, of "
        f"epoch {best.epoch}, have {found} there. Earlier figures are not compared with new ones."
    )


def _with_state(best, config, workers, callbacks) -> dict[str, keras.callbacks.Callback]:
    """Return the callbacks whose state a checkpoint keeps: ours, and those of the user's."""
    found = {
        "best": best,
        "time": TimeLimit(config.max_minutes and 60 * config.max_minutes, workers),
        "figures": Figures(),
    }
    if config.schedule == "halve":
        found["halve"] = HalveOnPlateau(best, config.halve_after)
    return found | {
        f"callback {place}": each
        for place, each in enumerate(callbacks)
        if hasattr(each, "get_state") and hasattr(each, "set_state")
    }


def _finished(config, epoch, best, limit) -> str:
    """Return why training is over, or "" if it is not."""
    if epoch and best.exhausted:
        return f"no better {best.judge.monitor} in {best.patience} epochs"
    if epoch and limit.exhausted:
        return f"{config.max_minutes:g} minutes are over"
    return f"all {config.epochs} epochs are done" if epoch >= config.epochs else ""


def check_executions(executions: int, steps: int, section: str = "training.") -> None:
    """Refuse executions of several batches that would run over the end of an epoch of `steps`.

    `section` is the place of the two keys in messages.
    """
    if steps % executions:
        near = max(1, steps // executions) * executions
        raise UserError(
            f"{section}steps_per_execution must divide the {steps} batches of an epoch; set "
            f"{section}steps_per_epoch to {near}, say. Received: {executions}."
        )


def _compile(model, config, loss, steps) -> None:
    with scope_of(model):
        model.compile(
            make_optimizer(config, steps),
            loss=loss if isinstance(loss, str) else GlobalMean(loss),
            metrics=[TokenCount()] if getattr(model, "counts_tokens", False) else [],
            jit_compile=use_xla(config),
            steps_per_execution=config.steps_per_execution,
        )
    build_optimizer(model)  # which scales the loss in mixed_float16
    if config.check_numerics:
        check_layers(model)
    distribute.make_replica_safe(model)


def build_optimizer(model: keras.Model) -> None:
    """Make the variables of a model's optimizer, where it has one.

    `fit` would make them while it traces the first step, and TensorFlow traces a function that has
    made variables twice.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        with scope_of(model):
            optimizer.build(model.trainable_variables)
        model._optimized = tuple(map(id, model.trainable_variables))


def optimizes_what_is_trained(model: keras.Model) -> bool:
    """Whether the optimizer of a model has the variables of all that is trained, and no others."""
    known = getattr(model, "_optimized", None)  # of an optimizer that the user built there is none
    return known in (None, tuple(map(id, model.trainable_variables)))


def with_scaled_loss(optimizer: Any, network: keras.Model) -> Any:
    """Return an optimizer that scales the loss where a network is in mixed_float16.

    Keras looks at the policy of the model that is compiled: a task's is the global one.
    """
    optimizer = keras.optimizers.get(optimizer)
    scaling, policy = keras.optimizers.LossScaleOptimizer, network.dtype_policy
    is_mixed = (policy.compute_dtype, policy.variable_dtype) == ("float16", "float32")
    if optimizer is None or isinstance(optimizer, scaling) or not is_mixed:
        return optimizer
    return scaling(optimizer, name="loss_scale_optimizer")


def check_run(
    run: Any, x: Any, validation_data: Any, is_batched: bool, shuffle: bool, others: Mapping
) -> None:
    """Refuse arguments of a task's `fit` that do not go with a run folder, or with none."""
    if run is None:
        for name in ("training", "accept_changes"):
            if name in others:
                raise ValueError(
                    f"`{name}` goes with `run`: name a folder, or `compile` the task. "
                    f"Received: {name}={type(others[name]).__name__}"
                )
        return
    if is_batched:
        raise ValueError(
            "`run` needs texts, which can be gone through again from any step: give lists. "
            f"Received: x={type(x).__name__}, validation_data={type(validation_data).__name__}"
        )
    more = validation_data[2:] if isinstance(validation_data, tuple) else ()
    if any(each is not None for each in more):
        raise ValueError(
            "A training with `run` is judged by figures without weights: leave them out of "
            f"`validation_data`. Received: sample_weight={shown(more[0])}"
        )
    if not shuffle:
        raise ValueError("A training with `run` shuffles its data. Received: shuffle=False")


def _parts(model, batches, start):
    """Return the dataset of batches from `start` on, cut into parts where there are replicas."""
    strategy = getattr(model, "distribute_strategy", None)  # TensorFlow's
    distribution = keras.distribution.distribution()
    if distribution is not None:
        return distribute.even_batches(batches(start), distribution.device_mesh.devices.size)
    if strategy is None or strategy.num_replicas_in_sync == 1:
        return batches(start)
    return distribute.replica_batches(strategy, lambda: batches(start))


def scope_of(model: keras.Model) -> AbstractContextManager:
    """Return the scope in which to make what trains with a model, such as metrics."""
    strategy = getattr(model, "distribute_strategy", None)
    return strategy.scope() if strategy else nullcontext()


@contextmanager
def _naming_bad_places(saver: SaveCheckpoint, workers: Workers) -> Iterator[None]:
    """Turn TensorFlow's errors of a value that is not finite, and of a worker that has ended, into
    ones that say what happened."""
    if keras.backend.backend() != "tensorflow":
        yield
        return
    import tensorflow as tf

    try:
        with distribute.naming_lost_workers() if workers.count > 1 else nullcontext():
            yield
    except tf.errors.InvalidArgumentError as error:
        _, found, rest = str(error).partition(MARK)
        if not found:
            raise
        gradient = "the gradient at " if "detected in gradient" in str(error) else ""
        what = f"{gradient}{rest.split(';')[0].strip()} became NaN or infinite"
        what += f" after {saver.batches} batches"
        raise diverged(what, saver.checkpoints) from None


@contextmanager
def _saying_how_to_continue() -> Iterator[None]:
    """Add the way on to the error of a file that could not be written."""
    try:
        yield
    except NotWritten as error:
        raise UserError(f"{error} Once that is mended, continue with --resume.") from None


def _resume(saver: SaveCheckpoint, model: keras.Model) -> tuple[int, int]:
    """Restore the newest good checkpoint; return the epochs and updates made so far."""
    checkpoint, problems = saver.checkpoints.latest()
    for problem in problems:
        say(f"{problem} Going back to the one before it.")
    epoch = saver.restore(model, checkpoint) if checkpoint else 0
    distribute.spread_seeds(model)
    if checkpoint is None:
        return 0, 0
    if problems:
        saver.checkpoints.list_newest()  # so that the next start does not tell it again
    within = f" and {saver.within} batches" if saver.within else ""
    say(f"continuing after epoch {epoch}{within}, step {checkpoint.step}")
    return epoch, checkpoint.step


@keras.saving.register_keras_serializable("keras_attention")
class LearningRate(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to a peak, then constant, inverse square root or cosine.

    With step counted from 1, warm-up W, peak p and N steps in all: p·step/W up to W, then p,
    p·√(W/step) or p·(1 + cos(π(step - W)/(N - W)))/2. A step is an update, of `accumulate` batches.
    """

    def __init__(
        self,
        peak: float,
        decay: str,
        warmup_steps: int = 0,
        total_steps: int = 1,
        accumulate: int = 1,
    ):
        self.peak, self.decay, self.accumulate = peak, decay, accumulate
        self.warmup_steps, self.total_steps = warmup_steps, total_steps

    def __call__(self, step):
        # Keras counts batches, of which the last one of an update asks for its rate.
        step = ops.cast(step // self.accumulate, "float32") + 1.0
        factor = ops.ones_like(step)
        if self.decay == "inverse_sqrt":
            factor = ops.rsqrt(ops.maximum(step / float(max(1, self.warmup_steps)), 1.0))
        elif self.decay == "cosine":
            length = max(1, self.total_steps - self.warmup_steps)
            passed = ops.clip((step - self.warmup_steps) / length, 0.0, 1.0)
            factor = 0.5 * (1.0 + ops.cos(math.pi * passed))
        if not self.warmup_steps:
            return self.peak * factor
        rising = self.peak * step / float(self.warmup_steps)
        return ops.where(step < self.warmup_steps, rising, self.peak * factor)

    def get_config(self):
        names = ("peak", "decay", "warmup_steps", "total_steps", "accumulate")
        return {name: getattr(self, name) for name in names}


def make_optimizer(config: TrainingConfig, steps_per_epoch: int) -> keras.optimizers.Optimizer:
    """Return the optimizer that `config` describes, for epochs of so many batches."""
    rate = config.learning_rate
    # "halve" sets the optimizer's own variable, which a schedule object would not allow.
    if config.warmup_steps or config.schedule in ("inverse_sqrt", "cosine"):
        updates = max(1, config.epochs * steps_per_epoch // config.accumulate)
        of_updates = config.warmup_steps, updates, config.accumulate
        rate = LearningRate(rate, config.schedule, *of_updates)
    arguments = {
        "learning_rate": rate,
        "global_clipnorm": config.clip_norm,
        "gradient_accumulation_steps": config.accumulate if config.accumulate > 1 else None,
    }
    if config.beta_2 is not None:
        arguments["beta_2"] = config.beta_2
    return type(keras.optimizers.get(config.optimizer))(**arguments)


MARK = "KERAS_ATTENTION_BAD_VALUE:"


def check_layers(model: keras.Model) -> None:
    """Make training end where something is NaN or infinite that a layer is given or gives.

    What goes into and comes out of every layer inside `model` passes TensorFlow's
    `check_numerics`, forward and, as gradient, backward. Nothing sees the bad value of another
    place before that was checked, so the first error is where it began: it names the place, such
    as `the output of layer encoder/gru`, between `MARK` and a semicolon.
    """
    for layer in model._flatten_layers(include_self=False):
        layer.call = _checked(layer)


def _checked(layer):
    import tensorflow as tf

    call = layer.call

    def check(side, value):
        if not (tf.is_tensor(value) and value.dtype.is_floating):
            return value
        # A layer without variables has no path.
        message = f"{MARK} the {side} of layer {layer.path or layer.name};"
        checked = tf.debugging.check_numerics(value, message)
        if getattr(value, "_keras_mask", None) is not None:
            checked._keras_mask = value._keras_mask
        return checked

    @functools.wraps(call)
    def checked_call(*arguments, **settings):
        arguments = tf.nest.map_structure(functools.partial(check, "input"), arguments)
        results = call(*arguments, **settings)
        return tf.nest.map_structure(functools.partial(check, "output"), results)

    return checked_call
