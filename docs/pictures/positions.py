"""What positions look like: fixed sinusoids, and a table that learned to find the place before."""

import keras
import numpy as np
from matplotlib.figure import Figure

from keras_attention import LearnedPositions, LuongAttention, PositionalEncoding

LENGTH, LETTERS, SIZE = 16, 26, 32


def encoding() -> Figure:
    """The sinusoids of fifty places, and how alike the codes of two places are."""
    codes = np.asarray(PositionalEncoding()(np.zeros((1, 50, 64), "float32")))[0]
    return _pair(
        ("PE, 50 places of 64 features", "place", "feature", codes),
        ("products of two places' codes, over D / 2", "place", "place", codes @ codes.T / 32),
    )


def learned() -> Figure:
    """Train for some seconds to name the letter before; show what it attends to, and the table."""
    keras.utils.set_random_seed(3)
    letters = keras.Input((LENGTH, LETTERS), name="letters")
    blank = keras.Input((LENGTH, SIZE), name="blank")  # so that queries and keys are places alone
    positions = LearnedPositions(LENGTH)
    places = positions(blank)
    attention = LuongAttention("general")
    named, weights = attention(places, letters, key=places, return_attention_scores=True)
    inputs = {"letters": letters, "blank": blank}
    model, reader = keras.Model(inputs, named), keras.Model(inputs, weights)
    words = np.random.default_rng(3).integers(0, LETTERS, (6400, LENGTH))
    given = {"letters": np.eye(LETTERS)[words], "blank": np.zeros((len(words), LENGTH, SIZE))}
    before = np.concatenate([words[:, :1], words[:, :-1]], axis=1)  # the first has itself
    model.compile(keras.optimizers.Adam(0.02), "sparse_categorical_crossentropy")
    model.fit(given, before, batch_size=32, epochs=2, verbose=0)
    seen = np.asarray(reader({name: array[:1] for name, array in given.items()}))[0]
    table = np.asarray(positions.embeddings)
    products = table @ table.T / np.max(np.sum(table**2, axis=1))
    return _pair(
        ("attention that names the letter before", "query", "memory", seen),
        ("products of two rows, over the greatest", "place", "place", products),
    )


def _pair(*panels: tuple[str, str, str, np.ndarray]) -> Figure:
    """Draw two panels side by side: title, label of the rows, label of the columns, values."""
    result = Figure(figsize=(9, 3.4), layout="constrained")
    axes = result.subplots(1, 2, width_ratios=[1.3, 1])
    for axis, (title, rows, columns, values) in zip(axes, panels, strict=True):
        image = axis.imshow(values, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(columns)
        axis.set_ylabel(rows)
        axis.locator_params(integer=True)
    result.colorbar(image, ax=list(axes), shrink=0.8)
    return result
