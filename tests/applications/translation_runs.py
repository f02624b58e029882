"""Run folders with small models of random weights, made without training."""

import math
import warnings
from pathlib import Path

import numpy as np

from keras_attention.applications.common.config import save_config
from keras_attention.applications.common.run_folder import RunFolder
from keras_attention.applications.translation.config import (
    DecodingConfig,
    ModelConfig,
    TokenizerConfig,
    TranslationConfig,
)
from keras_attention.applications.translation.run import TARGET, TASK, new_model
from keras_attention.text import END_ID, SentencePieceTokenizer, WordTokenizer

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


def make_run(folder: Path, kind: str = "sentencepiece", **model) -> Path:
    """Write a run folder of a model with random weights; `model` goes into its configuration."""
    sizes = {"embedding_size": 7, "units": 11, "layers": 1, "attention_units": None}
    if model.get("architecture") == "transformer":
        sizes = {"embedding_size": 8, "feed_forward_size": 11, "layers": 2, "heads": 2}
    config = TranslationConfig(
        tokenizer=TokenizerConfig(
            kind=kind, vocabulary_size=61, replace_unknown=kind == "words", lowercase=True
        ),
        model=ModelConfig(**{**sizes, **model}),
        decoding=DecodingConfig(beam_size=3, max_length=13, batch_size=2),
    )
    tokenizers = [_tokenizer(kind, lines) for lines in (SOURCE_LINES, TARGET_LINES)]
    with RunFolder.prepare(folder, TASK) as prepared:
        save_config(config, prepared / "config.yaml")
        for tokenizer, name in zip(tokenizers, ("source", TARGET), strict=True):
            tokenizer.save(prepared / "tokenizers", name)
        built = new_model(config, *tokenizers)
        if config.model.architecture == "transformer":
            randomize_transformer(built)
        else:
            randomize(built, seed=4, scale=4.0)
        built.save_weights(prepared / "best.weights.h5")
    return folder


def _tokenizer(kind, lines):
    if kind == "words":
        return WordTokenizer.train(lines, vocabulary_size=19, lowercase=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few lines give fewer pieces than are asked for
        return SentencePieceTokenizer.train(lines, vocabulary_size=61, lowercase=True)
