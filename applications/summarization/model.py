"""The summarisation model: an encoder of documents, and a decoder with what is switched on."""

import keras
from keras import ops

from keras_attention.applications.summarization.encoders import (
    FlatEncoder,
    HierarchicalEncoder,
    TransformerReader,
)
from keras_attention.applications.summarization.model_config import ModelConfig
from keras_attention.layers import (
    AttentionDecoder,
    BahdanauAttention,
    CoverageAttention,
    HierarchicalAttention,
    IntraDecoderAttention,
    PointerGenerator,
    TemporalAttention,
)
from keras_attention.losses import masked_sparse_categorical_crossentropy
from keras_attention.text import PAD_ID, START_ID, UNK_ID


class SummarizationModel(keras.Model):
    """Reads a document and writes its summary.

    ```
    log_p          = model({"source": (B, N, W), "target": (B, T), "labels": (B, T)})    # (B, T)
    state          = model.start(source, max_length)             # every leaf has B rows
    logits, state  = model.step(tokens, state, index)            # (B,) -> (B, V + extra)
    ```

    The call gives the log probabilities of the labels, which is what training needs. Ids of the
    source and the labels are of the extended vocabulary where the model has a pointer.

    Args:
        config: The `model` section.
        vocabulary_size: Number of known words.
        extra_words: Number of ids past the vocabulary, where the model has a pointer.
        max_sentences: The most sentences of a document.
        **kwargs: `name` and the like of `keras.Model`.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocabulary_size: int,
        extra_words: int,
        max_sentences: int,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.config = config
        self.vocabulary_size = vocabulary_size
        self.extra_size = extra_words if config.pointer else 0
        self.is_hierarchical = config.encoder == "hierarchical"
        self.embedding = keras.layers.Embedding(
            vocabulary_size, config.embedding_size, name="embedding"
        )
        self.encoder = _encoder(config, max_sentences)
        self.bridges = [
            keras.layers.Dense(config.units, "tanh", name=f"bridge_{name}") for name in "hc"
        ]
        self.decoder = AttentionDecoder(
            keras.layers.LSTMCell(config.units),
            _attention(config),
            query="current",
            input_feeding=True,
            name="decoder",
        )
        self.intra = IntraDecoderAttention(name="intra") if config.intra_decoder else None
        self.dropout = keras.layers.Dropout(config.dropout)
        self.readout = keras.layers.Dense(vocabulary_size, name="readout")
        self.pointer = PointerGenerator(name="pointer") if config.pointer else None
        self._call_all()

    def _call_all(self):
        """Make every weight."""
        ids = ops.ones((1, 2, 2), "int32")
        target = ops.ones((1, 2), "int32")
        self({"source": ids, "target": target, "labels": target})

    def call(self, inputs, training=None):
        target, labels = inputs["target"], inputs["labels"]
        parts = self.decode(inputs["source"], target, labels, training)
        if self.pointer is None:
            known = ops.where(labels < self.vocabulary_size, labels, UNK_ID)
            return -masked_sparse_categorical_crossentropy(known, parts["logits"])
        return self.pointer.log_likelihood(labels, **parts)

    def decode(self, source, target, labels, training=None) -> dict:
        """Return what words are chosen by at every step of given summaries.

        Returns:
            Dictionary of `logits` `(B, T, V)`, `scores` `(B, T, N W)`, `source_ids` `(B, N W)`,
            `context`, `state` and `inputs`.
        """
        memory, mask, start = self.encode(source, training)
        embedded = self.dropout(self.embed(target), training=training)
        outputs, contexts, scores = self.decoder(
            embedded,
            memory,
            initial_state=start,
            value_mask=mask,
            return_attention_scores=True,
            return_context=True,
            inputs_mask=ops.not_equal(labels, PAD_ID),
            training=training,
        )
        read = outputs
        if self.intra is not None:
            read = ops.concatenate([outputs, self.intra(outputs)], axis=-1)
        return {
            "logits": self.readout(self.dropout(read, training=training)),
            "scores": ops.reshape(scores, (*ops.shape(target), -1)),
            "source_ids": _flat(source),
            "context": contexts,
            "state": outputs,
            "inputs": embedded,
        }

    def encode(self, source, training=None):
        """Return the memory of documents `(B, N, W)`, its mask, and the decoder's first states."""
        mask = ops.not_equal(source, PAD_ID)
        words = self.dropout(self.embed(source), training=training)
        memory, mask, last = self.encoder(words, mask)
        if not self.config.attention:  # to the last state alone
            memory = ops.expand_dims(last, 1)
            mask = ops.ones(ops.shape(memory)[:2], "bool")
        return memory, mask, [bridge(last) for bridge in self.bridges]

    def embed(self, ids):
        """Return the embeddings of ids; words past the vocabulary are unknown."""
        return self.embedding(ops.where(ids < self.vocabulary_size, ids, UNK_ID))

    def start(self, source, max_length) -> dict:
        """Return the state before the first word.

        Args:
            source: Ids `(B, N, W)`.
            max_length: The most words of a summary.
        """
        memory, mask, first = self.encode(source)
        prepared = self.decoder.prepare_memory(memory, mask)
        flat = _flat(source)
        state = {
            "memory": prepared,
            "source_ids": flat,
            "decoder": self.decoder.initial_state(prepared, first),
            "attention": ops.zeros(ops.shape(flat)),
            "p_gen": ops.ones((ops.shape(flat)[0], 1)),
        }
        if self.intra is not None:
            room = ops.zeros((ops.shape(flat)[0], max_length, self.config.units))
            state["room"] = self.intra.prepare_memory(room)
            state["own"] = self.intra.initial_state(state["room"])
        return state

    @property
    def constant_keys(self) -> tuple[str, ...]:
        """The entries of a state that no step changes."""
        return ("memory", "source_ids", *(["room"] if self.intra is not None else []))

    def step(self, tokens, state, index=None):
        """Return log probabilities `(B, V + extra)` of the next word, and the state after it."""
        embedded = self.embed(tokens)
        output, scores, after = self.decoder.step(embedded, state["memory"], state["decoder"])
        state = {**state, "decoder": after}
        if self.config.attention:
            scores = ops.reshape(scores, ops.shape(state["attention"]))
            state["attention"] = ops.cast(scores, "float32")
        read = output
        if self.intra is not None:
            own, _, state["own"] = self.intra.step(output, state["room"], state["own"])
            read = ops.concatenate([output, own], axis=-1)
        logits = self.readout(read)
        if self.pointer is None:
            return writable(ops.log_softmax(logits, axis=-1)), state
        log_p, p_gen = self.pointer.step(
            logits,
            scores,
            state["source_ids"],
            after["context"],
            output,
            embedded,
            extra_size=self.extra_size,
            return_p_gen=True,
        )
        state["p_gen"] = ops.expand_dims(p_gen, 1)
        return writable(log_p), state


def writable(log_p):
    """Return log probabilities `(..., V)`, those of padding and the start minus infinity."""
    ids = ops.arange(log_p.shape[-1])
    unwritable = ops.logical_or(ops.equal(ids, PAD_ID), ops.equal(ids, START_ID))
    return ops.where(unwritable, float("-inf"), log_p)


def _encoder(config: ModelConfig, max_sentences: int):
    if config.encoder == "hierarchical":
        return HierarchicalEncoder(config.units, max_sentences, name="encoder")
    if config.encoder == "transformer":
        return TransformerReader(
            config.embedding_size, config.layers, config.heads, config.dropout, name="encoder"
        )
    return FlatEncoder(config.units, name="encoder")


def _attention(config: ModelConfig):
    units = config.attention_units or config.units
    if config.coverage:
        attention = CoverageAttention(
            units,
            loss_weight=config.coverage_weight,
            loss_start=config.coverage_start,
            use_bias=True,
        )
    elif config.temporal:
        attention = TemporalAttention()
    else:
        attention = BahdanauAttention(units, use_bias=True)
    if config.encoder == "hierarchical" and config.attention:
        return HierarchicalAttention(attention, BahdanauAttention(units, use_bias=True))
    return attention


def _flat(source):
    """Ids `(B, N, W)` to `(B, N W)`."""
    batch_size, count, width = ops.shape(source)
    return ops.reshape(source, (batch_size, count * width))
