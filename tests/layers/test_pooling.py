"""Attention pooling in a model; `tests/contracts` compares it with its oracle."""

import keras
import numpy as np

from keras_attention.layers import AttentionPooling
from tests.contracts.backend import random, to_numpy

B, S, D, U = 3, 7, 13, 5


def test_it_takes_the_mask_of_an_embedding_and_hands_on_none():
    ids = np.array([[3, 1, 2], [4, 0, 0]])
    embed, layer = keras.layers.Embedding(5, D, mask_zero=True), AttentionPooling(U)
    pooled = layer(embed(ids))
    np.testing.assert_allclose(to_numpy(pooled)[1], to_numpy(embed(ids))[1, 0], atol=1e-6)
    assert getattr(pooled, "_keras_mask", None) is None
    model = keras.Sequential([keras.Input((None,), dtype="int32"), embed, layer])
    assert model.output_shape == (None, D)
    np.testing.assert_allclose(to_numpy(model(ids)), to_numpy(pooled), atol=1e-6)


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
