"""The configuration of the summarisation application."""

from dataclasses import dataclass, field
from typing import Literal

from keras_attention.applications.common import training_config
from keras_attention.applications.common.checks import check_range
from keras_attention.applications.common.distribute_config import DistributeConfig
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.summarization.model_config import ARCHITECTURES, ModelConfig

__all__ = [
    "ARCHITECTURES",
    "PRESETS",
    "SPLITS",
    "DataConfig",
    "DecodingConfig",
    "ModelConfig",
    "SummarizationConfig",
    "TokenizerConfig",
    "TrainingConfig",
]

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

    def __post_init__(self):
        for name in ("max_sentences", "max_words", "max_summary_words"):
            check_range(f"data.{name}", getattr(self, name), at_least=1)
        if self.dataset == "scitldr" and not self.folder:
            raise UserError(
                "data.dataset scitldr needs data.folder, where its train.jsonl.gz, dev.jsonl.gz "
                "and test.jsonl.gz lie (github.com/allenai/scitldr, the abstract-only files)."
            )
        if self.folder and self.dataset != "scitldr":
            raise UserError("data.folder goes with data.dataset scitldr only.")
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
        check_range("tokenizer.vocabulary_size", self.vocabulary_size, at_least=5)
        check_range("tokenizer.min_count", self.min_count, at_least=1)
        check_range("tokenizer.extra_words", self.extra_words, at_least=1)


@dataclass(frozen=True)
class TrainingConfig(training_config.TrainingConfig):
    __doc__ = training_config.TrainingConfig.__doc__

    batch_size: int = 16

    def __post_init__(self):
        super().__post_init__()
        if self.label_smoothing:
            raise UserError(
                "training.label_smoothing must be 0: a mixture of generated and copied words has "
                f"no logits to smooth. Received: {self.label_smoothing}."
            )


@dataclass(frozen=True)
class DecodingConfig:
    """How a summary is searched for.

    Args:
        beam_size: hypotheses kept at each step; 1 is greedy search.
        length_penalty: alpha of GNMT's length penalty; 0 for none.
        max_length: the longest summary, in words.
        min_length: the shortest summary, in words.
        no_repeat_ngram: never write the same n-gram of this length twice (3 blocks trigrams);
            0 allows it.
        batch_size: documents searched for together.
    """

    beam_size: int = 4
    length_penalty: float = 1.0
    max_length: int = 100
    min_length: int = 0
    no_repeat_ngram: int = 0
    batch_size: int = 16

    def __post_init__(self):
        for name in ("beam_size", "max_length", "batch_size"):
            check_range(f"decoding.{name}", getattr(self, name), at_least=1)
        for name in ("length_penalty", "min_length", "no_repeat_ngram"):
            check_range(f"decoding.{name}", getattr(self, name), at_least=0)
        if self.min_length > self.max_length:
            raise UserError(
                "decoding.min_length must be at most decoding.max_length "
                f"({self.max_length}). Received: {self.min_length}."
            )


@dataclass(frozen=True)
class SummarizationConfig:
    """All of it; `SummarizationConfig()` is See et al.'s model for a corpus of one's own.

    Args:
        data: where the documents come from.
        tokenizer: how text becomes words.
        model: the model.
        training: how it is trained.
        distribute: on which devices.
        decoding: how a summary is searched for.
    """

    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    distribute: DistributeConfig = field(default_factory=DistributeConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)


# What a known data set changes in the defaults; a configuration file or an option goes first.
PRESETS = {
    "reports": [
        "--tokenizer.vocabulary_size=60",
        "--tokenizer.extra_words=40",
        "--model.embedding_size=32",
        "--model.units=64",
        "--training.learning_rate=3e-3",
        "--training.epochs=12",
        "--decoding.max_length=30",
        "--decoding.beam_size=3",
    ],
    "scitldr": [
        "--tokenizer.vocabulary_size=8000",
        "--tokenizer.min_count=2",
        "--data.max_words=300",
        "--data.max_summary_words=60",
        "--decoding.max_length=50",
        "--decoding.no_repeat_ngram=3",
    ],
}
