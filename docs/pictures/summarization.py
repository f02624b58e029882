"""What the layers of summarisation read: weights are set by hand, so that the pattern is known."""

import numpy as np
from matplotlib.figure import Figure

from docs.pictures.mechanisms import LETTERS, one_hot
from docs.pictures.panels import COLORS
from keras_attention import AttentionPooling


def pooling() -> Figure:
    """Words pooled by a context vector that asks for vowels; each place shows its letter."""
    words = ["attention", "pooling", "rhythm", "a"]
    width = max(map(len, words))
    inputs = np.zeros((len(words), width, len(LETTERS)), "float32")
    mask = np.zeros((len(words), width), bool)
    for row, word in enumerate(words):
        inputs[row, : len(word)] = one_hot(word)[0]
        mask[row, : len(word)] = True
    layer = AttentionPooling(units=len(LETTERS))
    layer(inputs)
    layer.kernel.assign(4 * np.eye(len(LETTERS)))
    layer.context_vector.assign([3.0 * (letter in "aeiou") for letter in LETTERS])
    weights = np.asarray(layer(inputs, mask=mask, return_attention_scores=True)[1])

    result = Figure(figsize=(6, 2.8), layout="constrained")
    axis = result.subplots()
    image = axis.imshow(weights, cmap=COLORS, vmin=0, vmax=1, aspect="auto")
    for row, word in enumerate(words):
        for place, letter in enumerate(word):
            color = "white" if weights[row, place] > 0.6 else "black"
            axis.text(place, row, letter, ha="center", va="center", color=color)
    axis.set_title("the context vector asks for vowels", fontsize=10)
    axis.set_xticks([])
    axis.set_xlabel("place")
    axis.set_yticks(range(len(words)), [f"word {row + 1}" for row in range(len(words))])
    result.colorbar(image, ax=axis, shrink=0.8, label="weight")
    return result
