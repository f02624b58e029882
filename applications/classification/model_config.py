"""The `model` section of the classification application's configuration."""

from dataclasses import dataclass
from typing import Literal

from keras_attention.applications.common.checks import check_range
from keras_attention.applications.common.errors import UserError

PAIRS = ("cross", "inner")
RECURRENT = ("pooling", "mean", "han", "cross", "inner")
STACKS = ("self-attention", "transformer")
# What a backbone has, or does, itself.
NOT_OF_BACKBONES = ("embedding_size", "embedding_dropout", "word_dropout")

# What null stands for in keys that only some architectures have.
DEFAULTS = {
    "encoder": ("gru", RECURRENT),
    "attention_units": (None, ("pooling", "han", *STACKS, "cross", "backbone")),
    "layers": (2, STACKS),
    "heads": (4, STACKS),
    "positions": ("relative", STACKS),
    "feed_forward": (None, ("transformer",)),
    "layer_dropout": (0.1, STACKS),
    "inner_attention": ("word", ("inner",)),
    "backbone": (None, ("backbone",)),
    "fine_tune": (False, ("backbone",)),
}


@dataclass(frozen=True)
class ModelConfig:
    """The model.

    Args:
        architecture: of single texts: pooling (bidirectional GRU, attention pooling),
            self-attention (multi-head attention layers, no recurrence), transformer, han
            (hierarchical: words, then sentences) or mean (as pooling, without attention, to
            compare with); of pairs: cross (each text attends to the other) or inner (each text is
            read under a question from the other); of both: backbone (a pretrained model of
            keras_nlp, its states under attention pooling).
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
        backbone: the name of a preset of keras_nlp, like bert_tiny_en_uncased, or a folder that
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

    def __post_init__(self):
        sizes = ("embedding_size", "units", "attention_units", "layers", "heads", "feed_forward")
        for name in sizes:
            check_range(f"model.{name}", getattr(self, name), at_least=1)
        for name in ("dropout", "embedding_dropout", "layer_dropout", "word_dropout"):
            check_range(f"model.{name}", getattr(self, name), at_least=0, below=1)
        for name, (_, architectures) in DEFAULTS.items():
            value = getattr(self, name)
            if value is not None and self.architecture not in architectures:
                raise UserError(
                    f"model.{name} does not apply to model.architecture {self.architecture}: leave "
                    f"it out, or null. Received: {value}."
                )
        if self.architecture == "backbone":
            self._check_backbone()
        if self.architecture in STACKS and self.embedding_size % self.chosen("heads"):
            raise UserError(
                "model.heads must divide model.embedding_size. Received: "
                f"{self.chosen('heads')} and {self.embedding_size}."
            )

    def _check_backbone(self):
        if not self.backbone:
            raise UserError(
                "model.architecture backbone needs model.backbone: the name of a preset of "
                "keras_nlp, like bert_tiny_en_uncased, or a folder that save_to_preset wrote."
            )
        for name in NOT_OF_BACKBONES:
            if (value := getattr(self, name)) != type(self).__dataclass_fields__[name].default:
                raise UserError(
                    f"model.{name} does not apply to model.architecture backbone: leave it out. "
                    f"Received: {value}."
                )

    def chosen(self, name: str):
        """Return the value of a key that only some architectures have, or what null stands for."""
        value = getattr(self, name)
        return DEFAULTS[name][0] if value is None else value
