"""Heat maps of attention weights, drawn in one style."""

import io
from collections.abc import Callable

from matplotlib.figure import Figure

from docs.pictures import (
    answers,
    crf,
    inner_attention,
    mechanisms,
    multi_head,
    positions,
    reversal,
    since_2017,
    speed,
    summarization,
)


def draw_all() -> dict[str, bytes]:
    """Return the PNG of every picture by its name."""
    pictures: dict[str, Callable[[], Figure]] = {
        "attention_by_position": answers.positions,
        "bahdanau": mechanisms.bahdanau,
        "luong": mechanisms.luong,
        "local": mechanisms.local,
        "monotonic": mechanisms.monotonic,
        "decoder": reversal.decoder,
        "pooling": summarization.pooling,
        "coverage": summarization.coverage,
        "temporal": summarization.temporal,
        "intra_decoder": summarization.intra_decoder,
        "hierarchical": summarization.hierarchical,
        "pointer_generator": summarization.pointer_generator,
        "inner_attention": inner_attention.inner_attention,
        "crf": crf.tags,
        "multi_head": multi_head.options,
        "linear_attention": since_2017.linear,
        "gated_delta_net": since_2017.delta,
        "latent_attention": since_2017.latent,
        "positions": positions.encoding,
        "learned_positions": positions.learned,
        "speed": speed.ratios,
    }
    return {name: _png(picture()) for name, picture in pictures.items()}


def _png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=120, metadata={"Software": None})
    return stream.getvalue()
