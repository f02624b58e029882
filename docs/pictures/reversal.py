"""A decoder that learned to write a word backwards."""

import keras
import numpy as np
from keras import layers
from matplotlib.figure import Figure

from docs.pictures.panels import figure
from keras_attention import AttentionDecoder, BahdanauAttention

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LENGTH, UNITS = 8, 64
START = len(LETTERS)
WORD = "keyboard"


def decoder() -> Figure:
    """Train for some seconds, then show where the decoder looked for each letter."""
    keras.utils.set_random_seed(3)
    model, reader = _models()
    words = np.random.default_rng(3).integers(0, len(LETTERS), (6400, LENGTH))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.optimizer.learning_rate = 5e-3
    model.fit(_inputs(words), words[:, ::-1], batch_size=64, epochs=4, verbose=0)
    word = np.array([[LETTERS.index(letter) for letter in WORD]])
    logits, weights = reader(_inputs(word))
    written = "".join(LETTERS[letter] for letter in np.argmax(logits, -1)[0])
    title = f'the decoder reads "{WORD}" and writes "{written}"'
    return figure([(title, np.asarray(weights)[0])], written, WORD, (5.5, 4))


def _inputs(words: np.ndarray) -> dict[str, np.ndarray]:
    answers = words[:, ::-1]
    before = np.concatenate([np.full((len(words), 1), START), answers[:, :-1]], axis=1)
    return {"source": words, "target": before}


def _models() -> tuple[keras.Model, keras.Model]:
    """Return the model to train, and one on the same weights that shows the attention."""
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = layers.Bidirectional(layers.GRU(UNITS, return_sequences=True))(
        layers.Embedding(len(LETTERS), UNITS)(source)
    )
    attend = AttentionDecoder(layers.GRUCell(UNITS), BahdanauAttention(UNITS))
    states, weights = attend(
        layers.Embedding(len(LETTERS) + 1, UNITS)(target), memory, return_attention_scores=True
    )
    logits = layers.Dense(len(LETTERS))(states)
    inputs = {"source": source, "target": target}
    return keras.Model(inputs, logits), keras.Model(inputs, (logits, weights))
