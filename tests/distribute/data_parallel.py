"""Trains on JAX, on one device and on several; prints the losses of both as JSON."""

import json

import jax
import keras
import numpy as np

from keras_attention.layers import BahdanauAttention
from keras_attention.losses import MaskedSparseCategoricalCrossentropy

WORDS = 13


class Tagger(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = keras.layers.Embedding(WORDS, 6)
        self.attention = BahdanauAttention(5)
        self.head = keras.layers.Dense(WORDS)

    def call(self, ids):
        words, real = self.embedding(ids), ids > 0
        return self.head(self.attention(words, words, query_mask=real, value_mask=real))


def train():
    keras.utils.set_random_seed(3)
    random = np.random.default_rng(0)
    ids = random.integers(1, WORDS, (24, 7)).astype("int32")
    ids[np.arange(7) >= random.integers(1, 8, 24)[:, None]] = 0
    model = Tagger()
    model.compile(keras.optimizers.Adam(0.03), MaskedSparseCategoricalCrossentropy(0.1))
    labels = np.where(ids > 0, 1 + ids % (WORDS - 1), 0)
    history = model.fit(ids, labels, batch_size=8, epochs=3, shuffle=False, verbose=0)
    layouts = {str(variable.value.sharding) for variable in model.trainable_variables}
    return history.history["loss"], layouts


if __name__ == "__main__":
    one, _ = train()
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    several, layouts = train()
    print(json.dumps({"devices": jax.device_count(), "one": one, "several": several}))
    assert all("NamedSharding" in layout for layout in layouts), layouts
