"""The translation model of Bahdanau, Cho and Bengio (2015)."""

import keras
from keras import ops

from keras_attention.applications.translation.models.base import TranslationModel, no_scores
from keras_attention.applications.translation.models.layers import (
    BidirectionalEncoder,
    MaxoutReadout,
    encoded,
    encoder_shapes,
    first_states,
    last_output,
    padding_mask,
)
from keras_attention.layers import AttentionDecoder, AttentionMechanism, BahdanauAttention


@keras.saving.register_keras_serializable("keras_attention.translation")
class RNNSearch(TranslationModel):
    """RNNsearch: a GRU that searches the source before each word it writes.

    $$\\begin{aligned}
    h_s &= [\\overrightarrow{h}_s; \\overleftarrow{h}_s], \\qquad
    s_0 = \\tanh(W_s \\overleftarrow{h}_1 + b) \\\\
    c_i &= \\sum_s \\alpha_{is} h_s, \\quad
    \\alpha_i = \\mathrm{softmax}(v^\\top \\tanh(W s_{i-1} + U h_s)) \\\\
    s_i &= \\mathrm{GRU}(s_{i-1}, [E y_{i-1}; c_i]) \\\\
    \\tilde t_i &= U_o s_{i-1} + V_o E y_{i-1} + C_o c_i, \\quad
    p(y_i) = \\mathrm{softmax}(W_o\\,\\mathrm{maxout}(\\tilde t_i))
    \\end{aligned}$$

    The GRU is the paper's (`keras.layers.GRUCell(reset_after=False)`), up to the sense of the
    update gate ($z_{Keras} = 1 - z$); context enters both gates and the candidate. Biases stand
    where the paper leaves them out of its formulas; $y_0$ is the start token's embedding.

    Args:
        source_vocabulary_size: Integer, how many source words there are, padding included.
        target_vocabulary_size: Integer, the same of the target.
        embedding_size: Integer, width of the embeddings (620 in the paper).
        units: Integer, units of the decoder and of each direction of the encoder (1000).
        attention: The attention mechanism; None for `BahdanauAttention(attention_units)`.
        cell: The decoder's RNN cell; None for the paper's GRU. Its first state goes to the readout.
        encoder: A layer from embedded words `(B, S, E)` and their `mask` to annotations
            `(B, S, D)`, or to `(annotations, ..., state)`: the decoder starts from the state, or
            from the mean annotation. None for the bidirectional GRU.
        attention_units: Integer, units of the default attention; None for `units`.
        readout_size: Integer, width after the maxout (500); None for `embedding_size`.
        dropout: Rate of the dropout on embeddings, annotations and readout (0).
        tie_embeddings: Boolean, whether the target embedding serves as $W_o$ too; needs
            `readout_size == embedding_size`.
        **kwargs: `name`, `dtype` and the like of `keras.Model`.

    Call arguments:
        inputs: Dict of token ids, `"source"` `(B, S)` and `"target"` `(B, T)`.
        training: Boolean, whether dropout acts.

    Returns:
        Logits `(B, T, target_vocabulary_size)`.

    Reference:
        - [Bahdanau et al., 2015](https://arxiv.org/abs/1409.0473)

    Example:

    ```python
    import numpy as np
    from keras_attention.applications.translation import RNNSearch

    model = RNNSearch(30, 40, embedding_size=8, units=12)
    source, target = np.array([[4, 5, 6]]), np.array([[2, 7]])
    assert tuple(model({"source": source, "target": target}).shape) == (1, 2, 40)

    state = model.start(source)
    logits, state = model.step(target[:, 0], state)
    assert tuple(state["attention_scores"].shape) == (1, 3)
    ```
    """

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        embedding_size: int = 620,
        units: int = 1000,
        attention: AttentionMechanism | None = None,
        cell: keras.layers.Layer | None = None,
        encoder: keras.layers.Layer | None = None,
        attention_units: int | None = None,
        readout_size: int | None = None,
        dropout: float = 0.0,
        tie_embeddings: bool = False,
        **kwargs,
    ):
        super().__init__(
            source_vocabulary_size,
            target_vocabulary_size,
            embedding_size,
            feature_size=readout_size or embedding_size,
            dropout=dropout,
            tie_embeddings=tie_embeddings,
            **kwargs,
        )
        self.units = units
        self.attention_units = attention_units
        self.readout_size = readout_size
        policy = {"dtype": self.dtype_policy}
        self.encoder = self.part(
            "encoder", encoder, lambda: BidirectionalEncoder(units, name="encoder", **policy)
        )
        self.first_state = keras.layers.Dense(
            units, activation="tanh", name="first_state", **policy
        )
        cell = self.part(
            "cell",
            cell,
            lambda: keras.layers.GRUCell(units, reset_after=False, name="cell", **policy),
        )
        attention = self.part(
            "attention",
            attention,
            lambda: BahdanauAttention(attention_units or units, name="attention", **policy),
        )
        self.decoder = AttentionDecoder(
            cell,
            attention,
            query="previous",
            name="decoder",
            **policy,
        )
        self.readout = MaxoutReadout(self.feature_size, name="readout", **policy)
        self.build()

    def build(self, input_shape=None):
        super().build()
        words = (None, None, self.embedding_size)
        annotations, start = encoder_shapes(self.encoder, words)
        self.first_state.build(start)
        self.decoder.build(words, annotations)
        self.readout.build([(None, None, self.units), words, annotations])

        if self.decoder.cell.output_size != self.units:
            raise ValueError(
                f"`cell` should have as many units as the network ({self.units}). "
                f"Received: a cell of output size {self.decoder.cell.output_size}"
            )

    def encode(self, source, training=False):
        mask = padding_mask(source)
        words = self.embed_source(source, training)
        annotations, start = encoded(self.encoder, words, mask)
        annotations = self.dropout(annotations, training=training)
        return annotations, mask, self.first_state(start)

    def decode(self, source, target, training=False, return_attention_scores=False):
        annotations, mask, first = self.encode(source, training)
        words = self.embed_target(target, training)
        outputs, contexts, *scores = self.decoder(
            words,
            annotations,
            initial_state=first_states(self.decoder.cell, first),
            value_mask=mask,
            return_context=True,
            return_attention_scores=return_attention_scores,
        )
        before = ops.concatenate([first[:, None], outputs[:, :-1]], axis=1)
        features = self.readout([before, words, contexts])
        return features, scores[0] if scores else None

    def start(self, source, max_length=None):
        annotations, mask, first = self.encode(source)
        memory = self.decoder.prepare_memory(annotations, mask=mask)
        return {
            "memory": memory,
            "decoder": self.decoder.initial_state(memory, first_states(self.decoder.cell, first)),
            "attention_scores": no_scores(source, annotations.dtype),
        }

    def advance(self, words, state):
        before = last_output(self.decoder.cell, state["decoder"]["cell"])
        _, scores, decoder = self.decoder.step(words, state["memory"], state["decoder"])
        features = self.readout([before, words, decoder["context"]])
        return features, {**state, "decoder": decoder, "attention_scores": scores}

    def get_config(self):
        return {
            **super().get_config(),
            **self.config_of(
                attention=self.decoder.attention, cell=self.decoder.cell, encoder=self.encoder
            ),
            "units": self.units,
            "attention_units": self.attention_units,
            "readout_size": self.readout_size,
        }
