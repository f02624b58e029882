"""The networks of Bahdanau, Cho and Bengio (2015) and, without attention, of Cho et al. (2014)."""

import keras
from keras import ops

from keras_attention.layers import AttentionDecoder, AttentionMechanism, BahdanauAttention

from ...base.network import recurrent_start
from . import layers
from .base import TranslationModel


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
        **kwargs: `dropout`, `tie_embeddings` (which needs `readout_size == embedding_size`),
            `embeddings_initializer`, `name` and `dtype` of `TranslationModel`; inputs and results
            are as there.

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
        **kwargs,
    ):
        sizes = source_vocabulary_size, target_vocabulary_size, embedding_size
        super().__init__(*sizes, feature_size=readout_size or embedding_size, **kwargs)
        self.keep(units=units, attention_units=attention_units, readout_size=readout_size)

        def named(layer_class, *arguments, name, **options):
            return layer_class(*arguments, name=name, dtype=self.dtype_policy, **options)

        self.encoder = self.part(
            "encoder", encoder, lambda: named(layers.BidirectionalEncoder, units, name="encoder")
        )
        self.first_state = named(keras.layers.Dense, units, name="first_state", activation="tanh")
        of_cell = {"recurrent_initializer": recurrent_start(self.dtype_policy), "name": "cell"}
        cell = self.part(
            "cell", cell, lambda: named(keras.layers.GRUCell, units, reset_after=False, **of_cell)
        )
        attention = self.part(
            "attention",
            attention,
            lambda: named(BahdanauAttention, attention_units or units, name="attention"),
        )
        self.decoder = named(AttentionDecoder, cell, attention, name="decoder", query="previous")
        self.readout = named(layers.MaxoutReadout, self.feature_size, name="readout")
        self.build()

    def build(self, input_shape=None):
        super().build()
        words = (None, None, self.embedding_size)
        annotations, start = layers.encoder_shapes(self.encoder, words)
        self.first_state.build(start)
        self.decoder.build(words, annotations)
        self.readout.build([(None, None, self.units), words, annotations])
        if self.decoder.cell.output_size != self.units:
            raise ValueError(
                f"`cell` should have as many units as the network ({self.units}). "
                f"Received: a cell of output size {self.decoder.cell.output_size}"
            )

    def encode(self, source, training=False):
        mask = layers.padding_mask(source)
        annotations, start = layers.encoded(self.encoder, self.embed_source(source, training), mask)
        states = layers.first_states(self.decoder.cell, self.first_state(start))
        return self.dropout(annotations, training=training), mask, states

    def decode(self, source, target, training=False, return_attention_scores=False):
        annotations, mask, states = self.encode(source, training)
        words = self.embed_target(target, training)
        outputs, contexts, *scores = self.decoder(
            words,
            annotations,
            initial_state=states,
            value_mask=mask,
            return_context=True,
            return_attention_scores=return_attention_scores,
        )
        first = layers.last_output(self.decoder.cell, states)
        before = ops.concatenate([first[:, None], outputs[:, :-1]], axis=1)
        return self.readout([before, words, contexts]), scores[0] if scores else None

    def advance(self, words, state):
        before = layers.last_output(self.decoder.cell, state["decoder"]["cell"])
        _, scores, decoder = self.decoder.step(words, state["memory"], state["decoder"])
        features = self.readout([before, words, decoder["context"]])
        return features, {**state, "decoder": decoder, "attention_scores": scores}

    def get_config(self):
        parts = {"attention": self.decoder.attention, "cell": self.decoder.cell}
        return {**super().get_config(), **self.config_of(**parts, encoder=self.encoder)}


@keras.saving.register_keras_serializable("keras_attention.translation")
class RNNEncDec(TranslationModel):
    """RNN encoder-decoder: one vector holds the whole sentence.

    $$\\begin{aligned}
    c &= \\tanh(V [\\overrightarrow{h}_S; \\overleftarrow{h}_1] + b), \\qquad
    s_0 = \\tanh(V' c + b') \\\\
    s_i &= \\mathrm{GRU}(s_{i-1}, [E y_{i-1}; c]), \\qquad
    \\tilde t_i = O_h s_i + O_y E y_{i-1} + O_c c
    \\end{aligned}$$

    with the maxout and the word scores of `RNNSearch`. Everything but the attention is as in
    `RNNSearch`, to compare with it: the encoder is bidirectional (the paper's reads in one
    direction) and $c$ is as wide as an attention context there. As the paper has it, the readout
    sees the state after the step.

    Args:
        source_vocabulary_size: Integer, how many source words there are, padding included.
        target_vocabulary_size: Integer, the same of the target.
        embedding_size: Integer, width of the embeddings.
        units: Integer, units of the decoder and of each direction of the encoder.
        readout_size: Integer, width after the maxout; None for `embedding_size`.
        **kwargs: As for `RNNSearch`.

    Reference:
        - [Cho et al., 2014](https://arxiv.org/abs/1406.1078)
    """

    has_attention = False

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        embedding_size: int = 620,
        units: int = 1000,
        readout_size: int | None = None,
        **kwargs,
    ):
        sizes = source_vocabulary_size, target_vocabulary_size, embedding_size
        super().__init__(*sizes, feature_size=readout_size or embedding_size, **kwargs)
        self.keep(units=units, readout_size=readout_size)
        policy = {"dtype": self.dtype_policy}

        def dense(width, name, **options):
            return keras.layers.Dense(width, name=name, **options, **policy)

        self.encoder = layers.BidirectionalEncoder(units, name="encoder", **policy)
        self.sentence = dense(2 * units, "sentence", activation="tanh")
        self.first_state = dense(units, "first_state", activation="tanh")
        self.word_projection = dense(3 * units, "word_projection")
        self.sentence_projection = dense(3 * units, "sentence_projection", use_bias=False)
        cell = layers.ProjectedGRUCell(units, name="cell", **policy)
        self.decoder = keras.layers.RNN(cell, return_sequences=True, name="decoder", **policy)
        self.readout = layers.MaxoutReadout(self.feature_size, name="readout", **policy)
        self.build()

    def build(self, input_shape=None):
        super().build()
        words, sentence = (None, None, self.embedding_size), (None, None, 2 * self.units)
        self.encoder.build(words)
        for layer in (self.sentence, self.first_state, self.sentence_projection):
            layer.build((None, 2 * self.units))
        self.word_projection.build(words)
        self.decoder.build((None, None, 3 * self.units))
        self.readout.build([(None, None, self.units), words, sentence])

    def encode(self, source, training=False):
        words = self.embed_source(source, training)
        _, forward, backward = self.encoder(words, mask=layers.padding_mask(source))
        sentence = self.sentence(ops.concatenate([forward, backward], axis=-1))
        sentence = self.dropout(sentence, training=training)
        return sentence, self.first_state(sentence)

    def decode(self, source, target, training=False, return_attention_scores=False):
        sentence, first = self.encode(source, training)
        words = self.embed_target(target, training)
        projected = self.word_projection(words) + self.sentence_projection(sentence)[:, None]
        states = self.decoder(projected, initial_state=first)
        contexts = ops.repeat(sentence[:, None], ops.shape(words)[1], axis=1)
        return self.readout([states, words, contexts]), None

    def start(self, source, max_length=None):
        sentence, first = self.encode(source)
        memory = {"sentence": sentence, "projected": self.sentence_projection(sentence)}
        return {"memory": memory, "decoder": {"cell": [first]}}

    def advance(self, words, state):
        memory = state["memory"]
        projected = self.word_projection(words) + memory["projected"]
        output, cell = self.decoder.cell(projected, state["decoder"]["cell"])
        features = self.readout([output, words, memory["sentence"]])
        return features, {**state, "decoder": {"cell": list(cell)}}
