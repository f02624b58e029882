"""Training on several replicas of one process, and batches that every number of devices divides."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attention.distribute import (
    GlobalMean,
    ReleasesGraphs,
    even_batches,
    make_data_parallel,
    make_replica_safe,
    make_strategy,
    replica_batches,
    spread_seeds,
)
from keras_attention.layers import (
    AttentionDecoder,
    BahdanauAttention,
    CoverageAttention,
    MonotonicAttention,
)
from keras_attention.losses import MaskedSparseCategoricalCrossentropy
from tests.distribute.same_training import (
    WORDS,
    adam,
    assert_same,
    make_adding,
    masked_data,
    mirrored,
    train,
)


@pytest.fixture(scope="module")
def single():
    return train(tf.distribute.get_strategy())


@pytest.mark.parametrize("replicas", [2, 3, 4])
@pytest.mark.by_default("3")
def test_replicas_agree_with_one_device(single, replicas):
    assert_same(single, train(mirrored(replicas)))


@pytest.mark.parametrize(
    "attention",
    [
        lambda: BahdanauAttention(5),
        lambda: CoverageAttention(5),
        lambda: MonotonicAttention(BahdanauAttention(5)),
    ],
    ids=["bahdanau", "coverage", "monotonic"],
)
def test_a_layer_is_called_where_no_replica_runs(attention):
    """In the strategy's scope, as a model's constructor does that calls its layers."""
    words, memory = np.ones((2, 3, 7), "float32"), np.ones((2, 5, 11), "float32")
    with mirrored(2).scope():
        layer = AttentionDecoder(keras.layers.GRUCell(13), attention())
        found = layer(words, memory)
    np.testing.assert_allclose(found, layer(words, memory), atol=1e-6)


@pytest.mark.slow
def test_losses_that_layers_add_are_means_over_all_replicas():
    one = train(tf.distribute.get_strategy(), make=make_adding, blank=0)
    assert len(one[0].losses) == 3
    # Of the last batch's three rows, one of the four replicas has none.
    assert_same(one, train(mirrored(4), make=make_adding, blank=0), tolerance=2e-5)


@pytest.mark.slow
def test_gradients_accumulate_alike(single):
    accumulating = functools.partial(adam, gradient_accumulation_steps=2)
    one = train(tf.distribute.get_strategy(), accumulating)
    assert_same(one, train(mirrored(2), accumulating))
    assert np.any(one[0].get_weights()[0] != single[0].get_weights()[0])


@pytest.mark.slow
def test_several_steps_of_an_execution_are_the_same_steps(single):
    model, log, evaluated = train(mirrored(2), steps_per_execution=2)
    assert len(log) == len(single[1]) / 2
    assert_same((single[0], single[1][1::2], single[2]), (model, log, evaluated))


@pytest.mark.slow
def test_the_loss_is_scaled_in_float16():
    _, log, _ = single16 = train(tf.distribute.get_strategy(), policy="mixed_float16")
    model, log2, _ = train(mirrored(2), policy="mixed_float16")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    np.testing.assert_allclose([a["loss"] for a in log2], [a["loss"] for a in log], rtol=5e-3)
    scales = [each.optimizer.dynamic_scale.numpy() for each in (single16[0], model)]
    assert scales[0] == scales[1]


def test_one_trace_serves_all_batches():
    traces = []

    class Counting(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, inputs, training=False):
            traces.append(training)
            return self.dense(keras.ops.cast(inputs, "float32")[..., None])

    strategy = mirrored(2)
    with strategy.scope():
        model = Counting()
        loss = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
        model.compile("sgd", GlobalMean(loss), jit_compile=False)
    make_replica_safe(model)
    shapes = tf.data.Dataset.from_tensor_slices([3, 5, 4, 7]).repeat()
    signature = tf.TensorSpec([None, None], tf.int32)

    def dataset():
        data = shapes.map(lambda length: tf.ones([4, length], tf.int32))
        return data.apply(tf.data.experimental.assert_cardinality(-1)).map(
            lambda x: (tf.ensure_shape(x, signature.shape), tf.cast(x, "float32")[..., None])
        )

    model.fit(
        replica_batches(strategy, dataset), steps_per_epoch=4, epochs=1, verbose=0, shuffle=False
    )
    first = len(traces)
    model.fit(
        replica_batches(strategy, dataset), steps_per_epoch=4, epochs=2, verbose=0, shuffle=False
    )
    assert len(traces) == first <= 4  # the building, and each replica once or twice


def test_dropout_differs_between_replicas():
    strategy = mirrored(2)
    with strategy.scope():
        model = keras.Sequential([keras.Input((50,)), keras.layers.Dropout(0.5, seed=7)])
    spread_seeds(model)

    def kept():
        outputs = strategy.run(lambda: model(tf.ones((1, 50)), training=True))
        return [output.numpy() for output in strategy.experimental_local_results(outputs)]

    first, second = kept(), kept()
    assert np.any(first[0] != first[1]) and np.any(first[0] != second[0])
    model.variables[0].assign([7, 0])  # as a restored checkpoint does
    spread_seeds(model)
    np.testing.assert_array_equal(kept(), first)
    one = keras.layers.Dropout(0.5, seed=7)(tf.ones((1, 50)), training=True)
    np.testing.assert_array_equal(one, first[0])


def test_every_row_is_in_one_part():
    strategy = mirrored(3)
    data = replica_batches(strategy, lambda: tf.data.Dataset.range(12).batch(5))
    found = [
        [part.numpy().tolist() for part in strategy.experimental_local_results(batch)]
        for batch in data
    ]
    assert found == [[[0], [1, 2], [3, 4]], [[5], [6, 7], [8, 9]], [[], [10], [11]]]


LOSSES = [
    MaskedSparseCategoricalCrossentropy(0.1),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"),
    keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    ),
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=range(len(LOSSES)))
def test_shares_add_up_to_the_loss_of_the_whole_batch(loss, weighted):
    random = np.random.default_rng(1)
    target, _ = masked_data()[2]
    logits = random.normal(size=(*target.shape, WORDS)).astype("float32")
    weight = random.uniform(size=target.shape).astype("float32") if weighted else None
    strategy = mirrored(3)
    cuts = (slice(0, 1), slice(1, 5), slice(5, 7))
    shared = keras.losses.deserialize(keras.losses.serialize(GlobalMean(loss)))

    def part(values, context):
        return values[cuts[context.replica_id_in_sync_group]]

    distribute = strategy.experimental_distribute_values_from_function
    arguments = [
        distribute(functools.partial(part, values))
        for values in (target, logits, weight)
        if values is not None
    ]
    shares = strategy.experimental_local_results(strategy.run(shared, args=tuple(arguments)))
    np.testing.assert_allclose(sum(map(float, shares)), loss(target, logits, weight), rtol=1e-6)
    np.testing.assert_allclose(shared(target, logits, weight), loss(target, logits, weight))


def test_what_is_refused():
    with pytest.raises(ValueError, match="must be a keras.losses.Loss.*'mse'"):
        GlobalMean("mse")
    with pytest.raises(ValueError, match="Received: reduction='none'"):
        GlobalMean(keras.losses.MeanSquaredError(reduction="none"))
    with pytest.raises(ValueError, match="one of none, auto, mirrored. Received: 'all'"):
        make_strategy("all")
    with pytest.raises(ValueError, match="Devices are some of CPU:0, .* Received: CPU:9"):
        make_strategy("mirrored", ["CPU:9"])
    with pytest.raises(ValueError, match="each once"):
        make_strategy("mirrored", ["CPU:1", "CPU:1"])
    assert make_strategy("auto", ["CPU:0"]).num_replicas_in_sync == 1
    strategy = mirrored(2)
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        with pytest.raises(ValueError, match="must be compiled first"):
            make_replica_safe(model)
        model.compile("sgd", "mse", jit_compile=False)
        make_replica_safe(model)
        with pytest.raises(ValueError, match="inside of the scope of MirroredStrategy"):
            model.fit(np.ones((4, 3)), np.ones((4, 1)), verbose=0)
        own = type("Own", (keras.Sequential,), {"train_step": lambda self, data: {}})()
        own.compile("sgd", "mse", jit_compile=False)
        released = type("Released", (ReleasesGraphs, type(own)), {})()
        released.compile("sgd", "mse", jit_compile=False)
    for model in (own, released):
        with pytest.raises(ValueError, match="Received: Own.train_step"):
            make_replica_safe(model)


@pytest.mark.parametrize("parts", [1, 2, 5])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_of_zeros_come_in_and_no_mean_changes(parts, weighted):
    random = np.random.default_rng(parts)
    x = {"ids": random.integers(1, 9, (7, 3)).astype("int32")}
    y = random.normal(size=(7, 2)).astype("float32")
    weight = random.uniform(0.5, 2.0, 7).astype("float32")
    rows = (x, y, weight) if weighted else (x, y)
    found = list(even_batches(tf.data.Dataset.from_tensor_slices(rows).batch(4), parts))
    assert len(found) == 2
    for (ids, values, weights), rows in zip(found, (slice(0, 4), slice(4, 7)), strict=True):
        real = len(y[rows])
        size = -(-real // parts) * parts
        assert ids["ids"].shape == (size, 3) and ids["ids"].dtype == "int32"
        np.testing.assert_array_equal(ids["ids"][:real], x["ids"][rows])
        np.testing.assert_array_equal(values[:real], y[rows])
        assert not np.any(ids["ids"][real:]) and not np.any(values[real:])
        assert not np.any(weights[real:])
        own = weight[rows] if weighted else None
        for reduction in ("sum_over_batch_size", "mean_with_sample_weight"):
            loss = keras.losses.MeanSquaredError(reduction=reduction)
            expected = loss(y[rows], 0.5 * y[rows] + 1.0, own)
            padded = loss(values, 0.5 * values + 1.0, weights)
            np.testing.assert_allclose(padded, expected, rtol=1e-6)


def test_data_parallelism_is_refused_elsewhere_than_on_jax():
    with pytest.raises(ValueError, match="is JAX's: set KERAS_BACKEND=jax.* Received: the backend"):
        make_data_parallel()
