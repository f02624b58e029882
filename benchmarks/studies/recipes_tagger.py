"""The tagger of docs/tutorials/recipes.md, for real text: spelling beside words, a GRU below."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import keras
import numpy as np

from keras_attention.applications.base.preprocessor import padded
from keras_attention.applications.text import BucketedBatches
from keras_attention.layers import TransformerEncoder
from keras_attention.losses import MaskedSparseCategoricalCrossentropy

LONGEST = 100
"""Longer training sentences are left out."""
FEATURES: dict[str, tuple[Callable[[str], str], int, int]] = {
    "word": (str.lower, 100, 2),
    "ending": (lambda word: word[-3:].lower(), 32, 2),
    "start": (lambda word: word[:3].lower(), 32, 2),
    "shape": (lambda word: shape(word), 16, 1),
}
"""The features of a word. Each has a function that computes it from the word, the width of its
embedding, and how often a value must occur in training to have an embedding of its own."""


def shape(word: str) -> str:
    """Return capitals as A, small letters as a, digits as 0, each run once: `Aa` of Madrid."""
    found = ""
    for letter in word:
        kind = "A" if letter.isupper() else "a" if letter.islower() else letter
        kind = "0" if letter.isdigit() else kind
        found += "" if found.endswith(kind) else kind
    return found


class Tagger:
    """Reads words and their spelling, and gives each word the likeliest tag.

    Args:
        train: words and tags of each sentence; longer sentences than `LONGEST` are left out.
    """

    def __init__(self, train: list):
        self._train = [row for row in train if len(row[0]) <= LONGEST]
        self._tags = sorted({tag for _, tags in self._train for tag in tags})
        self._ids = []
        for feature, _, least in FEATURES.values():
            counts = Counter(feature(word) for words, _ in self._train for word in words)
            common = sorted(value for value, count in counts.items() if count >= least)
            self._ids.append({value: 2 + place for place, value in enumerate(common)})

    def fit(self, run: Path, seed: int, epochs: int, batch_size: int, **options) -> "Tagger":
        """Train a model and keep it as a file in a folder, or read the one that is there."""
        path = run / "tagger.keras"
        if path.is_file():
            self._model = keras.models.load_model(path)
            return self
        batches = BucketedBatches(
            [
                *self._columns([words for words, _ in self._train]),
                [[1 + self._tags.index(tag) for tag in tags] for _, tags in self._train],
            ],
            batch_size,
            seed=seed,
            assemble=lambda *arrays: (arrays[:-1], arrays[-1]),
        )
        keras.utils.set_random_seed(seed)
        steps = len(batches)
        sizes = [len(ids) + 2 for ids in self._ids]
        self._model = network(sizes, 1 + len(self._tags), steps * epochs, **options)
        pairs = batches.to_dataset(epochs=epochs)
        self._model.fit(pairs, steps_per_epoch=steps, epochs=epochs, shuffle=False, verbose=2)
        run.mkdir(parents=True, exist_ok=True)
        self._model.save(path)
        return self

    def tag(self, sentences: list) -> list[list[str]]:
        """Return a tag for each word of `(words, ...)`."""
        words = [row[0] for row in sentences]
        answers = []
        for start in range(0, len(words), 32):
            batch = words[start : start + 32]
            inputs = [padded(column) for column in self._columns(batch)]
            best = np.argmax(self._model.predict_on_batch(inputs)[..., 1:], axis=-1)
            for row, own in zip(best, batch, strict=True):
                answers.append([self._tags[place] for place in row[: len(own)]])
        return answers

    def _columns(self, sentences: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """Return the ids of each feature, 1 where it is unknown; 0 is for padding."""
        return [
            [[ids.get(feature(word), 1) for word in words] for words in sentences]
            for (feature, *_), ids in zip(FEATURES.values(), self._ids, strict=True)
        ]


def network(
    sizes: Sequence[int], tags: int, steps: int, units: int, learning_rate: float
) -> keras.Model:
    """Return a compiled model from the ids of each feature to the logits of a tag for each word."""
    inputs = [keras.Input((None,), dtype="int32", name=name) for name in FEATURES]
    vectors = [
        keras.layers.Embedding(size, width, name=f"{name}_vectors")(ids)
        for ids, size, (name, (_, width, _)) in zip(inputs, sizes, FEATURES.items(), strict=True)
    ]
    # Whole words are dropped, so that the model learns what spelling and neighbours tell.
    vectors[0] = keras.layers.Dropout(0.3, noise_shape=(None, None, 1))(vectors[0])
    is_word = keras.ops.not_equal(inputs[0], 0)
    x = keras.layers.Dropout(0.3)(keras.layers.Concatenate()(vectors))
    gru = keras.layers.GRU(units, return_sequences=True)
    x = keras.layers.Bidirectional(gru)(x, mask=is_word)
    x = TransformerEncoder(4 * units, num_heads=4, dropout=0.2)(x, inputs_mask=is_word)
    model = keras.Model(inputs, keras.layers.Dense(tags, name="tags")(x))
    rate = keras.optimizers.schedules.CosineDecay(learning_rate, steps)
    model.compile(keras.optimizers.Adam(rate, clipnorm=1.0), MaskedSparseCategoricalCrossentropy())
    return model
