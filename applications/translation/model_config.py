"""The `model` section of the translation application's configuration."""

from dataclasses import dataclass
from typing import Any, Literal

from keras_attention.applications.common.checks import check_range
from keras_attention.applications.common.errors import UserError

# What null stands for in the keys that only architecture luong has.
LUONG = {
    "layers": 2,
    "attention": "global",
    "score": "general",
    "half_width": 10,
    "input_feeding": True,
}
# The same of transformer.
TRANSFORMER = {
    "size": "tiny",
    "attention_dropout": 0.0,
    "activation": "relu",
    "norm": "post",
    "positions": "sinusoidal",
    "tie_embeddings": True,
}
SIZES = {
    "tiny": {"embedding_size": 128, "feed_forward_size": 256, "layers": 4, "heads": 4},
    "base": {"embedding_size": 512, "feed_forward_size": 2048, "layers": 6, "heads": 8},
}


@dataclass(frozen=True)
class ModelConfig:
    """The model.

    Args:
        architecture: rnnsearch (bidirectional GRU, Bahdanau attention), luong (stacked LSTM,
            Luong attention), rnnencdec (no attention, to compare with) or transformer.
        size: where the sizes of a transformer come from that are not given: tiny (4 layers each,
            128 wide, feed-forward 256, 4 heads) or base (6, 512, 2048, 8) (transformer only; null
            for tiny).
        embedding_size: width of the word embeddings, and of all layers in a transformer; null for
            256, or the size's.
        units: width of the recurrent layers; null for 256 (not transformer).
        layers: layers of encoder and decoder; null for 2 in luong and the size's in transformer,
            while the others have 1.
        heads: attention heads (transformer only; null for the size's).
        feed_forward_size: width of the hidden layer of the feed-forward networks (transformer
            only; null for the size's).
        attention: over the whole sentence, or local with a monotonic or predicted window (luong
            only; null for global).
        score: how attention compares a query with a position (luong only; null for general).
        attention_units: width of an additive score (rnnsearch, luong with score concat) or of the
            prediction of a window (luong with attention local-p); null for units.
        half_width: positions on either side of the middle of a window (luong with attention
            local-m or local-p only; null for 10).
        input_feeding: feed the attentional vector into the next step (luong only; null for true).
        activation: of the feed-forward networks; geglu and swiglu are gated (transformer only; null
            for relu).
        norm: layer normalisation after each residual sum, as published, or pre, before each
            sublayer (transformer only; null for post).
        positions: sinusoidal, added to the embeddings as published, or in the scores of the
            self-attentions (transformer only; null for sinusoidal).
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
    size: Literal["tiny", "base"] | None = None
    embedding_size: int | None = None
    units: int | None = None
    layers: int | None = None
    heads: int | None = None
    feed_forward_size: int | None = None
    attention: Literal["global", "local-m", "local-p"] | None = None
    score: Literal["dot", "general", "concat", "location"] | None = None
    attention_units: int | None = None
    half_width: int | None = None
    input_feeding: bool | None = None
    activation: Literal["relu", "gelu", "geglu", "swiglu"] | None = None
    norm: Literal["post", "pre"] | None = None
    positions: Literal["sinusoidal", "rotary", "alibi", "relative"] | None = None
    dropout: float = 0.3
    attention_dropout: float | None = None
    readout_size: int | None = None
    tie_embeddings: bool | None = None
    share_embeddings: bool | None = None

    def __post_init__(self):
        sizes = ("embedding_size", "units", "layers", "attention_units", "half_width", "heads")
        for name in (*sizes, "readout_size", "feed_forward_size"):
            check_range(f"model.{name}", getattr(self, name), at_least=1)
        for name in ("dropout", "attention_dropout"):
            check_range(f"model.{name}", getattr(self, name), at_least=0, below=1)
        if self.architecture == "transformer":
            self._fill_transformer()
        else:
            self._fill_recurrent()

    def _fill_transformer(self) -> None:
        self._refuse("units", "readout_size", "attention_units", "half_width")
        self._refuse(*(name for name in LUONG if name != "layers"))
        self._fill(TRANSFORMER)
        self._fill(SIZES[self.size])
        if self.embedding_size % self.heads:
            raise UserError(
                f"model.heads must divide model.embedding_size ({self.embedding_size}). "
                f"Received: {self.heads}."
            )

    def _fill_recurrent(self) -> None:
        self._refuse("heads", "feed_forward_size", "share_embeddings")
        self._refuse(*(name for name in TRANSFORMER if name != "tie_embeddings"))
        luong = ("layers", "attention", "score", "input_feeding")
        self._fill_or_refuse(luong, self.architecture == "luong")
        self._fill_or_refuse(["half_width"], self.attention in ("local-m", "local-p"))
        additive = self.score == "concat" or self.attention == "local-p"
        if self.attention_units and not (additive or self.architecture == "rnnsearch"):
            raise _does_not_apply(self, "attention_units")
        if self.attention != "global" and self.score == "location":
            raise UserError("model.score location goes with model.attention global only.")

    def _fill(self, values: dict) -> None:
        """Put values where keys are null."""
        for name, value in values.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    def _refuse(self, *names: str) -> None:
        """Refuse keys that are not null."""
        for name in names:
            if getattr(self, name) is not None:
                raise _does_not_apply(self, name)

    def _fill_or_refuse(self, names, applies: bool) -> None:
        """Put the values that null stands for where keys apply; refuse others where they do not.

        A value that says nothing else than the architecture does is let through: one layer, and
        what null stands for, with which configurations were written before null was the default.
        """
        for name in names:
            value = getattr(self, name)
            if applies and value is None:
                object.__setattr__(self, name, LUONG[name])
            elif not applies and value not in (None, LUONG[name]):
                if name == "layers" and value == 1:
                    continue
                raise _does_not_apply(self, name)


def _does_not_apply(config: ModelConfig, name: str) -> UserError:
    value: Any = getattr(config, name)
    chosen = f"model.architecture {config.architecture}"
    if config.architecture == "luong":
        chosen += f" with model.attention {config.attention} and model.score {config.score}"
    return UserError(
        f"model.{name} does not apply to {chosen}: leave it out, or null. Received: {value}."
    )
