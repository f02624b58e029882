"""The settings of a translation."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ..errors import UserError, check_number
from ..schema import training
from ..schema.distribute import DistributeConfig
from ..schema.keys import SPLITS, Config, DataSection, Defaults, Section, key
from ..schema.search import SearchConfig

SIDES = ("source", "target")
FILES = (*SPLITS, *(f"{split}_{side}" for split in SPLITS for side in SIDES))
RECURRENT = ("rnnsearch", "rnnencdec", "luong")
SIZES = {
    "tiny": {"embedding_size": 128, "feed_forward_size": 256, "layers": 4, "heads": 4},
    "fast": {
        "embedding_size": 128,
        "feed_forward_size": 256,
        "layers": 6,
        "heads": 4,
        "decoder_layers": 1,
    },
    "base": {"embedding_size": 512, "feed_forward_size": 2048, "layers": 6, "heads": 8},
}
HALF_WIDTH = 10
MOST_VARIANTS = 1000

IN_LUONG = {"applies_to": {"architecture": ("luong",)}}
IN_TRANSFORMER = {"applies_to": {"architecture": ("transformer",)}}
IN_RECURRENT = {"applies_to": {"architecture": RECURRENT}}
OF_WORDS = {"applies_to": {"kind": ("words",)}}
OF_PIECES = {"applies_to": {"kind": ("sentencepiece",)}}


@dataclass(frozen=True)
class DataConfig(DataSection):
    """Where the sentences come from: a known data set, two parallel files, or a TSV."""

    paths = ("folder", *FILES)
    needed = {
        "train": "--data.train_source F --data.train_target F, --data.train F, or "
        "--data.dataset dates",
        "dev": "--data.dev_source F --data.dev_target F, --data.dev F, or a part of the training "
        "data, --data.dev_fraction 0.05",
    }

    dataset: Literal["dates", "multi30k"] | None = key(
        None, "a known data set: dates (made by this package) or multi30k", common=True
    )
    folder: str | None = key(
        None,
        "where the files of multi30k lie; null to fetch them into the cache",
        applies_to={"dataset": ("multi30k",)},
    )
    source_language: str = key(
        "en",
        "code of the language translated from, like en; chooses the side of multi30k, and the "
        "rules by which documents are cut into sentences",
    )
    target_language: str = key(
        "de",
        "code of the language translated into, by which BLEU cuts texts into words (zh, ja and ko "
        "have tokenizers of their own)",
        common=True,
    )
    train_source: str | None = key(
        None, "file of source sentences, one a line (plain or .gz)", common=True
    )
    train_target: str | None = key(
        None, "file of their translations, parallel by line", common=True
    )
    dev_source: str | None = key(
        None, "the same of the development set, which training is judged by", common=True
    )
    dev_target: str | None = key(None, "the same of the development set", common=True)
    dev_fraction: float = key(
        0.0,
        "without a development set, the part of the training sentences, drawn at random, that "
        "becomes one",
        common=True,
        at_least=0,
        below=1,
    )
    test_source: str | None = key(None, "the same of the test set, which `evaluate` uses")
    test_target: str | None = key(None, "the same of the test set")
    train: str | None = key(
        None, "instead of two files, one with source, tab, target on each line", common=True
    )
    dev: str | None = key(None, "the same of the development set", common=True)
    test: str | None = key(None, "the same of the test set")
    max_length: int = key(
        100,
        "the longest sentence to train with and to be judged by on the development set, in tokens; "
        "`evaluate` measures sentences of any length",
        at_least=1,
    )
    on_too_long: Literal["error", "skip", "truncate"] = key(
        "error",
        "what to do with a longer one: stop with an error, or skip or truncate it (counted and "
        "reported)",
        common=True,
    )
    on_empty: Literal["error", "skip"] = key(
        "error",
        "what to do with an empty line: stop with an error, or skip it (counted and reported)",
    )

    def check(self) -> None:
        for split in SPLITS:
            self._check_split(split)

    def has_split(self, split: str) -> bool:
        if split == "dev" and self.dev_fraction and self.has_split("train"):
            return True
        return super().has_split(split) or getattr(self, f"{split}_source") is not None

    def _check_split(self, split: str) -> None:
        source, target = (getattr(self, f"{split}_{side}") for side in SIDES)
        table = getattr(self, split)
        if (source is None) != (target is None):
            given, missing = ("source", "target") if source else ("target", "source")
            raise UserError(
                f"data.{split}_{given} needs data.{split}_{missing}: give both files, or "
                f"data.{split}."
            )
        if source and table:
            raise UserError(
                f"give data.{split}_source and data.{split}_target, or data.{split}, not both."
            )
        if self.dataset and split == "train" and (source or table):
            raise UserError(
                f"data.dataset {self.dataset} and files of your own do not go together: give one."
            )


@dataclass(frozen=True)
class TokenizerConfig(Section):
    """How sentences become tokens."""

    section = "tokenizer"

    kind: Literal["sentencepiece", "words"] = key(
        "sentencepiece",
        "sentencepiece (pieces of words, trained on the training text) or words",
        common=True,
    )
    vocabulary_size: int = key(
        8000,
        "how many different tokens at most, the special ones included",
        common=True,
        at_least=5,
    )
    shared: bool = key(False, "one vocabulary for both sides, else one each")
    lowercase: bool = key(False, "make the text lower case first")
    min_count: int = key(1, "words that occur less often are unknown", at_least=1, **OF_WORDS)
    model_type: Literal["unigram", "bpe"] = key(
        "unigram", "how SentencePiece chooses its pieces", **OF_PIECES
    )
    replace_unknown: bool = key(
        False,
        "put the source word with the highest attention weight where the model writes an unknown "
        "word",
        **OF_WORDS,
    )
    variants: int = key(
        1,
        "in how many random ways, 1000 at most, to cut each training sentence into pieces "
        "(subword regularisation). An epoch has each sentence once, in another way than the epoch "
        "before; 1 for the likeliest way alone",
        **OF_PIECES,
    )
    sampling: float = key(
        0.1,
        "with variants above 1, how the ways are drawn, from 0 to 1. Of model_type bpe the "
        "probability that a merge is left out (BPE dropout, Provilkov et al. 2020): 0 is not "
        "random, 1 gives single characters. Of unigram the exponent of a way's probability (Kudo "
        "2018): 0 draws all ways alike, 1 draws likely ways more often",
    )

    def check(self) -> None:
        check_number("tokenizer.variants", self.variants, 1, MOST_VARIANTS, whole=True)
        check_number("tokenizer.sampling", self.sampling, 0, 1)
        if self.variants == 1:
            self.refuse_unused("sampling", "goes with tokenizer.variants above 1 only")


@dataclass(frozen=True)
class ModelConfig(Section):
    """The model."""

    section = "model"

    architecture: Literal["rnnsearch", "luong", "rnnencdec", "transformer"] = key(
        "rnnsearch",
        "rnnsearch (bidirectional GRU, Bahdanau attention), luong (stacked LSTM, Luong attention), "
        "rnnencdec (no attention, to compare with) or transformer",
        common=True,
    )
    size: Literal["tiny", "fast", "base"] | None = key(
        None,
        "where the sizes come from that are not given: tiny (4 layers each, 128 wide, feed-forward "
        "256, 4 heads), fast (6 and 1 layers, as wide: a deep encoder and a shallow decoder, Kasai "
        "et al. 2021) or base (6, 512, 2048, 8)",
        common=True,
        null={"transformer": "tiny"},
        **IN_TRANSFORMER,
    )
    embedding_size: int | None = key(
        None,
        "width of the word embeddings, and of all layers in a transformer; null for 256, or the "
        "size's",
        at_least=1,
    )
    units: int | None = key(
        None,
        "width of the recurrent layers; null for 256",
        common=True,
        at_least=1,
        **IN_RECURRENT,
    )
    layers: int | None = key(
        None,
        "layers of encoder and decoder; null for the size's in a transformer",
        at_least=1,
        applies_to={"architecture": ("luong", "transformer")},
        null={"luong": 2},
        elsewhere=1,
    )
    decoder_layers: int | None = key(
        None,
        "layers of the decoder, where it has not as many as the encoder; null for the size's, or "
        "as many",
        at_least=1,
        **IN_TRANSFORMER,
    )
    heads: int | None = key(
        None, "attention heads; null for the size's", at_least=1, **IN_TRANSFORMER
    )
    feed_forward_size: int | None = key(
        None,
        "width of the hidden layer of the feed-forward networks; null for the size's",
        at_least=1,
        **IN_TRANSFORMER,
    )
    attention: Literal["global", "local-m", "local-p", "none"] | None = key(
        None,
        "over the whole sentence, local with a monotonic or predicted window, or none, to compare "
        "with",
        null={"luong": "global"},
        **IN_LUONG,
    )
    score: Literal["dot", "general", "concat", "location"] | None = key(
        None,
        "how attention compares a query with a position",
        null={"luong": "general"},
        **IN_LUONG,
    )
    attention_units: int | None = key(
        None,
        "width of an additive score (in luong with score concat) or of the prediction of a window "
        "(with attention local-p); null for units",
        at_least=1,
        applies_to={"architecture": ("rnnsearch", "luong")},
    )
    half_width: int | None = key(
        None,
        "positions on either side of the middle of a window, with attention local-m or local-p; "
        "null for 10",
        at_least=1,
        **IN_LUONG,
    )
    input_feeding: bool | None = key(
        None,
        "feed the attentional vector into the next step",
        null={"luong": True},
        **IN_LUONG,
    )
    reverse_source: bool | None = key(
        None,
        "the encoder reads from the last word to the first",
        null={"luong": False},
        **IN_LUONG,
    )
    activation: Literal["relu", "gelu", "geglu", "swiglu"] | None = key(
        None,
        "of the feed-forward networks; geglu and swiglu are gated",
        null={"transformer": "relu"},
        **IN_TRANSFORMER,
    )
    norm: Literal["post", "pre"] | None = key(
        None,
        "layer normalisation after each residual sum, as published, or pre, before each sublayer",
        null={"transformer": "post"},
        **IN_TRANSFORMER,
    )
    positions: Literal["sinusoidal", "rotary", "alibi", "relative"] | None = key(
        None,
        "sinusoidal, added to the embeddings as published, or in the scores of the self-attentions",
        null={"transformer": "sinusoidal"},
        **IN_TRANSFORMER,
    )
    autoregression: Literal["self-attention", "ssru"] | None = key(
        None,
        "the decoder's sublayer that reads the earlier words: self-attention, as published, or "
        "ssru, a recurrent unit that is cheaper in a search (Kim et al. 2019)",
        null={"transformer": "self-attention"},
        **IN_TRANSFORMER,
    )
    dropout: float = key(0.3, "rate of dropout", common=True, at_least=0, below=1)
    attention_dropout: float | None = key(
        None,
        "rate at which attention weights are dropped",
        null={"transformer": 0.0},
        at_least=0,
        below=1,
        **IN_TRANSFORMER,
    )
    readout_size: int | None = key(
        None,
        "width of the layer before the word scores; null for the architecture's own",
        at_least=1,
        **IN_RECURRENT,
    )
    tie_embeddings: bool | None = key(
        None,
        "use the target embedding as the output matrix too; null for true in transformer and false "
        "elsewhere",
    )
    share_embeddings: bool | None = key(
        None,
        "one embedding for source and target, with tokenizer.shared; null for tokenizer.shared",
        **IN_TRANSFORMER,
    )

    def check(self) -> None:
        if self.architecture == "luong":
            self._check_luong()
        if self.architecture == "transformer":
            self.fill({"tie_embeddings": True, **SIZES[self.size]})
            if self.embedding_size % self.heads:
                raise UserError(
                    f"model.heads must divide model.embedding_size ({self.embedding_size}). "
                    f"Received: {self.heads}."
                )

    def _check_luong(self) -> None:
        why = (
            f"does not apply to model.architecture luong with model.attention {self.attention} "
            f"and model.score {self.score}"
        )
        unused = []
        if self.attention == "none":
            unused = ["half_width", "score"]
        elif self.attention == "global":
            unused = ["half_width"]
        else:
            self.fill({"half_width": HALF_WIDTH})
        if self.score != "concat" and self.attention != "local-p":
            unused.append("attention_units")
        for name in unused:
            self.refuse_unused(name, why)
        if self.attention.startswith("local") and self.score == "location":
            raise UserError(
                "model.score location goes with model.attention global only. "
                f"Received: {self.attention}."
            )


@dataclass(frozen=True)
class TrainingConfig(training.TrainingConfig):
    """How a translator is trained."""

    label_smoothing: float = 0.1
    early_stopping: Literal["bleu", "loss", "none"] = "bleu"
    batch_tokens: int | None = key(
        None,
        "make batches of so many tokens instead of batch_size sentences, padding included, counted "
        "on the longer side; batches of short sentences then hold more",
        at_least=1,
    )
    buckets: int = key(
        8,
        "how many lengths batches are padded to. Fewer pad more, and start sooner on JAX, which "
        "compiles a program for each",
        at_least=1,
    )


@dataclass(frozen=True, kw_only=True)
class DecodingConfig(SearchConfig):
    """How to search for a translation, and the attention to show of it."""

    attention_layer: int | None = key(
        None,
        "with model.architecture transformer, the decoder layer, from 0, whose attention "
        "alignments and pictures show; null for the last",
        at_least=0,
    )
    attention_head: int | None = key(
        None,
        "with model.architecture transformer, its head, from 0; null for the mean of all",
        at_least=0,
    )
    precision: Literal["float32", "bfloat16"] = key(
        "float32",
        "of the weights and products in all verbs but train; bfloat16 is faster on processors that "
        "multiply it themselves, and may write other words where two are about equally likely "
        "(model.architecture transformer only)",
    )


DATES = {
    "data.target_language": "iso",
    "tokenizer.vocabulary_size": 200,
    "model.embedding_size": 64,
    "training.label_smoothing": 0.0,
    "training.early_stopping": "loss",
    "training.schedule": "cosine",
    "decoding.beam_size": 3,
}


@dataclass(frozen=True)
class TranslationConfig(Config):
    """All of it; `TranslationConfig()` suits a small corpus of one's own."""

    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    distribute: DistributeConfig = field(default_factory=DistributeConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)

    defaults: ClassVar[tuple[Defaults, ...]] = (
        Defaults({"data.dataset": "dates"}, DATES),
        Defaults(
            {"data.dataset": "dates", "model.architecture": RECURRENT},
            {
                "model.units": 48,
                "model.dropout": 0.0,
                "training.learning_rate": 1e-2,
                "training.epochs": 3,
            },
        ),
        Defaults(
            {"data.dataset": "dates", "model.architecture": "transformer"},
            {
                "model.feed_forward_size": 128,
                "model.layers": 2,
                "model.dropout": 0.1,
                "training.learning_rate": 2e-3,
                "training.beta_2": 0.98,
                "training.warmup_steps": 300,
                "training.epochs": 6,
            },
        ),
    )

    def __post_init__(self):
        model, decoding = self.model, self.decoding
        architecture = f"model.architecture {model.architecture}"
        is_transformer = model.architecture == "transformer"
        if model.share_embeddings and not self.tokenizer.shared:
            raise UserError("model.share_embeddings needs tokenizer.shared: one vocabulary.")
        layers = model.decoder_layers or model.layers
        for name, size in (("layer", layers), ("head", model.heads)):
            chosen = getattr(decoding, f"attention_{name}")
            if chosen is not None and not (is_transformer and chosen < size):
                has = f"the {name}s 0 to {size - 1}" if is_transformer else f"no {name}s to choose"
                raise UserError(
                    f"decoding.attention_{name}: {architecture} has {has}. Received: {chosen}."
                )
        if decoding.precision != "float32" and not is_transformer:
            raise UserError(
                f"decoding.precision {decoding.precision} goes with model.architecture "
                f"transformer only. Received: {model.architecture}."
            )
        without = "model.attention none" if model.attention == "none" else architecture
        for name, asked in (
            ("decoding.coverage_penalty", decoding.coverage_penalty),
            ("tokenizer.replace_unknown", self.tokenizer.replace_unknown),
        ):
            if asked and (model.architecture == "rnnencdec" or model.attention == "none"):
                raise UserError(
                    f"{name} needs attention, which {without} has not: train another. "
                    f"Received: {asked}."
                )
