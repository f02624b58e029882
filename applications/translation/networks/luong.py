"""The translation models of Luong, Pham and Manning (2015)."""

from typing import Any, Literal

import keras
from keras import ops

from keras_attention.layers import (
    AttentionDecoder,
    AttentionMechanism,
    LocalAttention,
    LuongAttention,
)

from ...base.network import recurrent_start
from ...errors import check_counts
from .base import TranslationModel
from .layers import StackedEncoder, padding_mask


@keras.saving.register_keras_serializable("keras_attention.translation")
class Luong(TranslationModel):
    """Stacked LSTMs with global or local attention.

    $$h_t = \\mathrm{LSTM}(h_{t-1}, E y_{t-1}), \\quad c_t = \\mathrm{attend}(h_t), \\quad
      \\tilde h_t = \\tanh(W_c [c_t; h_t]), \\quad p(y_t) = \\mathrm{softmax}(W_s \\tilde h_t)$$

    The encoder's last states, layer by layer, start the decoder; with `input_feeding` the LSTM
    reads $[E y_{t-1}; \\tilde h_{t-1}]$. With `reverse_source` the encoder reads from the last word
    to the first, and its last states are those at the first word. Annotations keep the words'
    order, so that alignments and windows mean the same.

    Args:
        source_vocabulary_size: Integer, how many source words there are, padding included.
        target_vocabulary_size: Integer, the same of the target.
        embedding_size: Integer, width of the embeddings (1000 in the paper).
        units: Integer, units of each layer (1000).
        layers: Integer, layers of encoder and decoder alike (4).
        attention: The attention mechanism, such as `LuongAttention` and `LocalAttention`; None for
            `LuongAttention("general")`. With False the context is zeros: the decoder knows no more
            of the source than the states that it starts from, as in the paper's base system.
        encoder: A layer from embedded words `(B, S, E)` and their `mask` to
            annotations and states, which start the decoder; None for stacked LSTMs.
        cell: The decoder's cell, or a stack of cells, which starts from the encoder's states; None
            for stacked LSTMs.
        input_feeding: Boolean, whether $\\tilde h_{t-1}$ joins the input.
        reverse_source: Boolean, whether the encoder reads backwards (section 4.1; not with an
            `encoder` of your own).
        readout_size: Integer, width of $\\tilde h_t$; None for `units`.
        dropout: Rate of the dropout on embeddings, between the layers, on annotations and on
            $\\tilde h_t$ (0.2).
        **kwargs: `tie_embeddings` (which needs `readout_size == embedding_size`), `name`, `dtype`
            and `embeddings_initializer` (uniform within 1; 0.1 in the paper) of
            `TranslationModel`; inputs and results are as there.

    Reference:
        - [Luong et al., 2015](https://arxiv.org/abs/1508.04025)
    """

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        embedding_size: int = 1000,
        units: int = 1000,
        layers: int = 4,
        attention: AttentionMechanism | Literal[False] | None = None,
        encoder: keras.layers.Layer | None = None,
        input_feeding: bool = True,
        readout_size: int | None = None,
        dropout: float = 0.0,
        reverse_source: bool = False,
        cell: keras.layers.Layer | None = None,
        **kwargs,
    ):
        check_counts(layers=layers)
        if reverse_source and encoder is not None:
            raise ValueError(
                "`reverse_source` goes with the default encoder: give one that reads backwards, or "
                f"leave it out. Received: reverse_source={reverse_source}, encoder={encoder}"
            )
        sizes = source_vocabulary_size, target_vocabulary_size, embedding_size
        # Keras' own start, within 0.05, leaves the top LSTM's states nearly 0 and alike (ADR 16).
        kwargs = {"embeddings_initializer": keras.initializers.RandomUniform(-1.0, 1.0), **kwargs}
        super().__init__(*sizes, readout_size or units, dropout, **kwargs)
        self.keep(units=units, input_feeding=input_feeding, readout_size=readout_size)
        self.keep(reverse_source=reverse_source)
        self.depth, self.has_attention = layers, attention is not False
        policy = {"dtype": self.dtype_policy}
        self.encoder = self.part(
            "encoder",
            encoder,
            lambda: StackedEncoder(
                units, layers, dropout, reverse_source, name="encoder", **policy
            ),
        )
        score = "general" if self.has_attention else "dot"  # which has no weights
        attention = self.part(
            "attention",
            attention or None,
            lambda: LuongAttention(score, name="attention", **policy),
        )
        self.decoder = AttentionDecoder(
            self.part("cell", cell, lambda: stacked_cells(units, layers, dropout, **policy)),
            attention,
            query="current",
            attention_size=self.feature_size,
            input_feeding=input_feeding,
            name="decoder",
            **policy,
        )
        self.build()

    def build(self, input_shape=None):
        super().build()
        words = (None, None, self.embedding_size)
        if not self.encoder.built:
            self.encoder.build(words)
        annotations = self.encoder.compute_output_shape(words)[0]
        if not isinstance(annotations, (tuple, list)):
            raise ValueError(
                "`encoder` should return annotations and the states that start the decoder. "
                f"Received: {self.encoder}, which returns one tensor"
            )
        self.decoder.build(words, annotations)

    def encode(self, source, training=False):
        mask = padding_mask(source)
        words = self.embed_source(source, training)
        annotations, *states = self.encoder(words, mask=mask, training=training)
        if not self.has_attention:
            mask = ops.zeros_like(mask)  # nothing to attend to: the context is zeros
        return self.dropout(annotations, training=training), mask, keras.tree.flatten(states)

    def decode(self, source, target, training=False, return_attention_scores=False):
        annotations, mask, states = self.encode(source, training)
        results = self.decoder(
            self.embed_target(target, training),
            annotations,
            initial_state=states,
            value_mask=mask,
            return_attention_scores=return_attention_scores and self.has_attention,
            training=training,
        )
        return results if isinstance(results, tuple) else (results, None)

    def advance(self, words, state):
        outputs, scores, decoder = self.decoder.step(words, state["memory"], state["decoder"])
        return outputs, {**state, "decoder": decoder, "attention_scores": scores}

    def get_config(self):
        parts = {"attention": self.decoder.attention, "cell": self.decoder.cell}
        parts = self.config_of(**parts, encoder=self.encoder)
        parts |= {} if self.has_attention else {"attention": False}
        return {**super().get_config(), "layers": self.depth, **parts}


def stacked_cells(units: int, layers: int, dropout: float, **policy) -> keras.layers.Layer:
    """Return LSTM cells one above the other, with dropout between them, or the only one."""
    rates = [0.0] + [dropout] * (layers - 1)
    start = {"recurrent_initializer": recurrent_start(policy.get("dtype"))}
    cells = [
        keras.layers.LSTMCell(units, dropout=rate, name=f"cell_{index}", **start, **policy)
        for index, rate in enumerate(rates)
    ]
    return keras.layers.StackedRNNCells(cells, name="cells", **policy) if layers > 1 else cells[0]


def luong_attention(
    units, kind, score, attention_units=None, half_width=None, max_source_length=100, dtype=None
) -> AttentionMechanism | Literal[False]:
    """Return one of the paper's mechanisms by the names of `ModelConfig`; False for none.

    `units` are the network's; a location score tells `max_source_length` source words apart.
    """
    if kind == "none":
        return False
    with_units = score == "concat" or kind == "local-p"
    arguments = {
        "score": score,
        "units": (attention_units or units) if with_units else None,
        "max_length": max_source_length if score == "location" else None,
        "name": "attention",
        "dtype": dtype,
    }
    if kind == "global":
        return LuongAttention(**arguments)
    alignment = {"local-m": "monotonic", "local-p": "predictive"}[kind]
    return LocalAttention(half_width or 10, alignment=alignment, **arguments)


def settings_of_attention(network: Luong) -> dict[str, Any]:
    """Return the keys of a configuration that say which of the paper's mechanisms a network has."""
    attention = network.decoder.attention
    if not network.has_attention:
        return {"model.attention": "none"}
    if not isinstance(attention, LuongAttention):
        return {}
    found = {"model.attention": "global", "model.score": attention.score_name}
    if attention.units is not None:
        found["model.attention_units"] = attention.units
    if isinstance(attention, LocalAttention):
        kind = {"monotonic": "local-m", "predictive": "local-p"}[attention.alignment]
        found |= {"model.attention": kind, "model.half_width": attention.half_width}
    return found
