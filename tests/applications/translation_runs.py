"""Translators with small networks of random weights, made without training."""

import math
import warnings

import numpy as np

from keras_attention.applications.schema.reading import load_config
from keras_attention.applications.text import END_ID
from keras_attention.applications.translation import (
    TranslationConfig,
    TranslationPreprocessor,
    Translator,
)
from keras_attention.decoding import SearchOptions

SOURCE_LINES = [
    "a man rides a brown horse",
    "two dogs run over the green grass",
    "a woman reads a book",
    "the children play with a ball near the water",
    "it rains",
]
TARGET_LINES = [
    "ein mann reitet auf einem braunen pferd",
    "zwei hunde laufen über das grüne gras",
    "eine frau liest ein buch",
    "die kinder spielen mit einem ball am wasser",
    "es regnet",
]
MAX_LENGTH = 9  # more than the first room of a cache


def randomize(model, seed: int = 3, scale: float = 2.0) -> None:
    """Give every weight, the biases too, random values that make outputs and attention uneven.

    The larger `scale`, the less one output is like another.
    """
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        if "norm" in variable.path:  # a gain of 0, or an offset as large as a step's vector,
            middle = float("gamma" in variable.path)  # would make all steps alike
            variable.assign(random.normal(middle, 0.2, variable.shape))
            continue
        # Kernels of attention heads have three axes.
        is_kernel = len(variable.shape) in (2, 3) and "embedding" not in variable.path
        heads_first = len(variable.shape) == 3 and "output_kernel" in variable.path
        inputs = math.prod(variable.shape[: 2 if heads_first else 1])
        spread = scale / inputs**0.5 if is_kernel else 1.0
        variable.assign(random.normal(0, spread, variable.shape))


def randomize_transformer(model) -> None:
    """Give every weight random values with which translations differ from line to line.

    Those of `randomize` make a Transformer repeat one word, or end at once.
    """
    random = np.random.default_rng(4)
    for variable in model.trainable_variables:
        middle, spread = 0.0, 1.5 / variable.shape[0] ** 0.5
        if "norm" in variable.path:
            middle, spread = float("gamma" in variable.path), 0.2
        variable.assign(random.normal(middle, spread, variable.shape))
    bias = 0.3 * np.array(model.word_logits.bias)
    bias[END_ID] = -0.3
    model.word_logits.bias.assign(bias)


def make_preprocessor(kind: str = "sentencepiece") -> TranslationPreprocessor:
    options = {"kind": kind, "vocabulary_size": 19 if kind == "words" else 61, "lowercase": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few lines give fewer pieces than are asked for
        return TranslationPreprocessor.adapt(
            SOURCE_LINES, TARGET_LINES, replace_unknown=kind == "words", **options
        )


def make_translator(kind: str = "sentencepiece", dtype=None, **model) -> Translator:
    """Return a translator of random weights; `model` goes into its configuration."""
    sizes = {"embedding_size": 7, "units": 11, "layers": 1}
    if model.get("architecture") == "transformer":
        sizes = {"embedding_size": 8, "feed_forward_size": 11, "layers": 2, "heads": 2}
    settings = [f"--model.{name}={value}" for name, value in {**sizes, **model}.items()]
    config = load_config(TranslationConfig, [], settings)
    task = Translator.configured(config, make_preprocessor(kind), dtype)
    task.search = SearchOptions(beam_size=3, max_length=MAX_LENGTH, batch_size=5)
    if config.model.architecture == "transformer":
        randomize_transformer(task.backbone)
    else:
        randomize(task.backbone, seed=4, scale=4.0)
    return task
