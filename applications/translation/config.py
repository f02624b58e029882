"""The configuration of the translation application."""

from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from keras_attention.decoding import SearchOptions

from ..common.errors import UserError, check_number, check_range, check_ranges, check_unused
from ..training import config as training_config
from ..training.devices import DistributeConfig

SPLITS = ("train", "dev", "test")
PARTS = ("source", "target", "tsv")
FILES = tuple(f"{split}_{part}" for split in SPLITS for part in PARTS)


@dataclass(frozen=True)
class DataConfig:
    """Where the sentences come from: a known data set, two parallel files, or a TSV.

    Args:
        dataset: a known data set: dates (made by this package) or multi30k.
        folder: where the files of multi30k lie; null to fetch them into the cache.
        source_language: code of the language translated from, like en; chooses the side of
            multi30k, and the rules by which documents are cut into sentences.
        target_language: code of the language translated into, by which BLEU cuts texts into words
            (zh, ja and ko have tokenizers of their own).
        train_source: file of source sentences, one a line (plain or .gz).
        train_target: file of their translations, parallel by line.
        dev_source: the same of the development set, which training is judged by.
        dev_target: the same of the development set.
        dev_fraction: without a development set, the part of the training sentences, drawn at
            random, that becomes one.
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
    dev_fraction: float = 0.0
    test_source: str | None = None
    test_target: str | None = None
    train_tsv: str | None = None
    dev_tsv: str | None = None
    test_tsv: str | None = None
    max_length: int = 100
    on_too_long: Literal["error", "skip", "truncate"] = "error"
    on_empty: Literal["error", "skip"] = "error"

    paths: ClassVar[tuple[str, ...]] = ("folder", *FILES)

    def __post_init__(self):
        check_range("data.max_length", self.max_length, at_least=1)
        check_range("data.dev_fraction", self.dev_fraction, at_least=0, below=1)
        if self.folder and self.dataset != "multi30k":
            raise UserError(
                "data.folder goes with data.dataset multi30k only. "
                f"Received: data.folder={self.folder}, data.dataset={self.dataset}."
            )
        for split in SPLITS:
            self._check_split(split)

    def _check_split(self, split):
        source, target, tsv = (getattr(self, f"{split}_{part}") for part in PARTS)
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


MOST_VARIANTS = 1000


@dataclass(frozen=True)
class TokenizerConfig:
    """How sentences become tokens.

    Args:
        kind: sentencepiece (pieces of words, trained on the training text) or words.
        vocabulary_size: how many different tokens at most, the special ones included.
        shared: one vocabulary for both sides, else one each.
        lowercase: make the text lower case first.
        min_count: words that occur less often are unknown (words only).
        model_type: how SentencePiece chooses its pieces (sentencepiece only).
        replace_unknown: put the source word with the highest attention weight where the model
            writes an unknown word (words only).
        variants: in how many random ways, 1000 at most, to cut each training sentence into pieces
            (subword regularisation). An epoch has each sentence once, in another way than the
            epoch before; 1 for the likeliest way alone (sentencepiece only).
        sampling: how the ways are drawn, from 0 to 1. Of model_type bpe the probability that a
            merge is left out (BPE dropout, Provilkov et al. 2020): 0 is not random, 1 gives single
            characters. Of unigram the exponent of a way's probability (Kudo 2018): 0 draws all
            ways alike, 1 draws likely ways more often.
    """

    kind: Literal["sentencepiece", "words"] = "sentencepiece"
    vocabulary_size: int = 8000
    shared: bool = False
    lowercase: bool = False
    min_count: int = 1
    model_type: Literal["unigram", "bpe"] = "unigram"
    replace_unknown: bool = False
    variants: int = 1
    sampling: float = 0.1

    def __post_init__(self):
        check_range("tokenizer.vocabulary_size", self.vocabulary_size, at_least=5)
        check_ranges("tokenizer", self, ("min_count",), at_least=1)
        check_number("tokenizer.variants", self.variants, 1, MOST_VARIANTS, whole=True)
        check_number("tokenizer.sampling", self.sampling, 0, 1)
        of_words, of_pieces = ("min_count", "replace_unknown"), ("model_type", "variants")
        others = of_words if self.kind == "sentencepiece" else of_pieces
        other = "words" if self.kind == "sentencepiece" else "sentencepiece"
        check_unused("tokenizer", self, others, f"goes with tokenizer.kind {other} only.")
        if self.variants == 1:
            check_unused(
                "tokenizer", self, ["sampling"], "goes with tokenizer.variants above 1 only."
            )


# The keys that only some architectures have, and the value that null stands for.
_RECURRENT = {"units": None, "readout_size": None}
OWN_KEYS = {
    "rnnsearch": {**_RECURRENT, "attention_units": None},
    "rnnencdec": _RECURRENT,
    "luong": {**_RECURRENT, "attention_units": None, "half_width": None}
    | {"layers": 2, "attention": "global", "score": "general", "input_feeding": True}
    | {"reverse_source": False},
    "transformer": dict.fromkeys(("layers", "decoder_layers", "heads", "feed_forward_size"))
    | {"share_embeddings": None, "size": "tiny", "attention_dropout": 0.0}
    | {"activation": "relu", "norm": "post", "positions": "sinusoidal"}
    | {"autoregression": "self-attention"},
}
SIZES = {
    "tiny": {"embedding_size": 128, "feed_forward_size": 256, "layers": 4, "heads": 4},
    "fast": {"embedding_size": 128, "feed_forward_size": 256, "layers": 6, "heads": 4}
    | {"decoder_layers": 1},
    "base": {"embedding_size": 512, "feed_forward_size": 2048, "layers": 6, "heads": 8},
}
HALF_WIDTH = 10
# Values that only repeat the default of a recurrent architecture: version 0.1 wrote them into
# configurations, where newer ones have null.
SAYS_NOTHING = {"layers": (1, 2), "half_width": (HALF_WIDTH,), "input_feeding": (True,)} | {
    "attention": ("global",),
    "score": ("general",),
}


@dataclass(frozen=True)
class ModelConfig:
    """The model.

    Args:
        architecture: rnnsearch (bidirectional GRU, Bahdanau attention), luong (stacked LSTM,
            Luong attention), rnnencdec (no attention, to compare with) or transformer.
        size: where the sizes of a transformer come from that are not given: tiny (4 layers each,
            128 wide, feed-forward 256, 4 heads), fast (6 and 1 layers, as wide: a deep encoder and
            a shallow decoder, Kasai et al. 2021) or base (6, 512, 2048, 8) (transformer only; null
            for tiny).
        embedding_size: width of the word embeddings, and of all layers in a transformer; null for
            256, or the size's.
        units: width of the recurrent layers; null for 256 (not transformer).
        layers: layers of encoder and decoder; null for 2 in luong and the size's in transformer,
            while the others have 1.
        decoder_layers: layers of the decoder, where it has not as many as the encoder (transformer
            only; null for the size's, or as many).
        heads: attention heads (transformer only; null for the size's).
        feed_forward_size: width of the hidden layer of the feed-forward networks (transformer
            only; null for the size's).
        attention: over the whole sentence, local with a monotonic or predicted window, or none, to
            compare with (luong only; null for global).
        score: how attention compares a query with a position (luong only; null for general).
        attention_units: width of an additive score (rnnsearch, luong with score concat) or of the
            prediction of a window (luong with attention local-p); null for units.
        half_width: positions on either side of the middle of a window (luong with attention
            local-m or local-p only; null for 10).
        input_feeding: feed the attentional vector into the next step (luong only; null for true).
        reverse_source: the encoder reads from the last word to the first (luong only; null for
            false).
        activation: of the feed-forward networks; geglu and swiglu are gated (transformer only; null
            for relu).
        norm: layer normalisation after each residual sum, as published, or pre, before each
            sublayer (transformer only; null for post).
        positions: sinusoidal, added to the embeddings as published, or in the scores of the
            self-attentions (transformer only; null for sinusoidal).
        autoregression: the decoder's sublayer that reads the earlier words: self-attention, as
            published, or ssru, a recurrent unit that is cheaper in a search (Kim et al. 2019;
            transformer only; null for self-attention).
        dropout: rate of dropout.
        attention_dropout: rate at which attention weights are dropped (transformer only; null for
            0).
        readout_size: width of the layer before the word scores; null for the architecture's own
            (not transformer).
        tie_embeddings: use the target embedding as the output matrix too; null for true in
            transformer and false elsewhere.
        share_embeddings: one embedding for source and target, with tokenizer.shared (transformer
            only; null for tokenizer.shared).
    """

    architecture: Literal["rnnsearch", "luong", "rnnencdec", "transformer"] = "rnnsearch"
    size: Literal["tiny", "fast", "base"] | None = None
    embedding_size: int | None = None
    units: int | None = None
    layers: int | None = None
    decoder_layers: int | None = None
    heads: int | None = None
    feed_forward_size: int | None = None
    attention: Literal["global", "local-m", "local-p", "none"] | None = None
    score: Literal["dot", "general", "concat", "location"] | None = None
    attention_units: int | None = None
    half_width: int | None = None
    input_feeding: bool | None = None
    reverse_source: bool | None = None
    activation: Literal["relu", "gelu", "geglu", "swiglu"] | None = None
    norm: Literal["post", "pre"] | None = None
    positions: Literal["sinusoidal", "rotary", "alibi", "relative"] | None = None
    autoregression: Literal["self-attention", "ssru"] | None = None
    dropout: float = 0.3
    attention_dropout: float | None = None
    readout_size: int | None = None
    tie_embeddings: bool | None = None
    share_embeddings: bool | None = None

    def __post_init__(self):
        sizes = ("embedding_size", "units", "layers", "attention_units", "half_width", "heads")
        sizes = (*sizes, "readout_size", "feed_forward_size", "decoder_layers")
        check_ranges("model", self, sizes, at_least=1)
        check_ranges("model", self, ("dropout", "attention_dropout"), at_least=0, below=1)
        own = OWN_KEYS[self.architecture]
        self._refuse(*(key for keys in OWN_KEYS.values() for key in keys if key not in own))
        self._fill(own)
        if self.architecture == "luong":
            self._check_luong()
        if self.architecture == "transformer":
            self._fill({"tie_embeddings": True, **SIZES[self.size]})
            if self.embedding_size % self.heads:
                raise UserError(
                    f"model.heads must divide model.embedding_size ({self.embedding_size}). "
                    f"Received: {self.heads}."
                )

    def _check_luong(self) -> None:
        if self.attention == "none":
            self._refuse("half_width", "score")
        elif self.attention == "global":
            self._refuse("half_width")
        else:
            self._fill({"half_width": HALF_WIDTH})
        if self.score != "concat" and self.attention != "local-p":
            self._refuse("attention_units")
        if self.attention.startswith("local") and self.score == "location":
            raise UserError(
                "model.score location goes with model.attention global only. "
                f"Received: {self.attention}."
            )

    def _fill(self, values: dict) -> None:
        """Put values where keys are null."""
        for name, value in values.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    def _refuse(self, *names: str) -> None:
        """Refuse keys that are not null."""
        nothing = {} if self.architecture == "transformer" else SAYS_NOTHING
        chosen = f"model.architecture {self.architecture}"
        if self.architecture == "luong" and self.attention:
            chosen += f" with model.attention {self.attention} and model.score {self.score}"
        names = [name for name in names if getattr(self, name) not in nothing.get(name, ())]
        check_unused("model", self, names, f"does not apply to {chosen}: leave it out, or null.")


@dataclass(frozen=True)
class TrainingConfig(training_config.TrainingConfig):
    """How a translator is trained.

    Args:
        batch_tokens: make batches of so many tokens instead of batch_size sentences, padding
            included, counted on the longer side; batches of short sentences then hold more.
        buckets: how many lengths batches are padded to. Fewer pad more, and start sooner on JAX,
            which compiles a program for each.
        consistency: weight of R-Drop (Liang et al. 2021): each batch passes twice, with other
            dropouts, and the two predictions are drawn together. Takes twice the time; the paper
            has 5, 0 is off.
    """

    label_smoothing: float = 0.1
    consistency: float = 0.0
    batch_tokens: int | None = None
    buckets: int = 8
    early_stopping: Literal["bleu", "loss", "none"] = "bleu"

    def __post_init__(self):
        super().__post_init__()
        check_ranges("training", self, ("batch_tokens", "buckets"), at_least=1)
        check_number("training.consistency", self.consistency, 0)


@dataclass(frozen=True, kw_only=True)
class DecodingConfig(SearchOptions):
    """How to search for a translation: `SearchOptions`, and the attention to show of it.

    Args:
        attention_layer: the decoder layer, from 0, whose attention alignments and pictures show
            (model.architecture transformer only; null for the last).
        attention_head: its head, from 0 (transformer only; null for the mean of all).
        precision: of the weights and products in all verbs but train; bfloat16 is faster on
            processors that multiply it themselves, and may write other words where two are about
            equally likely (transformer only).
    """

    attention_layer: int | None = None
    attention_head: int | None = None
    precision: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self):
        super().__post_init__()
        check_ranges("decoding", self, ("attention_layer", "attention_head"), at_least=0)

    def search(self) -> SearchOptions:
        """Return the options of the search alone."""
        return SearchOptions(**{f.name: getattr(self, f.name) for f in fields(SearchOptions)})


@dataclass(frozen=True)
class TranslationConfig:
    """All of it; `TranslationConfig()` suits a small corpus of one's own."""

    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    distribute: DistributeConfig = DistributeConfig()
    decoding: DecodingConfig = DecodingConfig()

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
        if self.training.consistency and not (model.dropout or model.attention_dropout):
            raise UserError(
                "training.consistency draws the predictions of two dropouts together: set "
                f"model.dropout above 0. Received: {self.training.consistency}."
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


_DATES = (
    "--data.target_language=iso --tokenizer.vocabulary_size=200 --model.embedding_size=64 "
    "--training.label_smoothing=0.0 --training.early_stopping=loss "
    "--training.schedule=cosine --decoding.beam_size=3 "
)
_OF_RECURRENT = (
    "--model.units=48 --model.dropout=0.0 --training.learning_rate=1e-2 --training.epochs=3"
)
_OF_TRANSFORMER = (
    "--model.feed_forward_size=128 --model.layers=2 --model.dropout=0.1 "
    "--training.learning_rate=2e-3 --training.beta_2=0.98 --training.warmup_steps=300 "
    "--training.epochs=6"
)
# What a known data set changes in the defaults; a configuration file or an option goes first.
PRESETS = {
    "dates": (_DATES + _OF_RECURRENT).split(),
    "dates with model.architecture transformer": (_DATES + _OF_TRANSFORMER).split(),
}
