"""The configuration of the classification application."""

import codecs
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, get_args, get_origin

from ..common.errors import UserError, check_choice, check_range, check_ranges, check_unused
from ..training import config as training_config
from ..training.devices import DistributeConfig

PAIRS = ("cross", "inner")
RECURRENT = ("pooling", "mean", "han", "cross", "inner")
STACKS = ("self-attention", "transformer")
WITH_WORD_VECTORS = (*RECURRENT, *STACKS)
# Keys that only some architectures have: what null means there, and which ones.
DEFAULTS = {
    "embedding_size": (None, WITH_WORD_VECTORS),
    "encoder": ("gru", RECURRENT),
    "attention_units": (None, ("pooling", "han", *STACKS, "cross", "backbone")),
    "layers": (2, STACKS),
    "heads": (4, STACKS),
    "positions": ("relative", STACKS),
    "feed_forward": (None, ("transformer",)),
    "inner_attention": ("word", ("inner",)),
    "backbone": (None, ("backbone",)),
    "fine_tune": (False, ("backbone",)),
    "embedding_dropout": (None, WITH_WORD_VECTORS),
    "layer_dropout": (0.1, STACKS),
    "word_dropout": (None, WITH_WORD_VECTORS),
    "exact_match": (False, PAIRS),
    "linear": (None, ("pooling", "mean", "han", *STACKS)),
}

SPLITS = ("train", "dev", "test")
DATASETS = Literal["opinions", "trec", "sentence_polarity", "subjectivity", "movie_reviews", "sick"]


def _refuse(*faults: tuple[Any, str]) -> None:
    """Raise an error with the message of the first fault that is there."""
    for is_there, message in faults:
        if is_there:
            raise UserError(message)


def _check_choices(section: Any, name: str) -> None:
    """Refuse a value that is none of those that its key lists: Python code is not read by type."""
    for key in fields(section):
        value = getattr(section, key.name)
        for kind in (key.type, *get_args(key.type)):
            if get_origin(kind) is Literal and value is not None:
                check_choice(f"{name}.{key.name}", value, get_args(kind))


@dataclass(frozen=True)
class DataConfig:
    """Where the texts and their labels come from: a known data set, or files with named columns.

    Args:
        dataset: a known data set: opinions (made by this package), or trec, sentence_polarity,
            subjectivity, movie_reviews or sick, whose files lie in `folder`.
        folder: where the files of the known data set lie.
        train_file: .csv or .tsv with a header, or .jsonl with an object a line (plain or .gz).
        dev_file: the same of the development set, which training is judged by; null to set
            `dev_fraction` of the training data apart.
        test_file: the same of the test set, which `evaluate` uses.
        text_column: the column with the text.
        second_column: the column with the second text of a pair; null for single texts.
        label_column: the column with the label.
        labels: what a text has: one label, many labels (any number of them), or a number.
        label_separator: what stands between the labels of a text in CSV and TSV (many labels).
        encoding: of the files, like utf-8, latin-1 or cp1252.
        dev_fraction: the part of the training data that becomes the development set where there
            is none; drawn with `split_seed`, from each label alike.
        folds: cut a set without a test set into so many parts, drawn with `split_seed`, from each
            label alike, and test on one of them; null for no cross-validation.
        fold: which part is the test set, counted from 0.
        split_seed: of the draws of folds and development set.
        max_length: the longest text, in tokens, each text of a pair by itself.
        on_too_long: what to do with a longer one: stop with an error, or skip or truncate it
            (counted and reported). `predict` and exported models truncate, as they have to answer.
        on_empty: what to do with an empty text: stop with an error, or skip it (counted and
            reported).
        on_unknown_label: what to do, on development and test sets, with a label that the training
            data do not have: stop with an error, or skip the text (counted and reported).
        min_examples: how many training texts a label must have.
        on_rare_label: what to do with texts of rarer labels: stop with an error, or skip them
            (counted and reported).
    """

    dataset: DATASETS | None = None
    folder: str | None = None
    train_file: str | None = None
    dev_file: str | None = None
    test_file: str | None = None
    text_column: str = "text"
    second_column: str | None = None
    label_column: str = "label"
    labels: Literal["one", "many", "number"] = "one"
    label_separator: str = ";"
    encoding: str = "utf-8"
    dev_fraction: float = 0.1
    folds: int | None = None
    fold: int = 0
    split_seed: int = 1
    max_length: int = 400
    on_too_long: Literal["error", "skip", "truncate"] = "error"
    on_empty: Literal["error", "skip"] = "error"
    on_unknown_label: Literal["error", "skip"] = "error"
    min_examples: int = 2
    on_rare_label: Literal["error", "skip"] = "error"

    paths: ClassVar[tuple[str, ...]] = ("folder", "train_file", "dev_file", "test_file")

    def __post_init__(self):
        _check_choices(self, "data")
        check_ranges("data", self, ("max_length", "min_examples"), at_least=1)
        check_ranges("data", self, ("fold", "split_seed"), at_least=0)
        check_range("data.dev_fraction", self.dev_fraction, above=0, below=1)
        check_range("data.folds", self.folds, at_least=2)
        dataset = self.dataset
        file = next((f"data.{each}_file" for each in SPLITS if getattr(self, f"{each}_file")), None)
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
                "data.folder goes with data.dataset only; data.train_file is a path. "
                f"Received: {self.folder}.",
            ),
            (
                dataset not in (None, "opinions") and not self.folder,
                f"data.dataset {dataset} needs data.folder, where its files lie: they are not "
                "fetched.",
            ),
            (self.folds and self.test_file, "give data.folds or data.test_file, not both."),
        )
        try:
            usable = "\n".encode(codecs.lookup(self.encoding).name) == b"\n"
        except LookupError:
            raise UserError(
                "data.encoding must be an encoding that Python knows, like utf-8, latin-1 or "
                f"cp1252. Received: {self.encoding!r}."
            ) from None
        if not usable:
            raise UserError(
                "data.encoding must write a line feed as one byte, or lines could not be "
                f"numbered: convert the file to utf-8. Received: {self.encoding!r}."
            )


@dataclass(frozen=True)
class TokenizerConfig:
    """How texts become tokens, and for architecture han sentences.

    Args:
        kind: words, or sentencepiece (pieces of words, trained on the training text).
        vocabulary_size: how many different tokens at most, the special ones included.
        lowercase: make the text lower case first.
        min_count: words that occur less often are unknown (words only).
        split: cut words at spaces and punctuation (unicode), or at spaces alone, for text that is
            tokenised already (words only).
        model_type: how SentencePiece chooses its pieces (sentencepiece only).
        sentences: where sentences end (han only): at line feeds, or after . ! ? and a space too.
        max_sentence_length: a longer sentence goes on as another one (han only).
    """

    kind: Literal["words", "sentencepiece"] = "words"
    vocabulary_size: int = 20000
    lowercase: bool = True
    min_count: int = 1
    split: Literal["unicode", "whitespace"] = "unicode"
    model_type: Literal["unigram", "bpe"] = "unigram"
    sentences: Literal["lines", "punctuation"] = "punctuation"
    max_sentence_length: int = 40

    def __post_init__(self):
        _check_choices(self, "tokenizer")
        check_range("tokenizer.vocabulary_size", self.vocabulary_size, at_least=5)
        check_ranges("tokenizer", self, ("min_count", "max_sentence_length"), at_least=1)
        others, other = ("min_count", "split"), "words"
        if self.kind == "words":
            others, other = ("model_type",), "sentencepiece"
        check_unused("tokenizer", self, others, f"goes with tokenizer.kind {other} only.")


@dataclass(frozen=True)
class VectorsConfig:
    """The vectors that words start from (not backbone).

    Args:
        file: vectors in text form (a word and its numbers on each line, as GloVe and word2vec write
            them), plain or .gz; null for random ones. Words that it lacks get random ones, too.
        extra_words: how many of the file's first words have vectors of their own although the
            training text lacks them.
        channels: what training does to the vectors: tuned changes them; static leaves them as they
            are; both joins a tuned and a static one for each word.
        length: what the file's vectors are scaled to, each of them; null leaves them as they are.
            Random ones are about 1.5 long, and architecture cross wants no more than 2 or so.
    """

    paths: ClassVar[tuple[str, ...]] = ("file",)

    file: str | None = None
    extra_words: int = 0
    channels: Literal["tuned", "static", "both"] = "tuned"
    length: float | None = None

    def __post_init__(self):
        _check_choices(self, "vectors")
        check_range("vectors.length", self.length, above=0)
        check_range("vectors.extra_words", self.extra_words, at_least=0)
        if self.file is None:
            why = "goes with vectors.file only."
            check_unused("vectors", self, ("extra_words", "channels", "length"), why)


@dataclass(frozen=True)
class ModelConfig:
    """The model.

    Args:
        architecture: of single texts: pooling (bidirectional GRU, attention pooling),
            self-attention (multi-head attention layers, no recurrence), transformer, han
            (hierarchical: words, then sentences) or mean (as pooling, without attention, to
            compare with); of pairs: cross (each text attends to the other) or inner (each text is
            read under a question from the other); of both: backbone (a pretrained model of
            keras_hub, its states under attention pooling).
        embedding_size: width of the word embeddings; in self-attention and transformer of every
            layer (not backbone).
        units: width of each direction of the recurrent layers, or of each convolution, and of the
            layer before the answer of a pair.
        encoder: what reads the words: gru (bidirectional), convolution (over 3, 4 and 5 words) or
            none, where the word embeddings themselves are pooled or compared (pooling, mean, han,
            cross, inner only; null for gru).
        attention_units: width of the hidden layer of attention pooling; null for units.
        layers: how many layers (self-attention, transformer only; null for 2).
        heads: attention heads of each layer (self-attention, transformer only; null for 4).
        positions: how positions enter (self-attention, transformer only; null for relative).
        feed_forward: width of the feed-forward layer (transformer only; null for four times
            embedding_size).
        inner_attention: how a word is weighed before it is read: by itself (word) or by what came
            before it, too (context) (inner only; null for word).
        backbone: the name of a preset of keras_hub, like bert_tiny_en_uncased, or a folder that
            save_to_preset wrote, tokenizer and all (backbone only).
        fine_tune: train the backbone, too; else it is frozen and gives features (backbone only;
            null for false).
        max_pooling: join the maximum of each feature to what attention or mean make of the text.
        dropout: rate of dropout before the answer.
        embedding_dropout: rate of dropout on the word embeddings; null for dropout (not backbone).
        layer_dropout: rate of dropout in the attention layers (self-attention, transformer only;
            null for 0.1).
        word_dropout: the part of the words that are made unknown in training, other ones each
            time (not backbone).
        exact_match: a number beside each word's vector says whether the other text has the very
            word (cross, inner only; null for false).
        linear: a linear model of words and pairs of neighbours whose scores join the network's once
            it is trained: naive_bayes, better for sentences, or nb_svm, better for long texts; null
            for none (pooling, mean, han, self-attention, transformer only).
        linear_weight: of these scores; those of the network have 1.
    """

    architecture: Literal[
        "pooling", "self-attention", "transformer", "han", "mean", "cross", "inner", "backbone"
    ] = "pooling"
    embedding_size: int = 128
    units: int = 128
    encoder: Literal["gru", "convolution", "none"] | None = None
    attention_units: int | None = None
    layers: int | None = None
    heads: int | None = None
    positions: Literal["relative", "rotary", "alibi"] | None = None
    feed_forward: int | None = None
    inner_attention: Literal["word", "context"] | None = None
    backbone: str | None = None
    fine_tune: bool | None = None
    max_pooling: bool = False
    dropout: float = 0.5
    embedding_dropout: float | None = None
    layer_dropout: float | None = None
    word_dropout: float = 0.0
    exact_match: bool | None = None
    linear: Literal["naive_bayes", "nb_svm"] | None = None
    linear_weight: float = 1.0

    def __post_init__(self):
        _check_choices(self, "model")
        sizes = ("embedding_size", "units", "attention_units", "layers", "heads", "feed_forward")
        check_ranges("model", self, sizes, at_least=1)
        rates = ("dropout", "embedding_dropout", "layer_dropout", "word_dropout")
        check_ranges("model", self, rates, at_least=0, below=1)
        check_range("model.linear_weight", self.linear_weight, above=0)
        unused = [name for name, (_, users) in DEFAULTS.items() if self.architecture not in users]
        why = f"does not apply to model.architecture {self.architecture}: leave it out."
        check_unused("model", self, unused, why)
        if self.linear is None:
            check_unused("model", self, ("linear_weight",), "goes with model.linear only.")
        if self.architecture == "backbone" and not self.backbone:
            raise UserError(
                "model.architecture backbone needs model.backbone: the name of a preset of "
                "keras_hub, like bert_tiny_en_uncased, or a folder that save_to_preset wrote."
            )
        heads = self.chosen("heads")
        if self.architecture in STACKS and self.embedding_size % heads:
            raise UserError(
                "model.heads must divide model.embedding_size. "
                f"Received: {heads} and {self.embedding_size}."
            )

    def chosen(self, name: str) -> Any:
        """Return the value of a key that only some architectures have, or what null stands for."""
        value = getattr(self, name)
        return DEFAULTS[name][0] if value is None else value


@dataclass(frozen=True)
class TrainingConfig(training_config.TrainingConfig):
    """How a classifier is trained.

    Args:
        class_weights: balanced weighs each text by how rare its label is, so that all labels count
            alike; none counts all texts alike (one label only).
        threshold: the probability from which a text has a label (many labels only).
        tune_thresholds: after each epoch, choose for each label the threshold with the highest F1
            on the development set; the run keeps those of the best weights (many labels only).
    """

    epochs: int = 20
    early_stopping: Literal["score", "loss", "none"] = "score"
    class_weights: Literal["none", "balanced"] = "none"
    threshold: float = 0.5
    tune_thresholds: bool = False

    def __post_init__(self):
        super().__post_init__()
        check_range("training.threshold", self.threshold, at_least=0, at_most=1)

    def check_labels(self, kind: str) -> None:
        """Refuse what does not go with labels of a kind."""
        if kind != "many":
            why = f"goes with many labels only (data.labels many), and not with {kind}."
            check_unused("training", self, ("threshold", "tune_thresholds"), why)


@dataclass(frozen=True)
class ClassificationConfig:
    """All of it; `ClassificationConfig()` suits some thousand sentences of one's own."""

    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    vectors: VectorsConfig = VectorsConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    distribute: DistributeConfig = DistributeConfig()

    def check(self) -> None:
        """Refuse values that do not go together.

        Not done on construction: what a known data set brings comes in after the first reading.
        """
        data, architecture = self.data, self.model.architecture
        check_range("data.fold", data.fold, below=data.folds or 1)
        self.training.check_labels(data.labels)
        _refuse(
            (
                self.vectors.file and architecture == "backbone",
                "vectors.file does not apply to model.architecture backbone, which has its own. "
                f"Received: {self.vectors.file}.",
            ),
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
                self.model.linear and data.labels == "number",
                f"model.linear does not go with data.labels number. Received: {self.model.linear}.",
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
            why = "goes with model.architecture han only."
            check_unused("tokenizer", self.tokenizer, names, why)
        if architecture == "backbone":
            why = "does not apply to model.architecture backbone, which has its own: leave it out."
            check_unused("tokenizer", self.tokenizer, vars(self.tokenizer), why)


# What a known data set changes in the defaults; a configuration file or an option goes first.
_TOKENISED = "--tokenizer.split=whitespace"
PRESETS = {
    "opinions": "--data.label_column=sentiment --model.embedding_size=32 --model.units=32 "
    "--model.dropout=0.1 --training.batch_size=32 --training.learning_rate=5e-3 "
    "--training.epochs=8",
    "trec": f"{_TOKENISED} --data.label_column=coarse",
    "sentence_polarity": f"{_TOKENISED} --data.folds=10",
    "subjectivity": f"{_TOKENISED} --data.folds=10",
    "movie_reviews": f"{_TOKENISED} --tokenizer.sentences=lines --data.folds=10 "
    "--data.max_length=3500",
    "sick": "--data.text_column=sentence_A --data.second_column=sentence_B "
    "--data.label_column=entailment_judgment --model.architecture=cross",
}
PRESETS = {name: options.split() for name, options in PRESETS.items()}
# A backbone comes with its own tokenizer and sizes.
PRESETS |= {
    f"{name} with model.architecture backbone": [
        each for each in options if not each.startswith(("--tokenizer.", "--model."))
    ]
    for name, options in PRESETS.items()
}
