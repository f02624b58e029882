"""From the configuration to a network: the only place here that sees a configuration."""

from ...errors import check_choice
from .base import TranslationModel
from .luong import Luong, luong_attention
from .rnnsearch import RNNEncDec, RNNSearch
from .transformer import Transformer

NETWORKS = {
    "rnnsearch": RNNSearch,
    "luong": Luong,
    "rnnencdec": RNNEncDec,
    "transformer": Transformer,
}
RECURRENT_SIZE = 256
"""The default (null) of a recurrent model's sizes, which in the papers are 620 to 1000."""


def build_model(
    config,
    source_vocabulary_size: int,
    target_vocabulary_size: int,
    max_source_length: int = 100,
    share_embeddings: bool = False,
    dtype=None,
    **layers,
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
        **layers: Layers in place of the network's own, such as `attention`.

    Returns:
        The model, built.
    """
    check_choice("`architecture`", config.architecture, NETWORKS)
    own = config.own()
    if "units" in own:
        own["units"] = own["units"] or RECURRENT_SIZE
    if config.architecture == "luong" and layers.get("attention") is None:
        named = [own.pop(name) for name in ("attention", "score", "attention_units", "half_width")]
        own["attention"] = luong_attention(own["units"], *named, max_source_length, dtype)
    if config.architecture == "transformer":
        del own["size"]  # which the other sizes come from
        own["share_embeddings"] = share_embeddings and config.share_embeddings is not False
    own = {name: value for name, value in own.items() if name not in layers}
    return NETWORKS[config.architecture](
        source_vocabulary_size,
        target_vocabulary_size,
        embedding_size=config.embedding_size or RECURRENT_SIZE,
        dropout=config.dropout,
        tie_embeddings=bool(config.tie_embeddings),
        dtype=dtype,
        **own,
        **layers,
    )
