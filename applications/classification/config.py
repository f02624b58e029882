"""The settings of classification."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ..errors import UserError, check_range
from ..schema import training, vectors
from ..schema.backbone import (
    backbone_key,
    check_named,
    fine_tune_key,
    refuse_beside_backbone,
)
from ..schema.distribute import DistributeConfig
from ..schema.files import check_encoding
from ..schema.keys import GIVEN, SPLITS, Config, DataSection, Defaults, Section, key

PAIRS = ("cross", "inner")
RECURRENT = ("pooling", "mean", "han", "cross", "inner")
STACKS = ("self-attention", "transformer")
OWN_WORDS = (*RECURRENT, *STACKS)
TOKENISED = ("trec", "sentence_polarity", "subjectivity", "movie_reviews")
TREC = {"train": "TREC.train", "test": "TREC.test"}
SICK = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
KNOWN_SPLITS = {"opinions": SPLITS, "trec": tuple(TREC), "sick": tuple(SICK)}
"""The splits of known data sets; one in a single piece has `train`."""
DATASETS = Literal["opinions", "trec", "sentence_polarity", "subjectivity", "movie_reviews", "sick"]


def _refuse(*faults: tuple[Any, str]) -> None:
    """Raise an error with the message of the first fault that is there."""
    for is_there, message in faults:
        if is_there:
            raise UserError(message)


@dataclass(frozen=True)
class DataConfig(DataSection):
    """Where the texts and their labels come from: a known data set, or files with named columns."""

    paths = ("folder", *SPLITS)
    needed = {"train": "--data.train F.csv (or .tsv, .jsonl), or --data.dataset opinions"}

    dataset: DATASETS | None = key(
        None,
        "a known data set: opinions (made by this package), or trec, sentence_polarity, "
        "subjectivity, movie_reviews or sick, whose files lie in `folder`",
        common=True,
    )
    folder: str | None = key(
        None,
        "where the files of the known data set lie",
        common=True,
    )
    train: str | None = key(
        None,
        ".csv or .tsv with a header, or .jsonl with an object a line (plain or .gz)",
        common=True,
    )
    dev: str | None = key(
        None,
        "the same of the development set, which training is judged by; null to set "
        "`dev_fraction` of the training data apart",
        common=True,
    )
    test: str | None = key(
        None,
        "the same of the test set, which `evaluate` uses",
    )
    text_column: str = key(
        "text",
        "the column with the text",
        common=True,
    )
    second_column: str | None = key(
        None,
        "the column with the second text of a pair; null for single texts",
        common=True,
    )
    label_column: str = key(
        "label",
        "the column with the label",
        common=True,
    )
    labels: Literal["one", "many", "number"] = key(
        "one",
        "what a text has: one label, many labels (any number of them), or a number",
        common=True,
    )
    label_separator: str = key(
        ";",
        "what stands between the labels of a text in CSV and TSV (many labels)",
    )
    encoding: str = key(
        "utf-8",
        "of the files, like utf-8, latin-1 or cp1252",
    )
    dev_fraction: float = key(
        0.1,
        "the part of the training data that becomes the development set where there is none; "
        "drawn with `split_seed`, from each label alike",
        above=0,
        below=1,
    )
    folds: int | None = key(
        None,
        "cut a set without a test set into so many parts, drawn with `split_seed`, from each "
        "label alike, and test on one of them; null for no cross-validation",
        at_least=2,
    )
    fold: int = key(
        0,
        "which part is the test set, counted from 0",
        at_least=0,
    )
    split_seed: int = key(
        1,
        "of the draws of folds and development set",
        at_least=0,
    )
    max_length: int = key(
        400,
        "the longest text, in tokens, each text of a pair by itself",
        at_least=1,
        common=True,
    )
    on_too_long: Literal["error", "skip", "truncate"] = key(
        "error",
        "what to do with a longer one: stop with an error, or skip or truncate it (counted "
        "and reported). `predict` and exported models truncate, as they have to answer",
        common=True,
    )
    on_empty: Literal["error", "skip"] = key(
        "error",
        "what to do with an empty text: stop with an error, or skip it (counted and reported)",
    )
    on_unknown_label: Literal["error", "skip"] = key(
        "error",
        "what to do, on development and test sets, with a label that the training data do not"
        " have: stop with an error, or skip the text (counted and reported)",
    )
    min_examples: int = key(
        2,
        "how many training texts a label must have",
        at_least=1,
    )
    on_rare_label: Literal["error", "skip"] = key(
        "error",
        "what to do with texts of rarer labels: stop with an error, or skip them (counted and"
        " reported)",
    )

    def source_of(self, split: str) -> str | None:
        """Return the name of the data that a split is read from, None where it is not read."""
        if self.dataset:
            return self.dataset if split in KNOWN_SPLITS.get(self.dataset, ("train",)) else None
        return getattr(self, split)

    def has_split(self, split: str) -> bool:
        """Return whether the section names, or can draw, data for `split`."""
        is_drawn = split == "dev" or split == "test" and self.folds
        return bool(self.source_of(split) or self.source_of("train") and is_drawn)

    def check(self) -> None:
        dataset = self.dataset
        file = next((f"data.{each}" for each in SPLITS if getattr(self, each)), None)
        _refuse(
            (not self.label_separator, "data.label_separator must not be empty."),
            (dataset and file, f"data.dataset {dataset} and {file} do not go together: give one."),
            (
                dataset == "opinions" and self.folder,
                "data.folder does not go with data.dataset opinions, which is made. "
                f"Received: {self.folder}.",
            ),
            (
                self.folder and not dataset,
                "data.folder goes with data.dataset only; data.train is a path. "
                f"Received: {self.folder}.",
            ),
            (
                dataset not in (None, "opinions") and not self.folder,
                f"data.dataset {dataset} needs data.folder, where its files lie: they are not "
                "fetched.",
            ),
            (self.folds and self.test, "give data.folds or data.test, not both."),
        )
        check_encoding(self.encoding)


@dataclass(frozen=True)
class TokenizerConfig(Section):
    """How texts become tokens, and for architecture han sentences."""

    section = "tokenizer"

    kind: Literal["words", "sentencepiece"] = key(
        "words",
        "words, or sentencepiece (pieces of words, trained on the training text)",
        common=True,
    )
    vocabulary_size: int = key(
        20000,
        "how many different tokens at most, the special ones included",
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
        applies_to={"kind": ("words",)},
    )
    split: Literal["unicode", "whitespace"] = key(
        "unicode",
        "cut words at spaces and punctuation (unicode), or at spaces alone, for text that is "
        "tokenised already",
        applies_to={"kind": ("words",)},
    )
    model_type: Literal["unigram", "bpe"] = key(
        "unigram",
        "how SentencePiece chooses its pieces",
        applies_to={"kind": ("sentencepiece",)},
    )
    sentences: Literal["lines", "punctuation"] = key(
        "punctuation",
        "where sentences end (han only): at line feeds, or after . ! ? and a space too",
    )
    max_sentence_length: int = key(
        40,
        "a longer sentence goes on as another one (han only)",
        at_least=1,
    )


@dataclass(frozen=True)
class VectorsConfig(vectors.VectorsConfig):
    """The vectors that words start from (not backbone)."""

    channels: Literal["tuned", "static", "both"] = key(
        "tuned",
        "what training does to the vectors: tuned changes them; static leaves them as they "
        "are; both joins a tuned and a static one for each word",
        applies_to={"file": GIVEN},
    )
    length: float | None = key(
        None,
        "what the file's vectors are scaled to, each of them; null leaves them as they are. "
        "Random ones are about 1.5 long, and architecture cross wants no more than 2 or so",
        above=0,
        applies_to={"file": GIVEN},
    )


@dataclass(frozen=True)
class ModelConfig(Section):
    """The model."""

    section = "model"

    architecture: Literal[
        "pooling", "self-attention", "transformer", "han", "mean", "cross", "inner", "backbone"
    ] = key(
        "pooling",
        "of single texts: pooling (bidirectional GRU, attention pooling), self-attention "
        "(multi-head attention layers, no recurrence), transformer, han (hierarchical: words,"
        " then sentences) or mean (as pooling, without attention, to compare with); of pairs:"
        " cross (each text attends to the other) or inner (each text is read under a question"
        " from the other); of both: backbone (a pretrained model of keras_hub, its states "
        "under attention pooling)",
        common=True,
    )
    embedding_size: int = key(
        128,
        "width of the word embeddings; in self-attention and transformer of every layer",
        applies_to={"architecture": OWN_WORDS},
        at_least=1,
    )
    units: int = key(
        128,
        "width of each direction of the recurrent layers, or of each convolution, and of the "
        "layer before the answer of a pair",
        common=True,
        at_least=1,
    )
    encoder: Literal["gru", "convolution", "none"] | None = key(
        None,
        "what reads the words: gru (bidirectional), convolution (over 3, 4 and 5 words) or "
        "none, where the word embeddings themselves are pooled or compared",
        applies_to={"architecture": RECURRENT},
        null=dict.fromkeys(RECURRENT, "gru"),
    )
    attention_units: int | None = key(
        None,
        "width of the hidden layer of attention pooling; null for units",
        applies_to={"architecture": ("pooling", "han", *STACKS, "cross", "backbone")},
        at_least=1,
    )
    layers: int | None = key(
        None,
        "how many layers",
        applies_to={"architecture": STACKS},
        null=dict.fromkeys(STACKS, 2),
        at_least=1,
    )
    heads: int | None = key(
        None,
        "attention heads of each layer",
        applies_to={"architecture": STACKS},
        null=dict.fromkeys(STACKS, 4),
        at_least=1,
    )
    positions: Literal["relative", "rotary", "alibi"] | None = key(
        None,
        "how positions enter",
        applies_to={"architecture": STACKS},
        null=dict.fromkeys(STACKS, "relative"),
    )
    feed_forward: int | None = key(
        None,
        "width of the feed-forward layer",
        applies_to={"architecture": ("transformer",)},
        at_least=1,
    )
    inner_attention: Literal["word", "context"] | None = key(
        None,
        "how a word is weighed before it is read: by itself (word) or by what came before it,"
        " too (context)",
        applies_to={"architecture": ("inner",)},
        null={"inner": "word"},
    )
    backbone: str | None = backbone_key()
    fine_tune: bool | None = fine_tune_key()
    max_pooling: bool = key(
        False,
        "join the maximum of each feature to what attention or mean make of the text",
    )
    dropout: float = key(
        0.5,
        "rate of dropout before the answer",
        common=True,
        at_least=0,
        below=1,
    )
    embedding_dropout: float | None = key(
        None,
        "rate of dropout on the word embeddings; null for dropout",
        applies_to={"architecture": OWN_WORDS},
        at_least=0,
        below=1,
    )
    layer_dropout: float | None = key(
        None,
        "rate of dropout in the attention layers",
        applies_to={"architecture": STACKS},
        null=dict.fromkeys(STACKS, 0.1),
        at_least=0,
        below=1,
    )
    word_dropout: float = key(
        0.0,
        "the part of the words that are made unknown in training, other ones each time",
        applies_to={"architecture": OWN_WORDS},
        at_least=0,
        below=1,
    )
    exact_match: bool | None = key(
        None,
        "a number beside each word's vector says whether the other text has the very word",
        applies_to={"architecture": PAIRS},
        null=dict.fromkeys(PAIRS, False),
    )

    def check(self) -> None:
        check_named(self)
        if self.architecture in STACKS and self.embedding_size % self.heads:
            raise UserError(
                "model.heads must divide model.embedding_size. "
                f"Received: {self.heads} and {self.embedding_size}."
            )


@dataclass(frozen=True)
class TrainingConfig(training.TrainingConfig):
    """How a classifier is trained."""

    epochs: int = 20
    early_stopping: Literal["score", "loss", "none"] = "score"
    class_weights: Literal["none", "balanced"] = key(
        "none",
        "balanced weighs each text by how rare its label is, so that all labels count alike; "
        "none counts all texts alike (one label only)",
    )
    threshold: float = key(
        0.5,
        "the probability from which a text has a label (many labels only)",
        at_least=0,
        at_most=1,
    )
    tune_thresholds: bool = key(
        False,
        "after each epoch, choose for each label the threshold with the highest F1 on the "
        "development set; the run keeps those of the best weights (many labels only)",
    )

    def check_labels(self, kind: str) -> None:
        """Refuse what does not go with labels of a kind."""
        if kind != "many":
            why = f"goes with many labels only (data.labels many), and not with {kind}"
            self.refuse_unused("threshold", why)
            self.refuse_unused("tune_thresholds", why)


@dataclass(frozen=True)
class ClassificationConfig(Config):
    """All of it; `ClassificationConfig()` suits some thousand sentences of one's own."""

    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    vectors: VectorsConfig = field(default_factory=VectorsConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    distribute: DistributeConfig = field(default_factory=DistributeConfig)

    # A backbone comes with its own tokenizer and sizes.
    defaults: ClassVar[tuple[Defaults, ...]] = (
        Defaults(
            {"data.dataset": "opinions"},
            {
                "data.label_column": "sentiment",
                "training.batch_size": 32,
                "training.learning_rate": 5e-3,
                "training.epochs": 8,
            },
        ),
        Defaults(
            {"data.dataset": "opinions", "model.architecture": OWN_WORDS},
            {"model.embedding_size": 32, "model.units": 32, "model.dropout": 0.1},
        ),
        Defaults({"data.dataset": "trec"}, {"data.label_column": "coarse"}),
        Defaults(
            {"data.dataset": ("sentence_polarity", "subjectivity", "movie_reviews")},
            {"data.folds": 10},
        ),
        Defaults({"data.dataset": "movie_reviews"}, {"data.max_length": 3500}),
        Defaults(
            {"data.dataset": TOKENISED, "model.architecture": OWN_WORDS},
            {"tokenizer.split": "whitespace"},
        ),
        Defaults(
            {"data.dataset": "movie_reviews", "model.architecture": OWN_WORDS},
            {"tokenizer.sentences": "lines"},
        ),
        Defaults(
            {"data.dataset": "sick"},
            {
                "data.text_column": "sentence_A",
                "data.second_column": "sentence_B",
                "data.label_column": "entailment_judgment",
            },
        ),
        Defaults(
            {"data.dataset": "sick", "model.architecture": OWN_WORDS},
            {"model.architecture": "cross"},
        ),
    )

    def check(self) -> None:
        """Refuse values that do not go together.

        Not done on construction: what a known data set brings comes in after the first reading.
        """
        data, architecture = self.data, self.model.architecture
        check_range("data.fold", data.fold, below=data.folds or 1)
        self.training.check_labels(data.labels)
        _refuse(
            (
                self.vectors.extra_words and self.tokenizer.kind != "words",
                "vectors.extra_words goes with tokenizer.kind words only. "
                f"Received: {self.vectors.extra_words} with {self.tokenizer.kind}.",
            ),
            (
                self.training.class_weights != "none" and data.labels != "one",
                "training.class_weights balanced goes with data.labels one only. "
                f"Received: data.labels {data.labels}.",
            ),
            (
                self.training.label_smoothing and data.labels == "number",
                "training.label_smoothing does not go with data.labels number. "
                f"Received: {self.training.label_smoothing}.",
            ),
            (
                data.second_column and architecture not in (*PAIRS, "backbone"),
                f"data.second_column makes pairs, which model.architecture {architecture} cannot "
                f"read: choose {', '.join(PAIRS)} or backbone.",
            ),
            (
                architecture in PAIRS and not data.second_column,
                f"model.architecture {architecture} reads pairs: name the column of the second "
                "text in data.second_column.",
            ),
        )
        if architecture not in ("han", "backbone"):
            # A known set brings where its sentences end for any architecture.
            names = ["max_sentence_length", *([] if data.dataset else ["sentences"])]
            for name in names:
                self.tokenizer.refuse_unused(name, "goes with model.architecture han only")
        refuse_beside_backbone(self)
