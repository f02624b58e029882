"""From the configuration to a network: the only place here that sees a configuration."""

from .base import TranslationModel
from .luong import Luong, luong_attention
from .rnnsearch import RNNEncDec, RNNSearch
from .transformer import Transformer

RECURRENT_SIZE = 256
"""What null stands for in a recurrent model's sizes, which in the papers are 620 to 1000."""


def build_model(
    config,
    source_vocabulary_size: int,
    target_vocabulary_size: int,
    max_source_length: int = 100,
    share_embeddings: bool = False,
    dtype=None,
) -> TranslationModel:
    """Build the model that a configuration describes, with new weights.

    Args:
        config: A `ModelConfig`.
        source_vocabulary_size: How many source words there are, padding included.
        target_vocabulary_size: The same of the target.
        max_source_length: How many source words a location score tells apart.
        share_embeddings: Whether source and target have one vocabulary, whose embedding an
            architecture may share.
        dtype: The dtype policy of the model; None for Keras' global one.

    Returns:
        The model, built.
    """

    def given(*names):
        return {name: getattr(config, name) for name in names}

    common = {
        "source_vocabulary_size": source_vocabulary_size,
        "target_vocabulary_size": target_vocabulary_size,
        "embedding_size": config.embedding_size or RECURRENT_SIZE,
        "tie_embeddings": bool(config.tie_embeddings),
        "dtype": dtype,
        **given("dropout"),
    }
    units = config.units or RECURRENT_SIZE
    recurrent = {**common, **given("readout_size"), "units": units}
    sizes = config.attention_units, config.half_width, max_source_length
    builders = {
        "rnnsearch": lambda: RNNSearch(**given("attention_units"), **recurrent),
        "rnnencdec": lambda: RNNEncDec(**recurrent),
        "luong": lambda: Luong(
            attention=luong_attention(config.attention, config.score, units, *sizes, dtype),
            **given("layers", "input_feeding"),
            **recurrent,
        ),
        "transformer": lambda: Transformer(
            share_embeddings=share_embeddings and config.share_embeddings is not False,
            **given("layers", "feed_forward_size", "heads", "activation", "norm", "positions"),
            **given("attention_dropout"),
            **common,
        ),
    }
    if config.architecture not in builders:
        raise ValueError(
            f"`architecture` must be one of {sorted(builders)}. "
            f"Received: architecture={config.architecture!r}"
        )
    return builders[config.architecture]()
