"""The model section of the summarisation application."""

from dataclasses import dataclass
from typing import Literal

from keras_attention.applications.common.checks import check_range
from keras_attention.applications.common.errors import UserError


@dataclass(frozen=True)
class ModelConfig:
    """What reads a document, and what the decoder that writes its summary attends with.

    `architecture` names what a paper switches on; each switch may be set beside it.

    Args:
        architecture: see2017 (flat encoder, pointer, coverage), nallapati2016-temporal (flat,
            temporal attention, pointer), nallapati2016-hierarchical (hierarchical encoder and
            attention, pointer), or paulus2017 (flat, temporal and intra-decoder attention, pointer;
            trained by maximum likelihood).
        encoder: flat reads all words in one sequence, with a bidirectional GRU; hierarchical reads
            each sentence, then the sentences, and attends to both; transformer reads all words.
        attention: attend to the document; without, the decoder reads the encoder's last state at
            each step, for comparison (switch pointer, coverage and temporal off too).
        coverage: attend with coverage.
        temporal: attend with temporal attention; not together with coverage.
        intra_decoder: let the decoder attend to its own earlier states too.
        pointer: copy words of the document, unknown ones too.
        coverage_weight: factor of the coverage loss.
        coverage_start: training steps without the coverage loss.
        embedding_size: width of the word embeddings, of the encoder transformer too.
        units: units of the encoder (of both directions together) and of the decoder.
        attention_units: units of the attention; null for as many as `units`.
        dropout: rate of the dropout on embeddings and on what words are chosen by.
        layers: blocks of the encoder transformer.
        heads: their attention heads.
    """

    architecture: Literal[
        "see2017", "nallapati2016-temporal", "nallapati2016-hierarchical", "paulus2017"
    ] = "see2017"
    encoder: Literal["flat", "hierarchical", "transformer"] = "flat"
    attention: bool = True
    coverage: bool = True
    temporal: bool = False
    intra_decoder: bool = False
    pointer: bool = True
    coverage_weight: float = 1.0
    coverage_start: int = 0
    embedding_size: int = 128
    units: int = 256
    attention_units: int | None = None
    dropout: float = 0.0
    layers: int = 2
    heads: int = 4

    def __post_init__(self):
        for name in ("embedding_size", "units", "attention_units", "layers", "heads"):
            check_range(f"model.{name}", getattr(self, name), at_least=1)
        check_range("model.dropout", self.dropout, at_least=0, below=1)
        check_range("model.coverage_weight", self.coverage_weight, at_least=0)
        check_range("model.coverage_start", self.coverage_start, at_least=0)
        if self.units % 2:
            raise UserError(
                f"model.units must be even, half for each direction. Received: {self.units}."
            )
        if self.coverage and self.temporal:
            raise UserError(
                "model.coverage and model.temporal are two ways to attend: switch one off."
            )
        if not self.attention and (self.pointer or self.coverage or self.temporal):
            raise UserError(
                "model.attention false leaves nothing to copy by or to change: set model.pointer, "
                "model.coverage and model.temporal to false too."
            )
        if self.encoder == "transformer" and self.embedding_size % self.heads:
            raise UserError(
                f"model.embedding_size must be a multiple of model.heads ({self.heads}). "
                f"Received: {self.embedding_size}."
            )


def _switches(encoder="flat", **on: bool) -> list[str]:
    switches = {"coverage": False, "temporal": False, "intra_decoder": False, "pointer": True}
    return [f"--model.encoder={encoder}"] + [
        f"--model.{name}={str(value).lower()}" for name, value in {**switches, **on}.items()
    ]


# What an architecture changes in the defaults; a configuration file or an option goes first.
ARCHITECTURES = {
    "see2017": _switches(coverage=True),
    "nallapati2016-temporal": _switches(temporal=True),
    "nallapati2016-hierarchical": _switches("hierarchical"),
    "paulus2017": _switches(temporal=True, intra_decoder=True),
}
