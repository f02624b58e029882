"""The translation model of Bahdanau, Cho and Bengio (2015)."""

import keras
from keras import ops

from keras_attention.applications.translation.base import TranslationModel, no_scores
from keras_attention.applications.translation.encoders import BidirectionalEncoder, padding_mask
from keras_attention.applications.translation.readout import MaxoutReadout
from keras_attention.layers import AttentionDecoder, BahdanauAttention


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
        attention_units: Integer, units of the attention; None for `units`.
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
    from keras_attention.applications.translation.model import RNNSearch

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
        self.encoder = BidirectionalEncoder(units, name="encoder", **policy)
        self.first_state = keras.layers.Dense(
            units, activation="tanh", name="first_state", **policy
        )
        self.decoder = AttentionDecoder(
            keras.layers.GRUCell(units, reset_after=False, name="cell", **policy),
            BahdanauAttention(attention_units or units, name="attention", **policy),
            query="previous",
            name="decoder",
            **policy,
        )
        self.readout = MaxoutReadout(self.feature_size, name="readout", **policy)
        self.build()

    def build(self, input_shape=None):
        super().build()
        words, annotations = (None, None, self.embedding_size), (None, None, 2 * self.units)
        self.encoder.build(words)
        self.first_state.build((None, self.units))
        self.decoder.build(words, annotations)
        self.readout.build([(None, None, self.units), words, annotations])

    def encode(self, source, training=False):
        mask = padding_mask(source)
        words = self.embed_source(source, training)
        annotations, _, backward = self.encoder(words, mask=mask)
        annotations = self.dropout(annotations, training=training)
        return annotations, mask, self.first_state(backward)

    def decode(self, source, target, training=False, return_attention_scores=False):
        annotations, mask, first = self.encode(source, training)
        words = self.embed_target(target, training)
        outputs, contexts, *scores = self.decoder(
            words,
            annotations,
            initial_state=first,
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
            "decoder": self.decoder.initial_state(memory, initial_state=first),
            "attention_scores": no_scores(source, annotations.dtype),
        }

    def advance(self, words, state):
        before = state["decoder"]["cell"][0]
        _, scores, decoder = self.decoder.step(words, state["memory"], state["decoder"])
        features = self.readout([before, words, decoder["context"]])
        return features, {**state, "decoder": decoder, "attention_scores": scores}

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "attention_units": self.attention_units,
            "readout_size": self.readout_size,
        }
