"""The settings of tagging."""

from dataclasses import dataclass, field
from typing import Literal

from ..schema import training
from ..schema.backbone import (
    backbone_key,
    check_named,
    fine_tune_key,
    refuse_beside_backbone,
)
from ..schema.distribute import DistributeConfig
from ..schema.files import check_encoding
from ..schema.keys import SPLITS, Config, DataSection, Section, key
from ..schema.vectors import VectorsConfig

RECURRENT = ("lstm", "gru")
STACKS = ("self-attention", "transformer")
OWN_WORDS = (*RECURRENT, *STACKS)


@dataclass(frozen=True)
class DataConfig(DataSection):
    """Files of sentences whose words have tags: CoNLL columns, JSON lines, CSV or TSV."""

    paths = SPLITS
    needed = {"train": "--data.train F.conll (or .jsonl, .csv, .tsv)"}

    train: str | None = key(
        None,
        "sentences and tags: .jsonl (an object with words and tags a line), .csv or .tsv with a "
        "header (words and tags of a sentence with spaces between them), or any other name for "
        "CoNLL columns (a word a line, an empty line after a sentence); plain or .gz",
        common=True,
    )
    dev: str | None = key(
        None,
        "the same of the development set, which training is judged by; null to set `dev_fraction` "
        "of the training data apart",
        common=True,
    )
    test: str | None = key(None, "the same of the test set, which `evaluate` uses", common=True)
    word_column: str | None = key(
        None,
        "the column of the words: of CoNLL files its number, from 0 (-1 is the last); null for the "
        "first, or words",
        common=True,
    )
    tag_column: str | None = key(
        None, "the column of the tags; null for the last, or tags", common=True
    )
    predicate_column: str | None = key(
        None,
        "for roles, the column that marks the predicate: of CoNLL files with anything but - _ O or "
        "0; of others the number of its word, from 0",
    )
    encoding: str = key("utf-8", "of the files, like utf-8, latin-1 or cp1252")
    dev_fraction: float = key(
        0.1,
        "the part of the training data that becomes the development set where there is none: the "
        "last sentences",
        above=0,
        below=1,
    )
    max_length: int = key(
        256,
        "the most words that are read at once; a longer sentence is read in windows that overlap",
        at_least=2,
    )
    scheme: Literal["own", "BIO", "BIOES"] = key(
        "own",
        "the scheme to learn spans in: that of the training data, or another one; results and "
        "figures do not depend on it",
    )

    def check(self) -> None:
        check_encoding(self.encoding)

    def has_split(self, split: str) -> bool:
        return super().has_split(split) or split == "dev" and self.train is not None


@dataclass(frozen=True)
class TokenizerConfig(Section):
    """Which words have an id of their own."""

    section = "tokenizer"

    vocabulary_size: int = key(30000, "how many different words at most", at_least=5, common=True)
    lowercase: bool = key(True, "make words lower case first; their letters keep their case")
    min_count: int = key(1, "words that occur less often are unknown", at_least=1)


@dataclass(frozen=True)
class ModelConfig(Section):
    """The model."""

    section = "model"

    architecture: Literal["lstm", "gru", "self-attention", "transformer", "backbone"] = key(
        "lstm",
        "what reads the sentence: lstm or gru (bidirectional), self-attention (a feed-forward "
        "network, then attention in each layer: Tan et al. 2018), transformer, or backbone (a "
        "pretrained model of keras_hub, its states under a bidirectional LSTM)",
        common=True,
    )
    embedding_size: int = key(
        100,
        "width of the word embeddings",
        applies_to={"architecture": OWN_WORDS},
        at_least=1,
    )
    units: int = key(
        100,
        "width of each direction of a recurrent layer; attention layers have twice that",
        at_least=1,
        common=True,
    )
    layers: int = key(1, "how many layers", at_least=1)
    heads: int | None = key(
        None,
        "attention heads of each layer",
        applies_to={"architecture": STACKS},
        null=dict.fromkeys(STACKS, 4),
        at_least=1,
    )
    backbone: str | None = backbone_key()
    fine_tune: bool | None = fine_tune_key()
    letters: Literal["cnn", "gru", "none"] = key(
        "cnn",
        "what reads the letters of a word: cnn, gru or none",
        applies_to={"architecture": OWN_WORDS},
        common=True,
    )
    letter_units: int = key(
        32,
        "width of what is read of the letters",
        applies_to={"architecture": OWN_WORDS},
        at_least=1,
    )
    features: bool = key(
        True,
        "give case and the first and last letters of a word embeddings of their own",
        applies_to={"architecture": OWN_WORDS},
    )
    dropout: float = key(
        0.4, "rate of dropout on words and between layers", common=True, at_least=0, below=1
    )
    word_dropout: float = key(
        0.05,
        "the part of the words that are made unknown in training, other ones each time",
        applies_to={"architecture": OWN_WORDS},
        at_least=0,
        below=1,
    )

    def check(self) -> None:
        check_named(self)


@dataclass(frozen=True)
class TrainingConfig(training.TrainingConfig):
    """How a tagger is trained."""

    epochs: int = 30
    batch_size: int = 32
    learning_rate: float = 3e-3
    early_stopping: Literal["score", "loss", "none"] = "score"


@dataclass(frozen=True)
class TaggingConfig(Config):
    """All of it; `TaggingConfig()` suits some thousand sentences of one's own."""

    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    vectors: VectorsConfig = field(default_factory=VectorsConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    distribute: DistributeConfig = field(default_factory=DistributeConfig)

    def check(self) -> None:
        """Refuse values that do not go together."""
        refuse_beside_backbone(self)
        why = "does not apply to tagging, whose loss is that of whole sequences"
        self.training.refuse_unused("label_smoothing", why)
