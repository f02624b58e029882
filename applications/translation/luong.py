"""The translation models of Luong, Pham and Manning (2015)."""

import keras

from keras_attention.applications.translation.base import TranslationModel, no_scores
from keras_attention.applications.translation.encoders import StackedEncoder, padding_mask
from keras_attention.layers import AttentionDecoder, LocalAttention, LuongAttention

ATTENTIONS = ("global", "local-m", "local-p")


@keras.saving.register_keras_serializable("keras_attention.translation")
class Luong(TranslationModel):
    """Stacked LSTMs with global or local attention.

    $$h_t = \\mathrm{LSTM}(h_{t-1}, E y_{t-1}), \\quad c_t = \\mathrm{attend}(h_t), \\quad
      \\tilde h_t = \\tanh(W_c [c_t; h_t]), \\quad p(y_t) = \\mathrm{softmax}(W_s \\tilde h_t)$$

    The encoder's last states, layer by layer, start the decoder; with `input_feeding` the LSTM
    reads $[E y_{t-1}; \\tilde h_{t-1}]$. The source is read in its own order (the paper's local-m
    models read it reversed, which is left to who prepares the text).

    Args:
        source_vocabulary_size: Integer, how many source words there are, padding included.
        target_vocabulary_size: Integer, the same of the target.
        embedding_size: Integer, width of the embeddings (1000 in the paper).
        units: Integer, units of each layer (1000).
        layers: Integer, layers of encoder and decoder alike (4).
        attention: `"global"`, `"local-m"` (the window moves on with the target) or `"local-p"` (its
            place is predicted).
        score: `"dot"`, `"general"`, `"concat"` or `"location"`.
        attention_units: Integer, units of the concat score and of the predicted place; None for
            `units`.
        half_width: Integer, words on either side of the place that local attention sees (10).
        max_source_length: Integer, how many source words the location score tells apart; words
            past it get no weight.
        input_feeding: Boolean, whether $\\tilde h_{t-1}$ joins the input.
        readout_size: Integer, width of $\\tilde h_t$; None for `units`.
        dropout: Rate of the dropout on embeddings, between the layers, on annotations and on
            $\\tilde h_t$ (0.2).
        tie_embeddings: Boolean, whether the target embedding serves as $W_s$ too; needs
            `readout_size == embedding_size`.
        **kwargs: `name`, `dtype` and the like of `keras.Model`.

    Call arguments:
        inputs: Dict of token ids, `"source"` `(B, S)` and `"target"` `(B, T)`.
        training: Boolean, whether dropout acts.

    Returns:
        Logits `(B, T, target_vocabulary_size)`.

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
        attention: str = "global",
        score: str = "general",
        attention_units: int | None = None,
        half_width: int = 10,
        max_source_length: int = 100,
        input_feeding: bool = True,
        readout_size: int | None = None,
        dropout: float = 0.0,
        tie_embeddings: bool = False,
        **kwargs,
    ):
        super().__init__(
            source_vocabulary_size,
            target_vocabulary_size,
            embedding_size,
            feature_size=readout_size or units,
            dropout=dropout,
            tie_embeddings=tie_embeddings,
            **kwargs,
        )
        self.units = units
        self.depth = layers
        self.attention = attention
        self.score_name = score
        self.attention_units = attention_units
        self.half_width = half_width
        self.max_source_length = max_source_length
        self.input_feeding = input_feeding
        self.readout_size = readout_size
        policy = {"dtype": self.dtype_policy}
        self.encoder = StackedEncoder(units, layers, dropout=dropout, name="encoder", **policy)
        cells = [
            keras.layers.LSTMCell(
                units, dropout=dropout if index else 0.0, name=f"cell_{index}", **policy
            )
            for index in range(layers)
        ]
        self.decoder = AttentionDecoder(
            cells[0]
            if layers == 1
            else keras.layers.StackedRNNCells(cells, name="cells", **policy),
            self._mechanism(),
            query="current",
            attention_size=self.feature_size,
            input_feeding=input_feeding,
            name="decoder",
            **policy,
        )
        self.build()

    def _mechanism(self):
        if self.attention not in ATTENTIONS:
            raise ValueError(
                f"`attention` must be one of {ATTENTIONS}. Received: attention={self.attention!r}"
            )
        with_units = self.score_name == "concat" or self.attention == "local-p"
        arguments = {
            "score": self.score_name,
            "units": (self.attention_units or self.units) if with_units else None,
            "max_length": self.max_source_length if self.score_name == "location" else None,
            "name": "attention",
            "dtype": self.dtype_policy,
        }
        if self.attention == "global":
            return LuongAttention(**arguments)
        alignment = {"local-m": "monotonic", "local-p": "predictive"}[self.attention]
        return LocalAttention(self.half_width, alignment=alignment, **arguments)

    def build(self, input_shape=None):
        super().build()
        words = (None, None, self.embedding_size)
        self.encoder.build(words)
        self.decoder.build(words, (None, None, self.units))

    def encode(self, source, training=False):
        mask = padding_mask(source)
        words = self.embed_source(source, training)
        annotations, states = self.encoder(words, mask=mask, training=training)
        return self.dropout(annotations, training=training), mask, states

    def decode(self, source, target, training=False, return_attention_scores=False):
        annotations, mask, states = self.encode(source, training)
        results = self.decoder(
            self.embed_target(target, training),
            annotations,
            initial_state=states,
            value_mask=mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )
        return results if return_attention_scores else (results, None)

    def start(self, source, max_length=None):
        annotations, mask, states = self.encode(source)
        memory = self.decoder.prepare_memory(annotations, mask=mask)
        return {
            "memory": memory,
            "decoder": self.decoder.initial_state(memory, initial_state=states),
            "attention_scores": no_scores(source, annotations.dtype),
        }

    def advance(self, words, state):
        outputs, scores, decoder = self.decoder.step(words, state["memory"], state["decoder"])
        return outputs, {**state, "decoder": decoder, "attention_scores": scores}

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "layers": self.depth,
            "attention": self.attention,
            "score": self.score_name,
            "attention_units": self.attention_units,
            "half_width": self.half_width,
            "max_source_length": self.max_source_length,
            "input_feeding": self.input_feeding,
            "readout_size": self.readout_size,
        }
