"""The settings of summarisation."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ..errors import UserError
from ..schema import training
from ..schema.distribute import DistributeConfig
from ..schema.keys import SPLITS, Config, DataSection, Defaults, Section, key
from ..schema.search import SearchConfig


@dataclass(frozen=True)
class DataConfig(DataSection):
    """Where the documents come from: a known data set, or files of JSON lines.

    Each line of a file is an object with `source`, a text or a list of sentences, and `target`, a
    summary or a list of several of the same document."""

    paths = ("folder", *SPLITS)
    needed = {split: f"--data.{split} F, or --data.dataset reports" for split in ("train", "dev")}

    dataset: Literal["reports", "scitldr"] | None = key(
        None,
        "a known data set: reports (made by this package) or scitldr",
        common=True,
    )
    folder: str | None = key(
        None,
        "where the files of scitldr lie (train.jsonl.gz, dev.jsonl.gz, test.jsonl.gz)",
        common=True,
    )
    train: str | None = key(
        None,
        "documents and summaries to train with (plain or .gz)",
        common=True,
    )
    dev: str | None = key(
        None,
        "the same of the development set, which training is judged by",
        common=True,
    )
    test: str | None = key(
        None,
        "the same of the test set, which `evaluate` uses",
    )
    max_sentences: int = key(
        100,
        "the most sentences that are read of a document",
        at_least=1,
    )
    max_words: int = key(
        400,
        "the most words that are read of a document, whole sentences or not",
        common=True,
        at_least=1,
    )
    max_summary_words: int = key(
        100,
        "the longest summary to train with",
        at_least=1,
    )
    on_too_long: Literal["truncate", "skip", "error"] = key(
        "truncate",
        "what to do with a longer document or summary: cut it off (counted and reported), "
        "skip it (in training data only; counted and reported), or stop with an error",
        common=True,
    )
    on_empty: Literal["error", "skip"] = key(
        "error",
        "what to do with a document or summary without a word: stop with an error, or skip it"
        " (counted and reported)",
    )

    def check(self) -> None:
        if self.dataset == "scitldr" and not self.folder:
            raise UserError(
                "data.dataset scitldr needs data.folder, where its train.jsonl.gz, dev.jsonl.gz "
                "and test.jsonl.gz lie (github.com/allenai/scitldr, the abstract-only files)."
            )
        if self.folder and self.dataset != "scitldr":
            raise UserError(
                "data.folder goes with data.dataset scitldr only. "
                f"Received: data.folder={self.folder}, data.dataset={self.dataset}."
            )
        if self.dataset and self.train:
            raise UserError(
                f"data.dataset {self.dataset} and a data.train of your own do not go together."
            )


@dataclass(frozen=True)
class TokenizerConfig(Section):
    """How text becomes words."""

    section = "tokenizer"

    vocabulary_size: int = key(
        20000,
        "how many different words are known at most, the special ones included",
        at_least=5,
        common=True,
    )
    lowercase: bool = key(
        True,
        "make the text lower case first",
    )
    min_count: int = key(
        1,
        "words that occur less often are unknown",
        at_least=1,
    )
    extra_words: int = key(
        100,
        "how many unknown words of one document can be told apart and copied",
        at_least=1,
    )


@dataclass(frozen=True)
class ModelConfig(Section):
    """The encoder of documents, and the attention of the decoder that writes summaries.

    `architecture` names what a paper switches on; each switch may be set beside it."""

    section = "model"

    architecture: Literal[
        "see2017", "nallapati2016-temporal", "nallapati2016-hierarchical", "paulus2017"
    ] = key(
        "see2017",
        "see2017 (flat encoder, pointer, coverage), nallapati2016-temporal (flat, temporal "
        "attention, pointer), nallapati2016-hierarchical (hierarchical encoder and attention,"
        " pointer), or paulus2017 (flat, temporal and intra-decoder attention, pointer; "
        "trained by maximum likelihood)",
        common=True,
    )
    encoder: Literal["flat", "hierarchical", "transformer"] = key(
        "flat",
        "flat reads all words in one sequence, with a bidirectional GRU; hierarchical reads "
        "each sentence, then the sentences, and attends to both; transformer reads all words",
    )
    attention: bool = key(
        True,
        "attend to the document; without, the decoder reads the encoder's last state at each "
        "step, for comparison (switch pointer, coverage and temporal off too)",
    )
    coverage: bool = key(
        True,
        "attend with coverage",
    )
    temporal: bool = key(
        False,
        "attend with temporal attention; not together with coverage",
    )
    intra_decoder: bool = key(
        False,
        "let the decoder attend to its own earlier states too",
    )
    pointer: bool = key(
        True,
        "copy words of the document, unknown ones too",
    )
    coverage_weight: float = key(
        1.0,
        "factor of the coverage loss",
        at_least=0,
        applies_to={"coverage": (True,)},
    )
    coverage_start: int = key(
        0,
        "training steps without the coverage loss",
        at_least=0,
        applies_to={"coverage": (True,)},
    )
    embedding_size: int = key(
        128,
        "width of the word embeddings, of the encoder transformer too",
        at_least=1,
    )
    units: int = key(
        256,
        "units of the encoder (of both directions together) and of the decoder",
        common=True,
        at_least=1,
    )
    attention_units: int | None = key(
        None,
        "units of the attention; null for as many as `units`",
        at_least=1,
    )
    dropout: float = key(
        0.0,
        "rate of the dropout on embeddings and on the vector that words are chosen by",
        at_least=0,
        below=1,
        common=True,
    )
    layers: int = key(
        2,
        "blocks of the encoder transformer",
        applies_to={"encoder": ("transformer",)},
        at_least=1,
    )
    heads: int = key(
        4,
        "their attention heads",
        applies_to={"encoder": ("transformer",)},
        at_least=1,
    )

    def check(self) -> None:
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
                "model.coverage and model.temporal to false too. Received: "
                f"pointer={self.pointer}, coverage={self.coverage}, temporal={self.temporal}."
            )
        if self.encoder == "transformer" and self.embedding_size % self.heads:
            raise UserError(
                f"model.embedding_size must be a multiple of model.heads ({self.heads}). "
                f"Received: {self.embedding_size}."
            )


@dataclass(frozen=True)
class TrainingConfig(training.TrainingConfig):
    """How a summariser is trained."""

    batch_size: int = 16

    def check(self) -> None:
        super().check()
        self.refuse_unused(
            "label_smoothing",
            "has no meaning where words are generated and copied",
        )


@dataclass(frozen=True, kw_only=True)
class DecodingConfig(SearchConfig):
    """How a summary is searched for; its lengths are counted without the end."""

    beam_size: int = 4
    max_length_ratio: float | None = None
    batch_size: int = 16


def _switches(encoder: str = "flat", **on: bool) -> dict[str, Any]:
    """Return the settings of an architecture: which of its parts are on."""
    switches = {"coverage": False, "temporal": False, "intra_decoder": False, "pointer": True}
    return {
        "model.encoder": encoder,
        **{f"model.{name}": value for name, value in {**switches, **on}.items()},
    }


ARCHITECTURES = {
    "see2017": _switches(coverage=True),
    "nallapati2016-temporal": _switches(temporal=True),
    "nallapati2016-hierarchical": _switches("hierarchical"),
    "paulus2017": _switches(temporal=True, intra_decoder=True),
}
"""What an architecture changes in the defaults."""


@dataclass(frozen=True)
class SummarizationConfig(Config):
    """All of it; `SummarizationConfig()` is See et al.'s model for a corpus of one's own."""

    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    distribute: DistributeConfig = field(default_factory=DistributeConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)

    defaults: ClassVar[tuple[Defaults, ...]] = (
        *(Defaults({"model.architecture": name}, then) for name, then in ARCHITECTURES.items()),
        Defaults(
            {"data.dataset": "reports"},
            {
                "tokenizer.vocabulary_size": 60,
                "tokenizer.extra_words": 40,
                "model.embedding_size": 32,
                "model.units": 64,
                "training.learning_rate": 3e-3,
                "training.epochs": 12,
                "decoding.max_length": 30,
                "decoding.beam_size": 3,
            },
        ),
        Defaults(
            {"data.dataset": "scitldr"},
            {
                "tokenizer.vocabulary_size": 8000,
                "tokenizer.min_count": 2,
                "data.max_words": 300,
                "data.max_summary_words": 60,
                "decoding.max_length": 50,
                "decoding.no_repeat_ngram": 3,
            },
        ),
    )
