"""A small training that gives the same on any number of replicas."""

import functools

import keras
import numpy as np
import tensorflow as tf

from keras_attention.distribute import (
    GlobalMean,
    make_replica_safe,
    make_strategy,
    replica_batches,
)
from keras_attention.layers import CoverageAttention, InnerAttentionGRU
from keras_attention.losses import MaskedSparseCategoricalCrossentropy

WORDS = 13
# The last batch is smaller, and one of three rows leaves one of four replicas without any.
ROWS = (8, 8, 7, 3)


def masked_data(seed=0, blank=2):
    """Batches of ids of very different lengths; rows of some of them are padding alone."""
    random = np.random.default_rng(seed)
    batches = []
    for rows in ROWS:
        ids = random.integers(1, WORDS, (rows, 6)).astype("int32")
        lengths = random.integers(1, 7, rows)
        lengths[: rows // 2] = 1
        ids[np.arange(6) >= lengths[:, None]] = 0
        if rows == 8 and blank:
            ids[-blank:] = 0
        batches.append((ids, np.where(ids > 0, 1 + ids % (WORDS - 1), 0).astype("int32")))
    return batches


def dataset(blank=2):
    signature = (tf.TensorSpec([None, None], tf.int32),) * 2
    make = functools.partial(masked_data, blank=blank)
    return tf.data.Dataset.from_generator(make, output_signature=signature).repeat()


def adam(**settings):
    # A large epsilon: else rounding decides the sign of updates where gradients are near 0.
    return keras.optimizers.Adam(0.03, epsilon=1e-3, global_clipnorm=0.1, **settings)


def make_tagger():
    """The next word of each word."""
    model = keras.Sequential(
        [
            keras.layers.Embedding(WORDS, 6),
            keras.layers.GRU(5, return_sequences=True),
            keras.layers.Dense(WORDS),
        ]
    )
    model.build((None, None))
    return model


class Coverage(keras.layers.Layer):
    """Attends with a coverage loss, which the layer adds."""

    def __init__(self):
        super().__init__()
        self.embedding = keras.layers.Embedding(WORDS, 6, mask_zero=True)
        self.attention = CoverageAttention(5, loss_weight=2.0, loss_start=2)

    def call(self, ids):
        words, real = self.embedding(ids), ids > 0
        return words + self.attention(words, words, query_mask=real, value_mask=real)


def make_adding():
    """A tagger whose layers add losses: coverage, Occam's penalty, a regularizer's."""
    reader = InnerAttentionGRU(
        5, attention="word", occam=True, occam_minimum=0.1, return_sequences=True
    )
    head = keras.layers.Dense(WORDS, kernel_regularizer=keras.regularizers.L2(0.05))
    model = keras.Sequential([keras.Input((None,), dtype="int32"), Coverage(), reader, head])
    return model


def train(
    strategy, optimizer=adam, epochs=2, policy="float32", make=make_tagger, blank=2, **settings
):
    keras.utils.set_random_seed(3)
    keras.config.set_dtype_policy(policy)
    with strategy.scope():
        model = make()
        loss = GlobalMean(MaskedSparseCategoricalCrossentropy(0.1))
        metric = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        model.compile(optimizer(), loss, metrics=[metric], jit_compile=False, **settings)
        model.optimizer.build(model.trainable_variables)
    make_replica_safe(model)
    data = dataset(blank)
    if strategy.num_replicas_in_sync > 1:
        data = replica_batches(strategy, lambda: dataset(blank))
    log = []
    watch = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: log.append({k: float(v) for k, v in logs.items()})
    )
    settings = {"verbose": 0, "callbacks": [watch]}
    model.fit(data, epochs=epochs, steps_per_epoch=len(ROWS), shuffle=False, **settings)
    return model, log, model.evaluate(data, steps=len(ROWS), verbose=0, return_dict=True)


@functools.cache  # which keeps it: its thread pool warns when it is collected
def mirrored(replicas):
    return make_strategy("mirrored", [f"CPU:{index}" for index in range(replicas)])


def assert_same(one, other, tolerance=5e-6):
    (model, log, evaluated), (model2, log2, evaluated2) = one, other
    for logs, logs2 in zip([*log, evaluated], [*log2, evaluated2], strict=True):
        assert logs.keys() == logs2.keys()
        for name in logs:
            np.testing.assert_allclose(logs2[name], logs[name], rtol=tolerance, err_msg=name)
    for a, b in zip(model.get_weights(), model2.get_weights(), strict=True):
        np.testing.assert_allclose(b, a, atol=tolerance)
