"""The translation model of Cho et al. (2014): RNNsearch without its attention."""

import keras
from keras import ops

from keras_attention.applications.translation.models.base import TranslationModel
from keras_attention.applications.translation.models.layers import (
    BidirectionalEncoder,
    MaxoutReadout,
    ProjectedGRUCell,
    padding_mask,
)


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
        dropout: Rate of the dropout on embeddings, sentence vector and readout.
        tie_embeddings: Boolean, whether the target embedding serves as output matrix too; needs
            `readout_size == embedding_size`.
        **kwargs: `name`, `dtype` and the like of `keras.Model`.

    Call arguments:
        inputs: Dict of token ids, `"source"` `(B, S)` and `"target"` `(B, T)`.
        training: Boolean, whether dropout acts.

    Returns:
        Logits `(B, T, target_vocabulary_size)`.

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
        self.readout_size = readout_size
        policy = {"dtype": self.dtype_policy}
        self.encoder = BidirectionalEncoder(units, name="encoder", **policy)
        self.sentence = keras.layers.Dense(2 * units, activation="tanh", name="sentence", **policy)
        self.first_state = keras.layers.Dense(
            units, activation="tanh", name="first_state", **policy
        )
        self.word_projection = keras.layers.Dense(3 * units, name="word_projection", **policy)
        self.sentence_projection = keras.layers.Dense(
            3 * units, use_bias=False, name="sentence_projection", **policy
        )
        self.decoder = keras.layers.RNN(
            ProjectedGRUCell(units, name="cell", **policy),
            return_sequences=True,
            name="decoder",
            **policy,
        )
        self.readout = MaxoutReadout(self.feature_size, name="readout", **policy)
        self.build()

    def build(self, input_shape=None):
        super().build()
        words, sentence = (None, None, self.embedding_size), (None, None, 2 * self.units)
        self.encoder.build(words)
        self.sentence.build((None, 2 * self.units))
        self.first_state.build((None, 2 * self.units))
        self.word_projection.build(words)
        self.sentence_projection.build((None, 2 * self.units))
        self.decoder.build((None, None, 3 * self.units))
        self.readout.build([(None, None, self.units), words, sentence])

    def encode(self, source, training=False):
        words = self.embed_source(source, training)
        _, forward, backward = self.encoder(words, mask=padding_mask(source))
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

    def get_config(self):
        return {**super().get_config(), "units": self.units, "readout_size": self.readout_size}
