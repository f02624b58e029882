"""Run folders of the summarisation application with random weights, made without training."""

from pathlib import Path

import numpy as np

from keras_attention.applications.common.config import load_config, save_config
from keras_attention.applications.common.run_folder import RunFolder
from keras_attention.applications.summarization.config import ARCHITECTURES, SummarizationConfig
from keras_attention.applications.summarization.run import TASK, WORDS, new_model
from keras_attention.text import WordTokenizer

DOCUMENTS = [
    ["urgent : Bakilo of the mill needs two ropes .", "Dofina saw three boats near the tower ."],
    ["the school sold Muripe four lamps .", "urgent : at the mill , Sotuve asks for six maps ."],
    ["Hegama of the harbour has nine drums ."],
]
SUMMARIES = ["Bakilo needs two ropes .", "Sotuve needs six maps .", "nothing ."]


def small_config(*overrides: str) -> SummarizationConfig:
    """A configuration of small sizes; an architecture switches on what it is made of."""
    sizes = ["--model.embedding_size=8", "--model.units=6", "--tokenizer.vocabulary_size=30"]
    sizes += ["--tokenizer.min_count=2", "--tokenizer.extra_words=5", "--decoding.beam_size=2"]
    sizes += ["--decoding.max_length=6", "--decoding.batch_size=2", "--data.max_words=30"]
    config = load_config(SummarizationConfig, [], list(overrides), sizes)
    defaults = [*sizes, *ARCHITECTURES[config.model.architecture]]
    return load_config(SummarizationConfig, [], list(overrides), defaults)


def randomize(model, seed: int = 3) -> None:
    """Give every weight random values that make outputs and attention uneven."""
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        spread = 1.5 / max(variable.shape[0], 1) ** 0.5 if len(variable.shape) == 2 else 1.0
        variable.assign(random.normal(0, spread, variable.shape))


def make_run(folder: Path, *overrides: str) -> Path:
    """Write a run folder of a model with random weights."""
    config = small_config(*overrides)
    lines = [line for document in DOCUMENTS for line in document] + SUMMARIES
    tokenizer = WordTokenizer.train(lines, vocabulary_size=30, min_count=2, lowercase=True)
    with RunFolder.prepare(folder, TASK) as prepared:
        save_config(config, prepared / "config.yaml")
        tokenizer.save(prepared / "tokenizers", WORDS)
        model = new_model(config, tokenizer)
        randomize(model)
        model.save_weights(prepared / "best.weights.h5")
    return folder
