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


@dataclass(frozen=True)
class ModelConfig:
    """The model.

    Args:
        architecture: rnnsearch (bidirectional GRU, Bahdanau attention), luong (stacked LSTM,
            Luong attention) or rnnencdec (no attention, to compare with).
        embedding_size: width of the word embeddings.
        units: width of the recurrent layers.
        layers: recurrent layers of encoder and decoder; null for 2 in luong, while the others
            have 1.
        attention: over the whole sentence, or local with a monotonic or predicted window (luong
            only; null for global).
        score: how attention compares a query with a position (luong only; null for general).
        attention_units: width of an additive score (rnnsearch, luong with score concat) or of the
            prediction of a window (luong with attention local-p); null for units.
        half_width: positions on either side of the middle of a window (luong with attention
            local-m or local-p only; null for 10).
        input_feeding: feed the attentional vector into the next step (luong only; null for true).
        dropout: rate of dropout.
        readout_size: width of the layer before the word scores; null for the architecture's own.
        tie_embeddings: use the target embedding as the output matrix too.
    """

    architecture: Literal["rnnsearch", "luong", "rnnencdec"] = "rnnsearch"
    embedding_size: int = 256
    units: int = 256
    layers: int | None = None
    attention: Literal["global", "local-m", "local-p"] | None = None
    score: Literal["dot", "general", "concat", "location"] | None = None
    attention_units: int | None = None
    half_width: int | None = None
    input_feeding: bool | None = None
    dropout: float = 0.3
    readout_size: int | None = None
    tie_embeddings: bool = False

    def __post_init__(self):
        sizes = ("embedding_size", "units", "layers", "attention_units", "half_width")
        for name in (*sizes, "readout_size"):
            check_range(f"model.{name}", getattr(self, name), at_least=1)
        check_range("model.dropout", self.dropout, at_least=0, below=1)
        self._fill(["layers", "attention", "score", "input_feeding"], self.architecture == "luong")
        self._fill(["half_width"], self.attention in ("local-m", "local-p"))
        additive = self.score == "concat" or self.attention == "local-p"
        if self.attention_units and not (additive or self.architecture == "rnnsearch"):
            raise _does_not_apply(self, "attention_units")
        if self.attention != "global" and self.score == "location":
            raise UserError("model.score location goes with model.attention global only.")

    def _fill(self, names: list[str], applies: bool) -> None:
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
