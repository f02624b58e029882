"""What `fit`, `evaluate` and random numbers need under a strategy of several replicas."""

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras

from .one_replica import ReleasesGraphs

if TYPE_CHECKING:
    import tensorflow as tf

# A prime: seeds that a user may choose one after another (1, 2, 3) stay apart on all replicas.
STRIDE = 1_000_003


def make_replica_safe(model: keras.Model) -> keras.Model:
    """Make `fit` and `evaluate` of a compiled model agree with a single process.

    Keras 3's own step does not, under `tf.distribute`:

    - `MultiWorkerMirroredStrategy` fails in `fit`
      ([keras-team/keras#20585](https://github.com/keras-team/keras/issues/20585), open in Keras
      3.15): it reduces metrics, scalars of each replica, over an axis they do not have, and builds
      the model of a first batch that it averages over a worker's replicas.
    - It clips gradients, and tests that they are finite, on each replica before it adds them up:
      the update depends on the number of replicas.
    - Gradient accumulation and loss scaling inside a conditional fail under `MirroredStrategy`.
    - Losses that layers add, and the loss in the logs, are means of the replicas' means.

    Here each replica computes its share of loss and gradients; the model's optimizer makes one
    update of their sum, which every copy of the variables takes. Wrap losses in `GlobalMean`, and
    cut batches by `replica_batches`. A loss that a layer or a regularizer adds counts by the rows
    of its replica.

    This sets `train_function`, `test_function` and, in versions that have them, two private hooks.

    Args:
        model: A model made under the strategy's scope and compiled; `fit` is then called outside
            of the scope. Compiling it anew undoes what this function did.

    Returns:
        The same model; with one replica nothing is changed.

    Raises:
        ValueError: If the model is not compiled, has a `train_step` or `test_step` of its own, or
            was compiled for XLA.

    Example:

    ```python
    import keras
    from keras_attention import distribute

    strategy = distribute.make_strategy("auto")
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", distribute.GlobalMean(keras.losses.MeanSquaredError()))
    distribute.make_replica_safe(model)
    ```
    """
    strategy = _strategy_of_several(model)
    if strategy is None:
        return model
    _check(model)
    share = _share_of_loss(model)
    model.train_function = _function(model, strategy, _train_step(model, strategy, share))
    evaluate = functools.partial(share, training=False)
    model.test_function = _function(
        model, strategy, lambda data: strategy.run(evaluate, args=(data,))
    )
    _build_from_one_replica(model, strategy)
    return model


def spread_seeds(model: keras.Model) -> None:
    """Give the seed generators of `model` another seed on each replica.

    Equal seeds drop the same units in the first row of every replica's part. Replica `r` gets the
    seed plus `1000003 r`. Call it when the model is built, and again after restoring a checkpoint,
    which holds the seeds of replica 0.

    Args:
        model: A built model, made under a strategy's scope; with one replica nothing is changed.

    Example:

    >>> spread_seeds(keras.Sequential([keras.Input((3,)), keras.layers.Dropout(0.5)]))
    """
    strategy = _strategy_of_several(model)
    if strategy is None:
        return
    import tensorflow as tf

    states = [v for v in model.variables if v.name.startswith("seed_generator_state")]
    firsts = [state.numpy() for state in states]  # the same on every worker

    def shift() -> None:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        for state, first in zip(states, firsts, strict=True):
            shifted = tf.constant(first) + tf.cast([STRIDE * replica, 0], first.dtype)
            state.assign(shifted)

    tf.function(lambda: strategy.run(shift))()


def _strategy_of_several(model: keras.Model) -> "tf.distribute.Strategy | None":
    strategy = getattr(model, "distribute_strategy", None)
    return strategy if strategy is not None and strategy.num_replicas_in_sync > 1 else None


def _train_step(
    model: keras.Model, strategy: "tf.distribute.Strategy", share_of_loss: Callable
) -> Callable[[Any], None]:
    """Return a function of a distributed batch that makes one update."""
    import tensorflow as tf

    def share(data: Any) -> dict:
        variables = model.trainable_variables
        with tf.GradientTape() as tape:
            loss = share_of_loss(data, training=True)
            scaled = model.optimizer.scale_loss(loss)
        gradients = dict(enumerate(tape.gradient(scaled, variables)))
        # Those of embeddings stay slices: the global norm of Keras' clipping is over slices.
        known = {i: gradient for i, gradient in gradients.items() if gradient is not None}
        return tf.distribute.get_replica_context().all_reduce("SUM", known)

    def step(data: Any) -> None:
        sums = strategy.run(share, args=(data,))
        # The sums are equal on all replicas: with one of them the optimizer sets all copies.
        known = {i: strategy.experimental_local_results(g)[0] for i, g in sums.items()}
        variables = model.trainable_variables
        model.optimizer.apply([known.get(i) for i in range(len(variables))], variables)

    return step


def _share_of_loss(model: keras.Model) -> Callable:
    """Return a function of a replica's data: its share of the loss; it updates the metrics."""
    import tensorflow as tf

    takes_training = "training" in inspect.signature(model.call).parameters
    # Replicas take turns in threads, at each reduction, and share a layer's list of added losses:
    # we read it before the next reduction, and compute_loss must not.
    if hasattr(model, "_aggregate_additional_loss"):
        model._aggregate_additional_loss = lambda loss: tf.zeros((), "float32")

    def share(data: Any, training: bool) -> "tf.Tensor":
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        context = tf.distribute.get_replica_context()
        rows = tf.cast(tf.shape(tf.nest.flatten(x)[0])[0], "float32")
        all_rows = context.all_reduce("SUM", rows)
        y_pred = model(x, **({"training": training} if takes_training else {}))
        added = [tf.cast(each, "float32") for each in model.losses]
        loss = model.compute_loss(x, y, y_pred, sample_weight, training=training)
        loss += sum(tf.math.multiply_no_nan(each, rows / all_rows) for each in added)
        # As in Keras, a batch counts in the epoch's loss by its rows, here those of all replicas.
        replicas = context.num_replicas_in_sync
        tracker = next(metric for metric in model.metrics if metric.name == "loss")
        tracker.update_state(loss * replicas, sample_weight=all_rows / replicas)
        model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
        return loss

    return share


def _function(
    model: keras.Model, strategy: "tf.distribute.Strategy", step: Callable[[Any], None]
) -> Callable[[Any], dict]:
    """Return what `fit` calls with an iterator for each execution of one or more steps."""
    import tensorflow as tf

    def execute(iterator: Any) -> dict:
        steps = model.steps_per_execution

        def one_more(done: "tf.Tensor") -> "tf.Tensor":
            step(iterator.get_next())
            return done + 1

        if steps == 1:
            one_more(0)
        else:
            tf.while_loop(lambda done: done < steps, one_more, [tf.constant(0)])
        return model.get_metrics_result()

    run = execute
    if not model.run_eagerly:
        run = tf.function(execute, reduce_retracing=True, autograph=False)

    @functools.wraps(execute)
    def function(iterator: Any) -> dict:
        if tf.distribute.in_cross_replica_context():
            raise ValueError(
                "A replica-safe model trains outside of its strategy's scope: build and compile "
                "inside of `with strategy.scope():`, and call fit and evaluate after it. "
                f"Received: a call inside of the scope of {type(strategy).__name__}"
            )
        return run(iterator)

    return function


def _build_from_one_replica(model: keras.Model, strategy: "tf.distribute.Strategy") -> None:
    import tensorflow as tf

    build = getattr(model, "_maybe_symbolic_build", None)
    if build is None:
        return

    def build_from_one_replica(iterator: Any = None, data_batch: Any = None) -> None:
        if iterator is not None:
            _, _, batches = next(iter(iterator))
            data_batch = tf.nest.map_structure(
                lambda value: strategy.experimental_local_results(value)[0], next(batches)
            )
        build(data_batch=data_batch)

    model._maybe_symbolic_build = build_from_one_replica


def _check(model: keras.Model) -> None:
    if not getattr(model, "compiled", False):
        raise ValueError("The model must be compiled first. Received: a model without compile()")
    for name in ("train_step", "test_step"):
        bases = (*keras.Model.__mro__, ReleasesGraphs)
        own = [each for each in type(model).__mro__ if name in vars(each) and each not in bases]
        if own:
            raise ValueError(
                f"A model with a `{name}` of its own cannot be made replica-safe: what it does is "
                "replaced. Override compute_loss or compute_metrics, which are kept. "
                f"Received: {own[0].__name__}.{name}"
            )
    if model.jit_compile:
        raise ValueError(
            "XLA cannot compile a step that spans several replicas here: compile the model with "
            f"jit_compile=False. Received: jit_compile={model.jit_compile}"
        )
