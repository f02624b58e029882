"""Small summarisers with random weights, made without training."""

import numpy as np

from keras_attention.applications.schema.reading import load_config
from keras_attention.applications.summarization import Summarizer
from keras_attention.applications.summarization.config import SummarizationConfig
from keras_attention.applications.summarization.data import in_memory

DOCUMENTS = [
    ["urgent : Bakilo of the mill needs two ropes .", "Dofina saw three boats near the tower ."],
    ["the school sold Muripe four lamps .", "urgent : at the mill , Sotuve asks for six maps ."],
    ["Hegama of the harbour has nine drums ."],
]
SUMMARIES = ["Bakilo needs two ropes .", "Sotuve needs six maps .", "nothing ."]
CORPUS = in_memory(DOCUMENTS, SUMMARIES)


def small_config(*overrides: str) -> SummarizationConfig:
    """A configuration of small sizes; an architecture switches on what it is made of."""
    sizes = ["--model.embedding_size=8", "--model.units=6", "--tokenizer.vocabulary_size=30"]
    sizes += ["--tokenizer.min_count=2", "--tokenizer.extra_words=5", "--decoding.beam_size=2"]
    sizes += ["--decoding.max_length=6", "--decoding.batch_size=3", "--data.max_words=14"]
    return load_config(SummarizationConfig, [], list(overrides), sizes)


def randomize(model, seed: int = 3) -> None:
    """Give every weight random values that make outputs and attention uneven."""
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        spread = 1.5 / max(variable.shape[0], 1) ** 0.5 if len(variable.shape) == 2 else 1.0
        variable.assign(random.normal(0, spread, variable.shape))


def small_summarizer(*overrides: str) -> Summarizer:
    """A summariser that a configuration describes, with random weights; names are unknown."""
    config = small_config(*overrides)
    task = Summarizer.configured(config, Summarizer.adapt(config, CORPUS))
    randomize(task.backbone)
    return task
