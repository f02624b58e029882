"""The configuration of the summarisation application."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from keras_attention.decoding import SearchOptions

from ..common.errors import UserError, check_ranges, check_unused
from ..training import config as training_config
from ..training.devices import DistributeConfig

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class DataConfig:
    """Where the documents come from: a known data set, or files of JSON lines.

    Each line of a file is an object with `source`, a text or a list of sentences, and `target`, a
    summary or a list of several of the same document.

    Args:
        dataset: a known data set: reports (made by this package) or scitldr.
        folder: where the files of scitldr lie (train.jsonl.gz, dev.jsonl.gz, test.jsonl.gz).
        train_file: documents and summaries to train with (plain or .gz).
        dev_file: the same of the development set, which training is judged by.
        test_file: the same of the test set, which `evaluate` uses.
        max_sentences: the most sentences that are read of a document.
        max_words: the most words that are read of a document, whole sentences or not.
        max_summary_words: the longest summary to train with.
        on_too_long: what to do with a longer document or summary: cut it off (counted and
            reported), skip it (in training data only; counted and reported), or stop with an error.
        on_empty: what to do with a document or summary without a word: stop with an error, or skip
            it (counted and reported).
    """

    dataset: Literal["reports", "scitldr"] | None = None
    folder: str | None = None
    train_file: str | None = None
    dev_file: str | None = None
    test_file: str | None = None
    max_sentences: int = 100
    max_words: int = 400
    max_summary_words: int = 100
    on_too_long: Literal["truncate", "skip", "error"] = "truncate"
    on_empty: Literal["error", "skip"] = "error"

    paths: ClassVar[tuple[str, ...]] = ("folder", *(f"{split}_file" for split in SPLITS))

    def __post_init__(self):
        limits = ("max_sentences", "max_words", "max_summary_words")
        check_ranges("data", self, limits, at_least=1)
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
        if self.dataset and self.train_file:
            raise UserError(
                f"data.dataset {self.dataset} and a train_file of your own do not go together."
            )


@dataclass(frozen=True)
class TokenizerConfig:
    """How text becomes words.

    Args:
        vocabulary_size: how many different words are known at most, the special ones included.
        lowercase: make the text lower case first.
        min_count: words that occur less often are unknown.
        extra_words: how many unknown words of one document can be told apart and copied.
    """

    vocabulary_size: int = 20_000
    lowercase: bool = True
    min_count: int = 1
    extra_words: int = 100

    def __post_init__(self):
        check_ranges("tokenizer", self, ["vocabulary_size"], at_least=5)
        check_ranges("tokenizer", self, ["min_count", "extra_words"], at_least=1)


@dataclass(frozen=True)
class ModelConfig:
    """The encoder of documents, and the attention of the decoder that writes summaries.

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
        dropout: rate of the dropout on embeddings and on the vector that words are chosen by.
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
        sizes = ("embedding_size", "units", "attention_units", "layers", "heads")
        check_ranges("model", self, sizes, at_least=1)
        check_ranges("model", self, ["dropout"], at_least=0, below=1)
        check_ranges("model", self, ("coverage_weight", "coverage_start"), at_least=0)
        if self.units % 2:
            raise UserError(
                f"model.units must be even, half for each direction. Received: {self.units}."
            )
        if self.encoder != "transformer":
            why = "goes with model.encoder transformer only."
            check_unused("model", self, ("layers", "heads"), why)
        if not self.coverage:
            why = "goes with model.coverage only."
            check_unused("model", self, ("coverage_weight", "coverage_start"), why)
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
class TrainingConfig(training_config.TrainingConfig):
    __doc__ = training_config.TrainingConfig.__doc__

    batch_size: int = 16

    def __post_init__(self):
        super().__post_init__()
        why = "must be 0: a mixture of generated and copied words has no logits to smooth."
        check_unused("training", self, ["label_smoothing"], why)


@dataclass(frozen=True, kw_only=True)
class DecodingConfig(SearchOptions):
    """How a summary is searched for: `SearchOptions`, whose lengths are counted without the end."""

    beam_size: int = 4
    max_length_ratio: float | None = None
    batch_size: int = 16


@dataclass(frozen=True)
class SummarizationConfig:
    """All of it; `SummarizationConfig()` is See et al.'s model for a corpus of one's own."""

    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    distribute: DistributeConfig = DistributeConfig()
    decoding: DecodingConfig = DecodingConfig()


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

# What a known data set changes in the defaults; a configuration file or an option goes first.
PRESETS = {
    "reports": [
        *("--tokenizer.vocabulary_size=60", "--tokenizer.extra_words=40"),
        *("--model.embedding_size=32", "--model.units=64"),
        *("--training.learning_rate=3e-3", "--training.epochs=12"),
        *("--decoding.max_length=30", "--decoding.beam_size=3"),
    ],
    "scitldr": [
        *("--tokenizer.vocabulary_size=8000", "--tokenizer.min_count=2"),
        *("--data.max_words=300", "--data.max_summary_words=60"),
        *("--decoding.max_length=50", "--decoding.no_repeat_ngram=3"),
    ],
}
