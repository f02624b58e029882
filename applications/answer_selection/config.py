"""The settings of answer selection."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, get_args

from ..errors import UserError
from ..schema import training
from ..schema.distribute import DistributeConfig
from ..schema.keys import SPLITS, Config, DataSection, Defaults, Section, key

FILES = {"wikiqa": "WikiQA-{split}.tsv", "trecqa": "{split}.csv"}
"""The files of known data sets, which may be packed."""
ENCODERS = Literal["gru", "outer", "inner-word", "inner-context", "inner-gate", "compare-aggregate"]
READERS = get_args(ENCODERS)[:-1]
"""Those by which an `AnswerSelector` reads a candidate."""
OF_ALL = ("units", "embedding_size", "dropout", "word_match", "exact_match")
"""Options of `ModelConfig` that every network has."""
OF_READERS = ("bidirectional", "shared", "pooling")
"""Options of `ModelConfig` that only `READERS` use."""


@dataclass(frozen=True)
class DataConfig(DataSection):
    """Where questions and their candidate answers come from: a known data set or files."""

    paths = ("folder", *SPLITS)
    needed = {
        split: f"--data.{split} F, --data.dataset facts, or --data.dataset wikiqa with "
        "--data.folder D"
        for split in ("train", "dev")
    }

    dataset: Literal["facts", "wikiqa", "trecqa"] | None = key(
        None, "a known data set: facts (made by this package), wikiqa or trecqa", common=True
    )
    folder: str | None = key(
        None,
        "where the files of wikiqa (WikiQA-train.tsv, WikiQA-dev.tsv, WikiQA-test.tsv) or "
        "trecqa (train.csv, dev.csv, test.csv where there is one) lie; plain or .gz",
        common=True,
    )
    train: str | None = key(
        None,
        "file of training questions; see the tutorial for its forms (WikiQA's TSV, TREC-QA's "
        "CSV, or question, tab, candidate, tab, label on each line), plain or .gz",
        common=True,
    )
    dev: str | None = key(
        None, "the same of the development set, which training is judged by", common=True
    )
    test: str | None = key(
        None,
        "the same of the test set, which `evaluate` uses",
    )
    max_length: int = key(
        40,
        "words of a question or candidate that are read; longer ones are cut (counted and "
        "reported)",
        at_least=1,
        common=True,
    )
    on_empty: Literal["error", "skip"] = key(
        "error",
        "what to do with a question or candidate without words: stop with an error, or skip "
        "it (counted and reported)",
    )

    def check(self) -> None:
        if self.dataset and self.train:
            raise UserError(
                f"data.dataset {self.dataset} and data.train do not go together: give one."
            )
        if (self.dataset in ("wikiqa", "trecqa")) != (self.folder is not None):
            raise UserError(
                "data.dataset wikiqa or trecqa and data.folder go together: give both."
                f" Received: data.dataset={self.dataset}, data.folder={self.folder}."
            )

    def has_split(self, split: str) -> bool:
        if self.dataset in FILES and not getattr(self, split):
            return self.known_file(split).is_file()
        return super().has_split(split)

    def known_file(self, split: str) -> Path:
        """Return the file of a split of the known data set."""
        from keras_attention.paths import input_path  # not above: `--help` needs no Keras

        plain = input_path(self.folder) / FILES[self.dataset].format(split=split)
        packed = plain.with_name(f"{plain.name}.gz")
        return packed if packed.is_file() else plain


@dataclass(frozen=True)
class TokenizerConfig(Section):
    """Which words have a vector of their own."""

    section = "tokenizer"

    vocabulary_size: int = key(50000, "how many different words at most", at_least=1, common=True)
    min_count: int = key(
        2,
        "words that occur less often in the training text have none",
        at_least=1,
    )
    lowercase: bool = key(
        True,
        "make the text lower case first",
    )
    unknown_buckets: int = key(
        1000,
        "how many vectors the words without one of their own share; which of them a word has "
        "depends on its letters, so that an unknown name in a question is still found in an "
        "answer. With 1, all unknown words are alike",
        at_least=1,
    )


@dataclass(frozen=True)
class VectorsConfig(Section):
    """Where the vectors of words come from."""

    section = "vectors"
    paths = ("file",)

    source: Literal["random", "file", "train"] = key(
        "random",
        "random; file, for vectors in text form (a word and its numbers on each line, as "
        "GloVe and word2vec write them); or train, for vectors that gensim trains on the "
        "training text before the model is trained",
    )
    file: str | None = key(None, "the file of source file (plain or .gz)", common=True)
    extra_words: int = key(
        0,
        "how many of its first words have vectors of their own although the"
        " training text lacks them",
        at_least=0,
        applies_to={"source": ("file",)},
    )
    trainable: bool = key(
        True,
        "whether training changes the vectors",
    )
    epochs: int = key(
        10, "how often gensim goes over the text", at_least=1, applies_to={"source": ("train",)}
    )
    window: int = key(
        5,
        "how many words to each side are its context",
        at_least=1,
        applies_to={"source": ("train",)},
    )

    def check(self) -> None:
        if (self.source == "file") != (self.file is not None):
            raise UserError(
                "vectors.source file and vectors.file go together: give both."
                f" Received: vectors.source={self.source}, vectors.file={self.file}."
            )


@dataclass(frozen=True)
class ModelConfig(Section):
    """How a question and a candidate are read and compared."""

    section = "model"

    encoder: ENCODERS = key(
        "inner-word",
        "how a candidate is read: gru, without attention; outer, with attention over the "
        "states of the GRU; inner-word, inner-context or inner-gate, with attention before "
        "the state, whose query is the question; or compare-aggregate, without a GRU: words "
        "of both sides attend to each other, are compared, and convolutions read the "
        "comparisons",
        common=True,
    )
    occam: bool = key(
        False,
        "add Occam's penalty on the attention (encoder inner-word and inner-context only)",
    )
    occam_minimum: float = key(
        0.001,
        "the least price of a word in that penalty",
        above=0,
        applies_to={"occam": (True,)},
    )
    embedding_size: int = key(100, "the size of a word's vector", at_least=1, common=True)
    units: int = key(
        100,
        "the size of a GRU's state; of compare-aggregate, that of each of its layers",
        at_least=1,
        common=True,
    )
    bidirectional: bool = key(
        False, "read in both directions, with `units` for each", applies_to={"encoder": READERS}
    )
    shared: bool = key(
        True,
        "read questions with the GRU that reads candidates, its attention without a query "
        "(not compare-aggregate)",
        applies_to={"encoder": READERS},
    )
    attention_units: int | None = key(
        None,
        "the size of the hidden layer of outer; null for `units`",
        at_least=1,
        applies_to={"encoder": ("outer",)},
    )
    pooling: Literal["mean", "max"] = key(
        "mean",
        "how states become one vector: mean or max over the words",
        applies_to={"encoder": READERS},
    )
    dropout: float = key(
        0.2,
        "the rate of dropout on word vectors and on the pooled vectors",
        at_least=0,
        below=1,
        common=True,
    )
    word_match: bool = key(
        False,
        "the words that question and candidate share add to the score, each at a price that "
        "its vector sets",
    )
    exact_match: bool = key(
        False,
        "a number beside each word's vector says whether the other side has the very word",
    )

    def check(self) -> None:
        if self.occam and self.encoder not in ("inner-word", "inner-context"):
            raise UserError(
                "model.occam goes with model.encoder inner-word or inner-context, which give each "
                f"word a weight before it is read. Received: model.encoder {self.encoder}."
            )


@dataclass(frozen=True)
class TrainingConfig(training.TrainingConfig):
    """How a ranker is trained: the shared keys, and what is learned from a question."""

    epochs: int = 20
    batch_size: int = 32
    learning_rate: float = 0.001
    early_stopping: Literal["map", "mrr", "loss", "none"] = "map"
    loss: Literal["hinge", "log", "listwise"] = key(
        "hinge",
        "hinge, that the score of a right candidate exceeds that of the hardest wrong one "
        "drawn by `margin`; log, that a right candidate's probability is high and a wrong "
        "one's low, each pair by itself; or listwise, that of a right candidate and the wrong"
        " ones drawn with it the right one has the highest probability",
        common=True,
    )
    margin: float = key(0.2, "of the hinge", above=0, applies_to={"loss": ("hinge",)})
    negatives: int = key(
        5,
        "wrong candidates drawn for each right one in each epoch: the question's own first, "
        "then other questions' candidates",
        at_least=1,
    )

    def check(self) -> None:
        super().check()
        self.refuse_unused("label_smoothing", "has no meaning for answer selection")


@dataclass(frozen=True)
class AnswerSelectionConfig(Config):
    """All of it."""

    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    vectors: VectorsConfig = field(default_factory=VectorsConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    distribute: DistributeConfig = field(default_factory=DistributeConfig)

    defaults: ClassVar[tuple[Defaults, ...]] = (
        Defaults(
            {"data.dataset": "facts"},
            {
                "tokenizer.min_count": 1,
                "model.embedding_size": 32,
                "model.units": 32,
                "training.epochs": 8,
                "training.learning_rate": 5e-3,
            },
        ),
    )
