"""The configuration of the answer selection application."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from ..common.errors import UserError, check_range, check_ranges, check_unused
from ..training import config as training_config
from ..training.devices import DistributeConfig

SPLITS = ("train", "dev", "test")
ENCODERS = Literal["gru", "outer", "inner-word", "inner-context", "inner-gate", "compare-aggregate"]
READERS = get_args(ENCODERS)[:-1]
"""Those by which an `AnswerSelector` reads a candidate."""
OF_ALL = ("units", "embedding_size", "dropout", "word_match", "exact_match")
"""Options of `ModelConfig` that every network has."""
OF_READERS = ("bidirectional", "shared", "pooling")
"""Options of `ModelConfig` that only `READERS` use."""


@dataclass(frozen=True)
class DataConfig:
    """Where questions and their candidate answers come from: a known data set or files.

    Args:
        dataset: a known data set: facts (made by this package), wikiqa or trecqa.
        folder: where the files of wikiqa (WikiQA-train.tsv, WikiQA-dev.tsv, WikiQA-test.tsv) or
            trecqa (train.csv, dev.csv, test.csv where there is one) lie; plain or .gz.
        train: file of training questions; see the tutorial for its forms (WikiQA's TSV, TREC-QA's
            CSV, or question, tab, candidate, tab, label on each line), plain or .gz.
        dev: the same of the development set, which training is judged by.
        test: the same of the test set, which `evaluate` uses.
        max_length: words of a question or candidate that are read; longer ones are cut (counted
            and reported).
        on_empty: what to do with a question or candidate without words: stop with an error, or
            skip it (counted and reported).
    """

    paths: ClassVar[tuple[str, ...]] = ("folder", *SPLITS)

    dataset: Literal["facts", "wikiqa", "trecqa"] | None = None
    folder: str | None = None
    train: str | None = None
    dev: str | None = None
    test: str | None = None
    max_length: int = 40
    on_empty: Literal["error", "skip"] = "error"

    def __post_init__(self):
        check_range("data.max_length", self.max_length, at_least=1)
        if self.dataset and self.train:
            raise UserError(
                f"data.dataset {self.dataset} and data.train do not go together: give one."
            )
        if (self.dataset in ("wikiqa", "trecqa")) != (self.folder is not None):
            raise UserError(
                "data.dataset wikiqa or trecqa and data.folder go together: give both."
                f" Received: data.dataset={self.dataset}, data.folder={self.folder}."
            )


@dataclass(frozen=True)
class VocabularyConfig:
    """Which words have a vector of their own.

    Args:
        size: how many different words at most.
        min_count: words that occur less often in the training text have none.
        lowercase: make the text lower case first.
        unknown_buckets: how many vectors the words without one of their own share; which of them
            a word has depends on its letters, so that an unknown name in a question is still
            found in an answer. With 1, all unknown words are alike.
    """

    size: int = 50000
    min_count: int = 2
    lowercase: bool = True
    unknown_buckets: int = 1000

    def __post_init__(self):
        check_ranges("vocabulary", self, ("size", "min_count", "unknown_buckets"), at_least=1)


@dataclass(frozen=True)
class VectorsConfig:
    """Where the vectors of words come from.

    Args:
        source: random; file, for vectors in text form (a word and its numbers on each line, as
            GloVe and word2vec write them); or train, for vectors that gensim trains on the
            training text before the model is trained.
        file: the file of source file (plain or .gz).
        extra_words: with source file, how many of its first words have vectors of their own
            although the training text lacks them.
        trainable: whether training changes the vectors.
        epochs: with source train, how often gensim goes over the text.
        window: with source train, how many words to each side are its context.
    """

    paths: ClassVar[tuple[str, ...]] = ("file",)

    source: Literal["random", "file", "train"] = "random"
    file: str | None = None
    extra_words: int = 0
    trainable: bool = True
    epochs: int = 10
    window: int = 5

    def __post_init__(self):
        check_range("vectors.extra_words", self.extra_words, at_least=0)
        check_ranges("vectors", self, ("epochs", "window"), at_least=1)
        if (self.source == "file") != (self.file is not None):
            raise UserError(
                "vectors.source file and vectors.file go together: give both."
                f" Received: vectors.source={self.source}, vectors.file={self.file}."
            )
        if self.source != "file":
            why = "goes with vectors.source file only."
            check_unused("vectors", self, ["extra_words"], why)
        if self.source != "train":
            why = "goes with vectors.source train only."
            check_unused("vectors", self, ["epochs", "window"], why)


@dataclass(frozen=True)
class ModelConfig:
    """How a question and a candidate are read and compared.

    Args:
        encoder: how a candidate is read: gru, without attention; outer, with attention over the
            states of the GRU; inner-word, inner-context or inner-gate, with attention before the
            state, whose query is the question; or compare-aggregate, without a GRU: words of both
            sides attend to each other, are compared, and convolutions read the comparisons.
        occam: add Occam's penalty on the attention (inner-word and inner-context only).
        occam_minimum: the least price of a word in that penalty.
        embedding_size: the size of a word's vector.
        units: the size of a GRU's state; of compare-aggregate, that of each of its layers.
        bidirectional: read in both directions, with `units` for each (not compare-aggregate).
        shared: read questions with the GRU that reads candidates, its attention without a query
            (not compare-aggregate).
        attention_units: the size of the hidden layer of outer; null for `units`.
        pooling: how states become one vector: mean or max over the words (not compare-aggregate).
        dropout: the rate of dropout on word vectors and on the pooled vectors.
        word_match: the words that question and candidate share add to the score, each at a price
            that its vector sets.
        exact_match: a number beside each word's vector says whether the other side has the very
            word.
    """

    encoder: ENCODERS = "inner-word"
    occam: bool = False
    occam_minimum: float = 0.001
    embedding_size: int = 100
    units: int = 100
    bidirectional: bool = False
    shared: bool = True
    attention_units: int | None = None
    pooling: Literal["mean", "max"] = "mean"
    dropout: float = 0.2
    word_match: bool = False
    exact_match: bool = False

    def __post_init__(self):
        check_ranges("model", self, ("embedding_size", "units", "attention_units"), at_least=1)
        check_range("model.dropout", self.dropout, at_least=0, below=1)
        check_range("model.occam_minimum", self.occam_minimum, above=0)
        if self.occam and self.encoder not in ("inner-word", "inner-context"):
            raise UserError(
                "model.occam goes with model.encoder inner-word or inner-context, which give each "
                f"word a weight before it is read. Received: model.encoder {self.encoder}."
            )
        if not self.occam:
            check_unused("model", self, ["occam_minimum"], "goes with model.occam only.")
        if self.encoder != "outer":
            why = "goes with model.encoder outer only."
            check_unused("model", self, ["attention_units"], why)
        if self.encoder not in READERS:
            why = f"does not apply to model.encoder {self.encoder}: leave it out."
            check_unused("model", self, OF_READERS, why)


@dataclass(frozen=True)
class TrainingConfig(training_config.TrainingConfig):
    """How a ranker is trained: the shared keys, and what is learned from a question.

    Args:
        loss: hinge, that the score of a right candidate exceeds that of the hardest wrong one
            drawn by `margin`; log, that a right candidate's probability is high and a wrong
            one's low, each pair by itself; or listwise, that of a right candidate and the wrong
            ones drawn with it the right one has the highest probability.
        margin: of the hinge.
        negatives: wrong candidates drawn for each right one in each epoch: the question's own
            first, then other questions' candidates.
    """

    epochs: int = 20
    batch_size: int = 32
    learning_rate: float = 1e-3
    early_stopping: Literal["map", "mrr", "loss", "none"] = "map"
    loss: Literal["hinge", "log", "listwise"] = "hinge"
    margin: float = 0.2
    negatives: int = 5

    def __post_init__(self):
        super().__post_init__()
        check_range("training.margin", self.margin, above=0)
        check_range("training.negatives", self.negatives, at_least=1)
        if self.loss != "hinge":
            check_unused("training", self, ["margin"], "goes with training.loss hinge only.")
        why = "has no meaning for answer selection: use 0."
        check_unused("training", self, ["label_smoothing"], why)


@dataclass(frozen=True)
class AnswerSelectionConfig:
    """All of it."""

    data: DataConfig = DataConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    vectors: VectorsConfig = VectorsConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    distribute: DistributeConfig = DistributeConfig()


# What a known data set changes in the defaults; a configuration file or an option goes first.
PRESETS = {
    "facts": [
        *("--vocabulary.min_count=1", "--model.embedding_size=32", "--model.units=32"),
        *("--training.epochs=8", "--training.learning_rate=5e-3"),
    ],
}
