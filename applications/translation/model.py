"""From the configuration to a model: the only place here that sees a configuration."""

from keras_attention.applications.translation.base import TranslationModel
from keras_attention.applications.translation.luong import Luong
from keras_attention.applications.translation.rnnencdec import RNNEncDec
from keras_attention.applications.translation.rnnsearch import RNNSearch

__all__ = ["Luong", "RNNEncDec", "RNNSearch", "TranslationModel", "build_model"]


def build_model(
    config,
    source_vocabulary_size: int,
    target_vocabulary_size: int,
    max_source_length: int = 100,
) -> TranslationModel:
    """Build the model that a configuration describes, with new weights.

    Args:
        config: A `ModelConfig`.
        source_vocabulary_size: How many source words there are, padding included.
        target_vocabulary_size: The same of the target.
        max_source_length: How many source words a location score tells apart.

    Returns:
        The model, built.
    """
    common = {
        "source_vocabulary_size": source_vocabulary_size,
        "target_vocabulary_size": target_vocabulary_size,
        "embedding_size": config.embedding_size,
        "units": config.units,
        "readout_size": config.readout_size,
        "dropout": config.dropout,
        "tie_embeddings": config.tie_embeddings,
    }
    builders = {
        "rnnsearch": lambda: RNNSearch(attention_units=config.attention_units, **common),
        "rnnencdec": lambda: RNNEncDec(**common),
        "luong": lambda: Luong(
            layers=config.layers,
            attention=config.attention,
            score=config.score,
            attention_units=config.attention_units,
            max_source_length=max_source_length,
            input_feeding=config.input_feeding,
            **({} if config.half_width is None else {"half_width": config.half_width}),
            **common,
        ),
    }
    if config.architecture not in builders:
        raise ValueError(
            f"`architecture` must be one of {sorted(builders)}. "
            f"Received: architecture={config.architecture!r}"
        )
    return builders[config.architecture]()
