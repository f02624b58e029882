"""Attention pooling in a model; `tests/contracts` compares it with its oracle."""

import keras
import numpy as np

from keras_attention.layers import AttentionPooling
from tests.contracts.backend import random, to_numpy

B, S, D, U = 3, 7, 13, 5


def test_words_then_sentences():
    """Yang's two levels: the layer under `TimeDistributed` makes one vector a sentence."""
    words, sentences = AttentionPooling(U), AttentionPooling(U)
    inputs = keras.Input((None, S, D))
    model = keras.Model(inputs, sentences(keras.layers.TimeDistributed(words)(inputs)))
    document = random(7, B, 2, S, D)
    by_hand = np.stack([to_numpy(words(document[:, n])) for n in range(2)], axis=1)
    np.testing.assert_allclose(
        to_numpy(model(document)), to_numpy(sentences(by_hand)), atol=1e-5, rtol=1e-5
    )
