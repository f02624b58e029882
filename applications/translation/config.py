"""The configuration of the translation application."""

from dataclasses import dataclass, field
from typing import Literal

from keras_attention.applications.common import training_config
from keras_attention.applications.common.checks import check_range
from keras_attention.applications.common.distribute_config import DistributeConfig
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.translation.model_config import ModelConfig

__all__ = [
    "PRESETS",
    "SPLITS",
    "DataConfig",
    "DecodingConfig",
    "ModelConfig",
    "TokenizerConfig",
    "TrainingConfig",
    "TranslationConfig",
]

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class DataConfig:
    """Where the sentences come from: a known data set, two parallel files, or a TSV.

    Args:
        dataset: a known data set: dates (made by this package) or multi30k.
        folder: where the files of multi30k lie; null to fetch them into the cache.
        source_language: code of the language translated from, like en; chooses the side of
            multi30k.
        target_language: code of the language translated into.
        train_source: file of source sentences, one a line (plain or .gz).
        train_target: file of their translations, parallel by line.
        dev_source: the same of the development set, which training is judged by.
        dev_target: the same of the development set.
        test_source: the same of the test set, which `evaluate` uses.
        test_target: the same of the test set.
        train_tsv: instead of two files, one with source, tab, target on each line.
        dev_tsv: the same of the development set.
        test_tsv: the same of the test set.
        max_length: the longest sentence to train with and to be judged by on the development set,
            in tokens; `evaluate` measures sentences of any length.
        on_too_long: what to do with a longer one: stop with an error, or skip or truncate it
            (counted and reported).
        on_empty: what to do with an empty line: stop with an error, or skip it (counted and
            reported).
    """

    dataset: Literal["dates", "multi30k"] | None = None
    folder: str | None = None
    source_language: str = "en"
    target_language: str = "de"
    train_source: str | None = None
    train_target: str | None = None
    dev_source: str | None = None
    dev_target: str | None = None
    test_source: str | None = None
    test_target: str | None = None
    train_tsv: str | None = None
    dev_tsv: str | None = None
    test_tsv: str | None = None
    max_length: int = 100
    on_too_long: Literal["error", "skip", "truncate"] = "error"
    on_empty: Literal["error", "skip"] = "error"

    def __post_init__(self):
        check_range("data.max_length", self.max_length, at_least=1)
        if self.folder and self.dataset != "multi30k":
            raise UserError("data.folder goes with data.dataset multi30k only.")
        for split in SPLITS:
            self._check_split(split)

    def _check_split(self, split):
        source, target = getattr(self, f"{split}_source"), getattr(self, f"{split}_target")
        tsv = getattr(self, f"{split}_tsv")
        if (source is None) != (target is None):
            given, missing = ("source", "target") if source else ("target", "source")
            raise UserError(
                f"data.{split}_{given} needs data.{split}_{missing}: give both files, or "
                f"data.{split}_tsv."
            )
        if source and tsv:
            raise UserError(
                f"give data.{split}_source and data.{split}_target, or data.{split}_tsv, not both."
            )
        if self.dataset and split == "train" and (source or tsv):
            raise UserError(
                f"data.dataset {self.dataset} and files of your own do not go together: give one."
            )


@dataclass(frozen=True)
class TokenizerConfig:
    """How sentences become tokens.

    Args:
        kind: sentencepiece (pieces of words, trained on the training text) or words.
        vocabulary_size: how many different tokens at most, the special ones included.
        shared: one vocabulary for both sides, else one each.
        lowercase: make the text lower case first.
        min_count: words that occur less often are unknown (words only).
        model_type: how SentencePiece chooses its pieces.
        replace_unknown: put the source word with the highest attention weight where the model
            writes an unknown word (words only).
    """

    kind: Literal["sentencepiece", "words"] = "sentencepiece"
    vocabulary_size: int = 8000
    shared: bool = False
    lowercase: bool = False
    min_count: int = 1
    model_type: Literal["unigram", "bpe"] = "unigram"
    replace_unknown: bool = False

    def __post_init__(self):
        check_range("tokenizer.vocabulary_size", self.vocabulary_size, at_least=5)
        check_range("tokenizer.min_count", self.min_count, at_least=1)
        if self.kind == "sentencepiece":
            if self.min_count != 1:
                raise UserError("tokenizer.min_count goes with tokenizer.kind words only.")
            if self.replace_unknown:
                raise UserError("tokenizer.replace_unknown goes with tokenizer.kind words only.")


@dataclass(frozen=True)
class TrainingConfig(training_config.TrainingConfig):
    __doc__ = (
        training_config.TrainingConfig.__doc__.rstrip()
        + """
        batch_tokens: make batches of so many tokens instead of batch_size sentences, padding
            included, counted on the longer side; batches of short sentences then hold more.
    """
    )

    label_smoothing: float = 0.1
    batch_tokens: int | None = None
    early_stopping: Literal["bleu", "loss", "none"] = "bleu"

    def __post_init__(self):
        super().__post_init__()
        check_range("training.batch_tokens", self.batch_tokens, at_least=1)

    @property
    def monitor(self) -> tuple[str, str]:
        return ("val_bleu", "max") if self.early_stopping == "bleu" else ("val_loss", "min")


@dataclass(frozen=True)
class DecodingConfig:
    """How a translation is searched for.

    Args:
        beam_size: hypotheses kept at each step; 1 is greedy search.
        length_penalty: alpha of GNMT's length penalty; 0 for none.
        coverage_penalty: beta of GNMT's coverage penalty; 0 for none.
        max_length: the longest translation, in tokens.
        max_length_ratio: the longest translation as a multiple of the source's tokens (with ten
            tokens to spare), where that is less.
        min_length: the shortest translation, in tokens.
        no_repeat_ngram: never write the same n-gram of this length twice; 0 allows it.
        batch_size: sentences searched for together.
        attention_layer: the decoder layer, from 0, whose attention alignments and pictures show
            (model.architecture transformer only; null for the last).
        attention_head: its head, from 0 (transformer only; null for the mean of all).
        precision: of the weights and products in all verbs but train; bfloat16 is faster on
            processors that multiply it themselves, and may write other words where two are about
            equally likely (transformer only).
    """

    beam_size: int = 5
    length_penalty: float = 1.0
    coverage_penalty: float = 0.0
    max_length: int = 100
    max_length_ratio: float = 3.0
    min_length: int = 0
    no_repeat_ngram: int = 0
    batch_size: int = 64
    attention_layer: int | None = None
    attention_head: int | None = None
    precision: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self):
        for name in ("attention_layer", "attention_head"):
            check_range(f"decoding.{name}", getattr(self, name), at_least=0)
        for name in ("beam_size", "max_length", "batch_size"):
            check_range(f"decoding.{name}", getattr(self, name), at_least=1)
        for name in ("length_penalty", "coverage_penalty", "min_length", "no_repeat_ngram"):
            check_range(f"decoding.{name}", getattr(self, name), at_least=0)
        check_range("decoding.max_length_ratio", self.max_length_ratio, above=0)
        if self.min_length > self.max_length:
            raise UserError(
                "decoding.min_length must be at most decoding.max_length "
                f"({self.max_length}). Received: {self.min_length}."
            )


@dataclass(frozen=True)
class TranslationConfig:
    """All of it; `TranslationConfig()` suits a small corpus of one's own.

    Args:
        data: where the sentences come from.
        tokenizer: how they become tokens.
        model: the model.
        training: how it is trained.
        distribute: on which devices.
        decoding: how a translation is searched for.
    """

    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    distribute: DistributeConfig = field(default_factory=DistributeConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)

    def __post_init__(self):
        self._check_transformer()
        if self.model.architecture != "rnnencdec":
            return
        for name, asked in (
            ("decoding.coverage_penalty", self.decoding.coverage_penalty),
            ("tokenizer.replace_unknown", self.tokenizer.replace_unknown),
        ):
            if asked:
                raise UserError(
                    f"{name} needs attention, which model.architecture rnnencdec has not: train "
                    f"another. Received: {asked}."
                )

    def _check_transformer(self):
        if self.model.share_embeddings and not self.tokenizer.shared:
            raise UserError("model.share_embeddings needs tokenizer.shared: one vocabulary.")
        is_transformer = self.model.architecture == "transformer"
        for name, size in (("layer", self.model.layers), ("head", self.model.heads)):
            chosen = getattr(self.decoding, f"attention_{name}")
            if chosen is not None and not (is_transformer and chosen < size):
                has = f"the {name}s 0 to {size - 1}" if is_transformer else f"no {name}s to choose"
                raise UserError(
                    f"decoding.attention_{name}: model.architecture {self.model.architecture} has "
                    f"{has}. Received: {chosen}."
                )
        if self.decoding.precision != "float32" and not is_transformer:
            raise UserError(
                f"decoding.precision {self.decoding.precision} goes with model.architecture "
                f"transformer only. Received: {self.model.architecture}."
            )


# What a known data set changes in the defaults; a configuration file or an option goes first.
PRESETS = {
    "dates": [
        "--data.target_language=iso",
        "--tokenizer.vocabulary_size=200",
        "--model.embedding_size=64",
        "--model.units=96",
        "--model.dropout=0.0",
        "--training.learning_rate=3e-3",
        "--training.label_smoothing=0.0",
        "--training.early_stopping=loss",
        "--training.epochs=6",
        "--training.schedule=cosine",
        "--decoding.beam_size=3",
    ],
    "dates with model.architecture transformer": [
        "--data.target_language=iso",
        "--tokenizer.vocabulary_size=200",
        "--model.embedding_size=64",
        "--model.feed_forward_size=128",
        "--model.layers=2",
        "--model.dropout=0.1",
        "--training.learning_rate=2e-3",
        "--training.beta_2=0.98",
        "--training.warmup_steps=300",
        "--training.label_smoothing=0.0",
        "--training.early_stopping=loss",
        "--training.epochs=6",
        "--training.schedule=cosine",
        "--decoding.beam_size=3",
    ],
}
